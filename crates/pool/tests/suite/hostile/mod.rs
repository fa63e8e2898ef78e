//! Fault 43: a member that says what members don't say harms nobody but itself.

mod words;

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use tollfree_layout::ExtentIdx;
use tollfree_layout::pool::{POOL_MESSAGE_LEN, PoolMessage, pool_kind, pool_reason};
use tollfree_pool::{Address, Coordinator};
use tollfree_rendezvous::socket::{Heard, recv, send_with};
use tollfree_testkit::TimeLimit;
use zerocopy::{FromBytes, IntoBytes};

use crate::place::{BATCH, Place, capacity, until};

/// A member without a library.
struct Stranger {
    socket: UnixStream,
    welcome: PoolMessage,
}

fn connect(place: &Place) -> UnixStream {
    let Address::Path(path) = &place.address else { panic!("a path") };
    UnixStream::connect(path).unwrap()
}

fn say(socket: &UnixStream, message: &PoolMessage, fd_count: usize) {
    let fds = vec![socket.as_fd(); fd_count];
    // One that has hung up already is found out by listening.
    let _ = send_with(socket, message.as_bytes(), &fds);
}

/// The next message, none once hung up on.
fn hear(socket: &UnixStream) -> Option<PoolMessage> {
    let mut bytes = [0; POOL_MESSAGE_LEN];
    let mut len = 0;
    let began = std::time::Instant::now();
    while len < POOL_MESSAGE_LEN {
        assert!(began.elapsed() < std::time::Duration::from_secs(30), "neither a word nor a hang-up");
        match recv(socket, &mut bytes[len..]) {
            Ok(Heard::Bytes(count, _) | Heard::Cut(count, _)) => len += count,
            // Something of what was said is unread: the kernel calls that a reset.
            Ok(Heard::HungUp) | Err(_) => return None,
            Ok(Heard::Nothing) => std::thread::sleep(std::time::Duration::from_micros(100)),
        }
    }
    Some(PoolMessage::read_from_bytes(&bytes).unwrap())
}

impl Stranger {
    fn join(place: &Place) -> Stranger {
        let socket = connect(place);
        say(&socket, &PoolMessage::new(pool_kind::JOIN), 0);
        let welcome = hear(&socket).unwrap();
        assert_eq!(welcome.kind.get(), pool_kind::WELCOME);
        Stranger { socket, welcome }
    }
}

/// H2: exactly the descriptors that a message has. Who sends more is hung up on, and nobody whom it names.
#[test]
fn descriptors_that_a_message_does_not_have_end_the_sender_alone() {
    let _limit = TimeLimit::seconds(120);
    let place = Place::new();
    let _coordinator = Coordinator::start(&place.address, capacity()).unwrap();
    let (owner, reader) = (place.join(), place.join());
    let shared = owner.copy_from_slice(&[7; 4096]).unwrap();
    let wire = shared.to_bytes().unwrap();
    let owner_idx = u32::from_le_bytes(wire[16..20].try_into().unwrap()).into();
    for kind in 0..40 {
        let stranger = Stranger::join(&place);
        let mut message = PoolMessage::new(kind).about(tollfree_layout::MemberIdx(0), ExtentIdx(1));
        message.member = owner_idx;
        say(&stranger.socket, &message, pool_kind::fd_count(kind) + 1);
        assert!(hear(&stranger.socket).is_none(), "{kind}");
    }
    assert!(owner.is_attached() && reader.is_attached());
    assert_eq!(&reader.map_ref(&wire).unwrap()[..], &[7; 4096]);
}

/// H2: a number without its secret is worth nothing, to a coordinator that knows the member and to one that doesn't.
#[test]
fn nobody_comes_back_as_another() {
    let _limit = TimeLimit::seconds(120);
    let place = Place::new();
    let coordinator = Coordinator::start(&place.address, capacity()).unwrap();
    let owner = place.join();
    let shared = owner.copy_from_slice(&[7; 4096]).unwrap();
    let wire = shared.to_bytes().unwrap();
    let own = Stranger::join(&place);
    let try_as_owner = |secret: [u8; 16]| {
        let socket = connect(&place);
        let mut join = PoolMessage::new(pool_kind::JOIN);
        join.pool = owner.id();
        join.member = u32::from_le_bytes(wire[16..20].try_into().unwrap()).into();
        join.secret = secret;
        say(&socket, &join, 0);
        let answer = hear(&socket).unwrap();
        assert_eq!((answer.kind.get(), answer.reason.get()), (pool_kind::REFUSAL, pool_reason::MALFORMED));
    };
    for secret in [[0; 16], [1; 16], own.welcome.secret] {
        try_as_owner(secret);
    }
    assert!(owner.is_attached());
    coordinator.stop();
    let mut successor = None;
    until("the address is free", || {
        successor = Coordinator::start(&place.address, capacity()).ok();
        successor.is_some()
    });
    for secret in [[0; 16], [1; 16], own.welcome.secret] {
        try_as_owner(secret);
    }
    until("the owner is back", || owner.is_attached());
    assert_eq!(&place.join().map_ref(&wire).unwrap()[..], &[7; 4096]);
}
