//! Processes of the same machine that mean harm: what they pass, how many they are, and what they leave unsaid.

mod echo;

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use echo::{Apart, alone_for, check_calls};
use tollfree_layout::frame::{control, events};
use tollfree_layout::handshake::{feature, kind};
use tollfree_layout::limits;
use tollfree_region::closing_count;
use tollfree_testkit::{Door, Frame, HostilePeer, LingeringSocket, SilentFile};
use tollfree_transport::*;
use zerocopy::IntoBytes;

/// Longest that anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits for something that a runtime which stands still would never give.
async fn at_last<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what}: held up"))
}

/// All the ways in which a client can pass a descriptor that is of no use. Each one is left as soon as it was sent.
fn pass_in_every_way(path: &Path, given: BorrowedFd<'_>) {
    let hello = || Door::hello(kind::HELLO, limits::RING_LEN_DEFAULT);
    // For a region; with more of them than anybody may send; and where nobody asks for any.
    Door::knock(path).unwrap().send(hello().as_bytes(), &[given]).unwrap();
    Door::knock(path).unwrap().send(hello().as_bytes(), &[given; 6]).unwrap();
    let early = Door::knock(path).unwrap();
    early.send(b"HTTP", &[given]).unwrap();
    let _ = early.send(b"more", &[given]);
    // For a doorbell, which is the first thing to come.
    let with_doorbell = Door::knock(path).unwrap();
    let _ =
        with_doorbell.enter(|hello| hello.features = feature::DOORBELL.into()).unwrap().send_fds(&[given]);
    // For a payload area.
    let mut peer = HostilePeer::client(path).unwrap();
    let _ = peer.send_fds(&[given]);
    let offer = Frame::new(events::CONTROL, 0, 0).code(control::AREA_OFFER);
    let _ = peer.send(&offer.chunk_len(limits::AREA_LEN_MIN as u32));
    let _ = peer.door().wait_for_hang_up();
    // For nothing, and left where it lies.
    let mut peer = HostilePeer::client(path).unwrap();
    let _ = peer.send_fds(&[given]);
    let _ = peer.send_fds(&[given; 3]);
}

#[test]
fn descriptors_that_never_answer_hold_up_nobody() {
    // One thread for all sessions: whatever holds it up holds up everybody.
    let server = Apart::start(Config::default());
    alone_for(300, async {
        let path = server.echo().path();
        let honest = server.echo().connect().await;
        check_calls(&honest, 3).await;
        let file = SilentFile::open();
        if let Err(error) = &file {
            println!("skipped the file system of one's own: {error}");
        }
        let socket = LingeringSocket::open().unwrap();
        let mut given = vec![socket.as_fd()];
        given.extend(file.as_ref().ok().map(SilentFile::as_fd));
        for given in given {
            tokio::task::block_in_place(|| pass_in_every_way(&path, given));
            at_last("calls of others", check_calls(&honest, 10)).await;
            let newcomer = at_last("a newcomer", server.echo().connect()).await;
            at_last("a newcomer's calls", check_calls(&newcomer, 3)).await;
        }
        if let Ok(file) = file {
            until("some of them wait for the file system", || closing_count() > 0).await;
            // More than there are places for: nobody is let in who may bring more, and those who are in notice nothing.
            let door = Door::knock(&path).unwrap();
            door.send(b"TOLLFREE", &[file.as_fd(); 200]).unwrap();
            until("too many wait", || closing_count() >= tollfree_region::CLOSING_COUNT_MAX).await;
            at_last("calls of others", check_calls(&honest, 10)).await;
            let impatient = Config { handshake_timeout: Duration::from_millis(200), ..Config::default() };
            let error = Attachment::connect(&server.echo().address, &impatient).await.unwrap_err();
            assert!(error.kind.is_transient(), "{error}");
            drop(file);
        }
        drop(socket);
        until("all are closed", || closing_count() == 0).await;
        let newcomer = at_last("a newcomer", server.echo().connect()).await;
        at_last("its calls", check_calls(&newcomer, 3)).await;
        at_last("calls of others", check_calls(&honest, 3)).await;
    });
}
