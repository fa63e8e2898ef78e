//! Doorbells that are rung by reading: heard where they are good, and done without where they are not.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::ReadWriteFlags;
use tollfree_driver_tokio::*;
use tollfree_layout::control::Waiting;
use tollfree_layout::frame::{events, flags};
use tollfree_layout::handshake::{Hello, feature};
use tollfree_rendezvous::{Doorbell, socket};
use tollfree_testkit::{Census, Door, Frame, HostilePeer, opening_of};

use crate::echo::{Echo, alone_for, check_calls};

const PATH: &str = "/test.Echo/Call";

/// A client by hand that gives this for its doorbell, or nothing; and the server's, once it has come.
fn enter(server: &Echo, doorbell: Option<OwnedFd>) -> (HostilePeer, OwnedFd) {
    let announce = |hello: &mut Hello| hello.features = (hello.features.get() | feature::DOORBELL).into();
    let mut peer = Door::knock(&server.path()).unwrap().enter(announce).unwrap();
    if let Some(doorbell) = doorbell {
        peer.send_fds(&[doorbell.as_fd()]).unwrap();
    }
    let (bytes, mut fds) = peer.door().recv().unwrap();
    assert_eq!((bytes.len(), fds.len()), (1, 1), "the server's doorbell is its first word");
    (peer, fds.pop().unwrap())
}

fn request(stream: u64) -> Frame {
    if stream == 1 {
        return opening_of(1, 0, PATH, b"hi");
    }
    let all = events::HEADERS | events::MESSAGE | events::HALF_CLOSE;
    Frame::new(all, flags::FIRST | flags::LAST, stream).message_len(2).chunk(b"hi")
}

/// A call whose answer the client sleeps for, as the other side is told: for each call anew.
fn call_asleep(peer: &mut HostilePeer, stream: u64) {
    let epochs = (1..stream).fold(Waiting(0), |word, _| word.park(false).unpark());
    peer.say_waiting(epochs.park(false));
    peer.send(&request(stream)).unwrap();
}

/// A request of which the server, which sleeps, is not told.
fn write_to_sleeper(peer: &mut HostilePeer, stream: u64) {
    while !peer.sees_sleeper() {
        std::thread::yield_now();
    }
    let record = request(stream).record();
    peer.write_record(&record, record.len() as u32);
}

/// Reads until the call has ended.
fn read_answer(peer: &mut HostilePeer) {
    while peer.read().unwrap()[0] & events::TRAILERS == 0 {}
}

/// Watches a doorbell as its owner does.
struct Watch(OwnedFd);

impl Watch {
    fn new(doorbell: &impl AsFd) -> Watch {
        let poller = epoll::create(CreateFlags::CLOEXEC).unwrap();
        epoll::add(&poller, doorbell, EventData::new_u64(1), EventFlags::OUT | EventFlags::ET).unwrap();
        let watch = Watch(poller);
        watch.hears(Duration::ZERO);
        watch
    }

    fn hears(&self, limit: Duration) -> bool {
        let limit = Timespec { tv_sec: limit.as_secs() as _, tv_nsec: limit.subsec_nanos().into() };
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }];
        epoll::wait(&self.0, &mut events, Some(&limit)).unwrap() == 1
    }
}

#[test]
fn who_sleeps_is_woken_by_its_doorbell_and_not_over_the_socket() {
    alone_for(60, async {
        let server = Echo::start(Config::default());
        tokio::task::block_in_place(|| {
            let doorbell = Doorbell::new().unwrap();
            let watch = Watch::new(&doorbell);
            let given = rustix::io::dup(&doorbell).unwrap();
            let (mut peer, servers) = enter(&server, Some(given));
            for stream in [1, 2, 3] {
                call_asleep(&mut peer, stream);
                assert!(watch.hears(Duration::from_secs(10)), "the doorbell");
                read_answer(&mut peer);
                let nothing = socket::recv(&*peer.door(), &mut [0; 8]).unwrap();
                assert!(matches!(nothing, socket::Heard::Nothing), "{nothing:?}");
            }
            // And the server by its own.
            write_to_sleeper(&mut peer, 4);
            assert!(!watch.hears(Duration::from_millis(50)), "it sleeps");
            assert_eq!(take(&servers).unwrap(), 8);
            read_answer(&mut peer);
        });
    });
}

/// Rings, as any process with the descriptor may.
fn take(doorbell: &OwnedFd) -> io::Result<usize> {
    let mut taken = [0; 8];
    let place = &mut [IoSliceMut::new(&mut taken)];
    Ok(rustix::io::preadv2(doorbell, place, u64::MAX, ReadWriteFlags::NOWAIT)?)
}

#[test]
fn what_is_no_doorbell_or_a_spoilt_one_is_done_without() {
    alone_for(60, async {
        let server = Echo::start(Config::default());
        let honest = server.connect().await;
        check_calls(&honest, 10).await;
        let before = Census::take();
        let socket: OwnedFd = UnixStream::pair().unwrap().0.into();
        let (reader, writer) = io::pipe().unwrap();
        let empty = eventfd(0, EventfdFlags::empty()).unwrap();
        let once = eventfd(1, EventfdFlags::SEMAPHORE).unwrap();
        let file: OwnedFd = tempfile::tempfile().unwrap().into();
        let device: OwnedFd = std::fs::File::open("/dev/zero").unwrap().into();
        let poller = epoll::create(CreateFlags::CLOEXEC).unwrap();
        let given = [socket, reader.into(), writer.into(), empty, once, file, device, poller];
        for doorbell in given.map(Some).into_iter().chain([None]) {
            let what = format!("{doorbell:?}");
            tokio::task::block_in_place(|| {
                let (mut peer, _servers) = enter(&server, doorbell);
                for stream in [1, 2, 3] {
                    call_asleep(&mut peer, stream);
                    read_answer(&mut peer);
                }
            });
            assert_eq!(server.next_end().await, Closed::HungUp, "{what}");
            check_calls(&honest, 3).await;
        }
        before.assert_back();
    });
}

#[test]
fn a_servers_doorbell_that_a_client_has_spoilt_is_that_clients_loss() {
    alone_for(60, async {
        let server = Echo::start(Config::default());
        let honest = server.connect().await;
        check_calls(&honest, 10).await;
        let before = Census::take();
        let spoil: [fn(&OwnedFd); 3] = [
            // Rung for nothing, as fast as it goes.
            |doorbell| (0..20_000).for_each(|_| drop(take(doorbell))),
            // Full: there is no room any more to hear of, until somebody takes from it.
            |doorbell| {
                rustix::io::write(doorbell, &(u64::MAX - 1 - (1 << 62)).to_ne_bytes()).unwrap();
            },
            // Its flags are both sides'.
            |doorbell| rustix::io::ioctl_fionbio(doorbell, false).unwrap(),
        ];
        for spoil in spoil {
            tokio::task::block_in_place(|| {
                let doorbell = Doorbell::new().unwrap();
                let (mut peer, servers) = enter(&server, Some(doorbell.into()));
                spoil(&servers);
                for stream in [1, 2, 3] {
                    write_to_sleeper(&mut peer, stream);
                    take(&servers).unwrap();
                    read_answer(&mut peer);
                }
            });
            assert_eq!(server.next_end().await, Closed::HungUp);
            check_calls(&honest, 3).await;
        }
        before.assert_back();
    });
}
