//! Payload areas as a peer sees them that keeps the rules by hand: what it may rely on while calls come and go.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use tollfree_driver_tokio::*;
use tollfree_layout::frame::{FrameHead, control, events, flags};
use tollfree_layout::limits::AREA_LEN_MIN;
use tollfree_layout::record::line_count;
use tollfree_region::Region;
use tollfree_testkit::{Frame, HostilePeer};
use zerocopy::FromBytes;

use crate::echo::{self, alone_for};

/// A machine under load may take this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client that counts the lines of what it has published.
struct Client {
    peer: HostilePeer,
    published: u64,
}

impl Client {
    fn send(&mut self, frame: &Frame) {
        self.published += line_count(frame.record().len()) as u64;
        self.peer.send(frame).unwrap();
    }

    /// Waits for a frame of the server's, and passes over all others.
    fn wait_for(&mut self, wanted: u8, code: u16) {
        let began = Instant::now();
        loop {
            if let Some(record) = self.peer.try_read() {
                let (head, _) = FrameHead::read_from_prefix(&record).unwrap();
                if head.events == wanted && head.code.get() == code {
                    return;
                }
            }
            assert!(!self.peer.door().is_closed(), "the server has hung up");
            assert!(began.elapsed() < PATIENCE, "no frame with events {wanted:#x} and code {code}");
            std::thread::yield_now();
        }
    }
}

/// Three chunks in an area, for a call that has ended at the server. The client may wait for their room and send nothing else
/// before it has come, so that nobody but the server can go on.
#[test]
fn room_in_an_area_comes_back_though_the_call_has_ended() {
    alone_for(150, async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("areas.sock");
        let mut listener = Listener::bind(&Address::Path(path.clone()), Config::default()).unwrap();
        tokio::spawn(async move {
            let attachment = listener.accept().await.unwrap();
            // Each call is let go of at once: the client hears that it is cancelled.
            while let Ok(call) = echo::accept(&attachment).await {
                drop(call);
            }
        });
        tokio::task::block_in_place(|| {
            let mut client = Client { peer: HostilePeer::client(&path).unwrap(), published: 0 };
            let area = Region::create("tollfree-test-area", AREA_LEN_MIN).unwrap();
            client.peer.send_fds(&[area.fd().as_fd()]).unwrap();
            let offer = Frame::new(events::CONTROL, 0, 0).code(control::AREA_OFFER);
            client.send(&offer.chunk_len(AREA_LEN_MIN as u32));
            client.wait_for(events::CONTROL, control::AREA_ACCEPT);
            client.send(&Frame::new(events::HEADERS, flags::NAMES_METHOD, 1).headers(&[2, 0, b'/', b'a']));
            client.wait_for(events::CANCEL, 1);
            for chunk in 0..3u64 {
                let whole = flags::FIRST | flags::LAST | flags::IN_AREA;
                let frame = Frame::new(events::MESSAGE, whole, 1).chunk_len(100).message_len(100);
                client.send(&frame.bytes(&[0; 8]).bytes(&(chunk * 128).to_le_bytes()));
            }
            let began = Instant::now();
            while client.peer.consumed() < client.published {
                assert!(!client.peer.door().is_closed(), "the server has hung up");
                let (consumed, published) = (client.peer.consumed(), client.published);
                assert!(began.elapsed() < PATIENCE, "{consumed} lines of {published} are released");
                std::thread::yield_now();
            }
        });
    });
}
