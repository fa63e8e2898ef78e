//! Long messages by ref, between loops that are members of one pool.

use std::future::poll_fn;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tempfile::TempDir;
use tollfree_driver_loop::{
    CallId, CallStart, Capacity, Event, EventLoop, LoopConfig, Message, PayloadCounts, Pool, SessionId,
    Status,
};
use tollfree_driver_tokio::{
    Address, Attachment, Config, End, Ending, Keep, Opening, Outgoing, OutgoingMessage,
};
use tollfree_pool::{Config as PoolConfig, Coordinator};

use crate::support::{LONG, echoes, next, place, unary};

/// A client and a server, each with a loop and a membership of its own, in one thread.
struct Members {
    client: EventLoop,
    server: EventLoop,
    session: SessionId,
    address: Address,
    _directory: TempDir,
}

fn pool_place() -> (TempDir, Address) {
    let (directory, address) = place();
    drop(address);
    let address = Address::Path(directory.path().join("pool.sock"));
    (directory, address)
}

fn pools(config: PoolConfig) -> (TempDir, Pool, Pool) {
    let (directory, address) = pool_place();
    let first = Pool::create(&address, Capacity::default(), config).unwrap();
    let second = Pool::join(&address, config).unwrap();
    (directory, first, second)
}

fn config(pool: Option<&Pool>) -> LoopConfig {
    LoopConfig { pool: pool.cloned(), message_len_max: 64 << 20, ..LoopConfig::default() }
}

impl Members {
    fn new(client: LoopConfig, server: LoopConfig) -> Members {
        let (directory, address) = place();
        let mut server = EventLoop::new(server).unwrap();
        server.listen(&address).unwrap();
        let mut client = EventLoop::new(client).unwrap();
        let session = client.connect(&address).unwrap();
        let mut members = Members { client, server, session, address, _directory: directory };
        let (mut is_accepted, mut is_connected) = (false, false);
        members.until(
            |_, event| is_connected |= matches!(event, Event::Connected { .. }),
            |_, event| is_accepted |= matches!(event, Event::Accepted { .. }),
            |members| members.client.call_count(members.session) == 0,
        );
        while !(is_accepted && is_connected) {
            members.turn(
                |_, event| is_connected |= matches!(event, Event::Connected { .. }),
                |_, event| is_accepted |= matches!(event, Event::Accepted { .. }),
            );
        }
        members
    }

    fn turn(
        &mut self,
        mut client: impl FnMut(&mut EventLoop, Event),
        mut server: impl FnMut(&mut EventLoop, Event),
    ) {
        while let Some(event) = self.client.poll() {
            client(&mut self.client, event);
        }
        while let Some(event) = self.server.poll() {
            server(&mut self.server, event);
        }
    }

    fn until(
        &mut self,
        mut client: impl FnMut(&mut EventLoop, Event),
        mut server: impl FnMut(&mut EventLoop, Event),
        mut is_done: impl FnMut(&mut Members) -> bool,
    ) {
        let end = Instant::now() + LONG;
        while !is_done(self) {
            self.turn(&mut client, &mut server);
            assert!(Instant::now() < end, "nothing happens");
        }
    }

    /// Has a call echoed: the message that came back, and the status.
    fn echo(&mut self, message: Message) -> (Option<Message>, Status) {
        let start = CallStart { message: Some(message), is_last: true, ..CallStart::new("/test.Echo/Call") };
        let call = self.client.call(self.session, start).unwrap();
        self.ended(call)
    }

    fn ended(&mut self, call: CallId) -> (Option<Message>, Status) {
        let (mut came, mut status) = (None, None);
        let end = Instant::now() + LONG;
        while status.is_none() {
            self.turn(
                |_, event| match event {
                    Event::Message { call: of, message } if of == call => came = Some(message),
                    Event::Ended { call: of, status: how } if of == call => status = Some(how),
                    _ => {}
                },
                |events, event| {
                    echoes(events, &event);
                },
            );
            assert!(Instant::now() < end, "no answer");
        }
        (came, status.unwrap())
    }

    /// Turns both until the pool of the client has nothing in use.
    fn until_free(&mut self, pool: &Pool) {
        self.until(
            |_, _| {},
            |_, _| {},
            |_| {
                pool.sweep();
                std::thread::sleep(Duration::from_millis(1));
                is_free(pool)
            },
        );
    }
}

fn is_free(pool: &Pool) -> bool {
    let usage = pool.usage();
    usage.free_bytes == usage.total_bytes && usage.limbo_count == 0
}

fn in_pool(pool: &Pool, len: usize, byte: u8) -> Bytes {
    let mut buffer = pool.buffer(len).unwrap();
    buffer.resize_zeroed(len).fill(byte);
    buffer.freeze().unwrap().into()
}

#[test]
fn what_lies_in_the_pool_goes_there_and_back_without_a_copy() {
    let (_directory, ours, theirs) = pools(PoolConfig::default());
    let mut members = Members::new(config(Some(&ours)), config(Some(&theirs)));
    assert!(members.client.shares_pool(members.session));
    let payload = in_pool(&ours, 16 << 20, 7);
    let message =
        Message::of_pieces([Bytes::from_static(b"\x0a head"), payload.clone(), Bytes::from_static(b"tail")]);
    let (came, status) = members.echo(message.clone());
    assert_eq!(status.code, 0, "{}", status.words());
    let came = came.unwrap();
    assert_eq!((came.len(), came.clone().into_bytes()), (message.len(), message.into_bytes()));
    // The very same memory, since it came back to its owner.
    assert_eq!(came.more[0].as_ptr(), payload.as_ptr());
    let client = members.client.payloads();
    assert_eq!(
        (client.sent_by_ref, client.received_by_ref, client.copied_bytes < 100),
        (1, 1, true),
        "{client:?}"
    );
    assert_eq!(members.server.payloads().copied_bytes, client.copied_bytes);
    drop((came, payload));
    members.until_free(&ours);
}

#[test]
fn a_long_message_in_one_piece_is_copied_into_the_pool_once() {
    let (_directory, ours, theirs) = pools(PoolConfig::default());
    let mut members = Members::new(config(Some(&ours)), config(Some(&theirs)));
    for len in [0, 100, 65_535, 65_536, 3 << 20] {
        let message = Bytes::from((0..len).map(|at| at as u8).collect::<Vec<_>>());
        // Sending never waits for more of the pool: both ends have that before.
        for pool in [&ours, &theirs] {
            drop(pool.buffer(len.max(1)).unwrap());
        }
        let before = members.client.payloads();
        let (came, status) = members.echo(message.clone().into());
        assert_eq!((status.code, came.unwrap().into_bytes()), (0, message));
        let counts = members.client.payloads();
        let is_long = len >= 65_536;
        assert_eq!(counts.sent_by_ref - before.sent_by_ref, u64::from(is_long), "{len}");
        let copied = if is_long { len as u64 } else { 0 };
        assert_eq!(counts.copied_bytes - before.copied_bytes, copied, "{len}");
    }
    members.until_free(&ours);
}

#[test]
fn a_received_piece_outlives_call_session_and_loop_and_is_released_by_any_thread() {
    let (_directory, ours, theirs) = pools(PoolConfig::default());
    let mut members = Members::new(config(Some(&ours)), config(Some(&theirs)));
    let start = CallStart {
        message: Some(Message::of_pieces([Bytes::from_static(b"x"), in_pool(&ours, 1 << 20, 9)])),
        ..CallStart::new("/test.Echo/Keep")
    };
    members.client.call(members.session, start).unwrap();
    let mut kept = None;
    let end = Instant::now() + LONG;
    while kept.is_none() {
        members.turn(
            |_, _| {},
            |_, event| {
                if let Event::Message { message, .. } = event {
                    kept = Some(message)
                }
            },
        );
        assert!(Instant::now() < end);
    }
    drop(members);
    ours.sweep();
    assert!(!is_free(&ours), "the reader holds it");
    let kept = kept.unwrap();
    assert!(theirs.ref_of(&kept.more[0]).is_some_and(|part| !part.is_own()), "it is read where it lies");
    assert!(kept.more[0].iter().all(|byte| *byte == 9));
    std::thread::spawn(move || drop(kept)).join().unwrap();
    ours.sweep();
    assert!(is_free(&ours));
}

#[test]
fn without_a_pool_in_common_messages_go_inline() {
    let (_directory, ours, _theirs) = pools(PoolConfig::default());
    let (_elsewhere, foreign, _) = pools(PoolConfig::default());
    for server in [None, Some(&foreign)] {
        let mut members = Members::new(config(Some(&ours)), config(server));
        assert!(!members.client.shares_pool(members.session));
        let message = Message::of_pieces([Bytes::from_static(b"head"), in_pool(&ours, 1 << 20, 3)]);
        let (came, status) = members.echo(message.clone());
        assert_eq!((status.code, came.unwrap().bytes), (0, message.into_bytes()));
        assert_eq!((members.client.payloads().sent_by_ref, members.client.payloads().sent_inline), (0, 1));
    }
}

/// What a pool has no room for goes inline, and is counted; so does what a reader that releases nothing would get more of.
#[test]
fn a_full_pool_and_a_reader_that_holds_too_much_get_messages_inline() {
    let (_directory, address) = pool_place();
    let capacity = Capacity { total: 4 << 20, member_quota: 2 << 20, batch: 1 << 20 };
    let settings = PoolConfig { reader_limit: Some(512 << 10), ..PoolConfig::default() };
    let ours = Pool::create(&address, capacity, settings).unwrap();
    let theirs = Pool::join(&address, settings).unwrap();
    let mut members = Members::new(config(Some(&ours)), config(Some(&theirs)));
    let long = Bytes::from(vec![5; 3 << 20]);
    let (came, _) = members.echo(long.clone().into());
    assert_eq!(came.unwrap().into_bytes(), long);
    let counts = members.client.payloads();
    assert_eq!((counts.sent_by_ref, counts.pool_full, counts.sent_inline), (0, 1, 1));

    let call = members.client.call(members.session, CallStart::new("/test.Echo/Keep")).unwrap();
    let mut kept = Vec::new();
    let end = Instant::now() + LONG;
    for nth in 0..8 {
        members.client.send(call, Bytes::from(vec![nth; 128 << 10]).into()).unwrap();
        while kept.len() <= nth.into() {
            members.turn(
                |_, _| {},
                |_, event| {
                    if let Event::Message { message, .. } = event {
                        kept.push(message)
                    }
                },
            );
            assert!(Instant::now() < end);
        }
        // What the owner knows of its readers may be that old.
        std::thread::sleep(Duration::from_millis(20));
    }
    let counts = members.client.payloads();
    assert!((3..8).contains(&counts.sent_by_ref), "{counts:?}");
    assert!(
        kept.iter()
            .enumerate()
            .all(|(nth, message)| message.bytes.iter().all(|byte| usize::from(*byte) == nth))
    );
    drop(kept);
    members.client.cancel(call, 1);
    members.until_free(&ours);
}

/// The extent of a ref can't be mapped where nobody coordinates the pool: the sender is asked for the bytes.
#[test]
fn bytes_of_refs_that_can_not_be_mapped_are_asked_for_and_what_follows_comes_behind_them() {
    let (_directory, address) = pool_place();
    let coordinator = Coordinator::start(&address, Capacity::default()).unwrap();
    let ours = Pool::join(&address, PoolConfig::default()).unwrap();
    let theirs = Pool::join(&address, PoolConfig::default()).unwrap();
    let payload = in_pool(&ours, 5 << 20, 4);
    drop(coordinator);
    let end = Instant::now() + LONG;
    while ours.is_attached() || theirs.is_attached() {
        assert!(Instant::now() < end);
        std::thread::yield_now();
    }
    let mut members = Members::new(config(Some(&ours)), config(Some(&theirs)));
    let message =
        Message::of_pieces([Bytes::from_static(b"head"), payload.clone(), Bytes::from_static(b"tail")]);
    let (came, status) = members.echo(message.clone());
    assert_eq!(
        (status.code, came.unwrap().into_bytes()),
        (0, message.clone().into_bytes()),
        "{}",
        status.words()
    );
    assert_eq!(members.server.payloads().asked_for, 1);

    // In a stream, nothing overtakes it.
    let call = members.client.call(members.session, CallStart::new("/test.Echo/Stream")).unwrap();
    members.client.send(call, message.clone()).unwrap();
    members.client.send(call, Message::from(&b"next"[..])).unwrap();
    members.client.finish(call).unwrap();
    let (mut came, mut is_over) = (Vec::new(), false);
    let end = Instant::now() + LONG;
    while !is_over {
        members.turn(
            |_, event| match event {
                Event::Message { message, .. } => came.push(message.into_bytes()),
                Event::Ended { status, .. } => is_over = status.code == 0,
                _ => {}
            },
            |events, event| {
                echoes(events, &event);
            },
        );
        assert!(Instant::now() < end);
    }
    assert_eq!(came, [message.into_bytes(), Bytes::from_static(b"next")]);

    // A call that ends meanwhile leaves nothing behind.
    let deadline_ns = Some(tollfree_os::clock::now_ns() + 3_000_000);
    let message = Some(Message::of_pieces([Bytes::from_static(b"x"), payload]));
    let start = CallStart { message, deadline_ns, ..CallStart::new("/test.Echo/Stream") };
    let call = members.client.call(members.session, start).unwrap();
    assert_eq!(members.ended(call).1.code, 4);
    members.until_free(&ours);
}

/// `len`, `count`, inline bytes and refs, be they as false as they like.
fn segmented(len: u32, count: u32, inline: &[u8], refs: &[[u8; 56]]) -> Bytes {
    let mut bytes = [len.to_le_bytes(), count.to_le_bytes()].concat();
    bytes.extend_from_slice(inline);
    for part in refs {
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(part);
    }
    bytes.into()
}

/// What a liar's call is answered with.
async fn answer(client: &Attachment, data: Bytes) -> u16 {
    let mut request = Outgoing {
        message: Some(OutgoingMessage::segmented(data, false, Keep::new(()))),
        ending: Some(Ending::HalfClose),
        ..Outgoing::default()
    };
    let opening = Opening { path: "/test.Echo/Call", deadline_ns: 0 };
    let mut opener = client.open();
    let stream = poll_fn(|cx| opener.poll_open(cx, opening, &mut request)).await.unwrap();
    if !request.is_empty() {
        // It may be refused before all of it was sent.
        let _ = poll_fn(|cx| stream.poll_send(cx, &mut request)).await;
    }
    loop {
        match poll_fn(|cx| stream.poll_incoming(cx)).await.unwrap().into_part().end {
            Some(End::Trailers { code, .. } | End::Cancelled { code, .. }) => return code,
            Some(end) => panic!("{end:?}"),
            None => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn lies_about_refs_end_their_calls_and_nothing_else() {
    let (_directory, ours, liar) = pools(PoolConfig::default());
    let (_elsewhere, foreign, _) = pools(PoolConfig::default());
    let (_place, address) = place();
    let mut events = EventLoop::new(LoopConfig { message_len_max: 120_000, ..config(Some(&ours)) }).unwrap();
    events.listen(&address).unwrap();
    let server = std::thread::spawn(move || {
        loop {
            let event = next(&mut events);
            if !echoes(&mut events, &event) && matches!(event, Event::Closed { .. }) {
                return events.payloads();
            }
        }
    });
    let settings = Config { pool: Some(liar.id()), ..Config::default() };
    let client = Attachment::connect(&address, &settings).await.unwrap();
    let held = liar.copy_from_slice(&[1; 50_000]).unwrap();
    let long = liar.copy_from_slice(&[1; 150_000]).unwrap().to_bytes().unwrap();
    let genuine = held.to_bytes().unwrap();
    let with = |at: usize, byte: u8| {
        let mut bytes = genuine;
        bytes[at] ^= byte;
        bytes
    };
    let stale = {
        let held = liar.copy_from_slice(&[2; 50_000]).unwrap();
        let bytes = held.to_bytes().unwrap();
        drop(held);
        liar.sweep();
        bytes
    };
    let foreign = foreign.copy_from_slice(&[4; 50_000]).unwrap().to_bytes().unwrap();
    let one = |part: [u8; 56]| segmented(50_000, 1, b"", &[part]);
    let lies = [
        ("the truth", 0, one(genuine)),
        ("another tag", 7, one(with(32, 1))),
        ("another offset", 7, one(with(40, 1))),
        ("a page beyond the extent", 7, one(with(31, 0x7f))),
        ("longer", 7, segmented(50_000 ^ 1 << 16, 1, b"", &[with(50, 1)])),
        ("of another pool", 7, one(foreign)),
        ("an earlier generation", 9, one(stale)),
        ("a later generation", 9, one(with(28, 1))),
        ("an extent that never was", 14, one(with(22, 1))),
        ("no bytes at all", 13, Bytes::new()),
        ("no refs", 13, segmented(3, 0, b"abc", &[])),
        ("fewer refs than stated", 13, segmented(50_000, 2, b"", &[genuine])),
        ("more refs than can be", 13, segmented(50_000, 1_000_000, b"", &[genuine])),
        ("another length than stated", 13, segmented(50_001, 1, b"", &[genuine])),
        ("longer than the server takes", 8, segmented(150_000, 1, b"", &[long])),
        ("longer than can be", 8, Bytes::from(vec![0; 300_000])),
        ("the truth again", 0, one(genuine)),
    ];
    for (what, code, data) in &lies {
        let answered = tokio::time::timeout(LONG, answer(&client, data.clone())).await;
        assert_eq!(answered.unwrap(), *code, "{what}");
    }
    let until = Instant::now() + LONG;
    while client.segmented_messages_in_flight() > 0 {
        client.look_for_taken();
        assert!(Instant::now() < until, "each is taken, once");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(client);
    let counts: PayloadCounts = tokio::task::spawn_blocking(move || server.join().unwrap()).await.unwrap();
    assert_eq!((counts.received_by_ref, counts.refused_refs, counts.sent_inline), (2, 8, 0), "{counts:?}");
}

/// A call of a channel waits for its connection with what it says, and says it by ref once it has one.
#[test]
fn a_channels_call_that_waits_for_a_connection_goes_by_ref() {
    let (_directory, ours, theirs) = pools(PoolConfig::default());
    let mut members = Members::new(config(Some(&ours)), config(Some(&theirs)));
    let channel_config = tollfree_driver_loop::ChannelConfig::new(&members.address);
    let channel = members.client.open_channel(channel_config).unwrap();
    let message = in_pool(&ours, 1 << 20, 6);
    let call = members.client.channel_call(channel, unary(message.clone()), Default::default()).unwrap();
    let (came, status) = members.ended(call);
    assert_eq!((status.code, came.unwrap().bytes), (0, message));
    assert_eq!((members.client.payloads().sent_by_ref, members.client.payloads().copied_bytes), (1, 0));
}
