//! The word that a segmented message was taken: it wakes nobody, and is heard nonetheless.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::runtime::Builder;
use tollfree_driver_tokio::*;
use tollfree_layout::control::Waiting;
use tollfree_layout::frame::{control, events, flags};
use tollfree_layout::handshake::feature;
use tollfree_layout::pool::POOL_ID_LEN;
use tollfree_testkit::{Door, Frame, TimeLimit};

use crate::echo::Echo;

const POOL: [u8; POOL_ID_LEN] = [7; POOL_ID_LEN];
const PATH: &str = "/test.Echo/Call";

fn config() -> Config {
    Config { pool: Some(POOL), ..Config::default() }
}

#[test]
fn a_segmented_message_that_was_taken_wakes_nobody_and_the_answer_does() {
    let _limit = TimeLimit::seconds(60);
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = runtime.block_on(async { Echo::start(config()) });
    let door = Door::knock(&server.path()).unwrap();
    let mut peer = door
        .enter(|hello| {
            hello.features = feature::POOL.into();
            hello.pool = POOL;
        })
        .unwrap();
    let path_len = (PATH.len() as u16).to_le_bytes();
    let opening = Frame::new(events::HEADERS, flags::NAMES_METHOD, 1);
    peer.send(&opening.headers(&path_len).headers(PATH.as_bytes())).unwrap();
    let asleep = Waiting::default().park(false);
    peer.say_waiting(asleep);
    let segmented = flags::FIRST | flags::LAST | flags::SEGMENTED;
    peer.send(&Frame::new(events::MESSAGE, segmented, 1).message_len(5).chunk(b"parts")).unwrap();
    let taken = peer.read().unwrap();
    assert_eq!(
        (taken[0], u16::from_le_bytes([taken[2], taken[3]])),
        (events::CONTROL, control::SEGMENTED_TAKEN)
    );
    // The same sleep again, of another epoch: a task that rings does so once for each.
    peer.say_waiting(asleep.unpark().park(false));
    peer.send(&Frame::new(events::HALF_CLOSE, 0, 1)).unwrap();
    while peer.read().unwrap()[0] & events::TRAILERS == 0 {}
    // A doorbell for the segmented message would be there by now, before that of the answer.
    std::thread::sleep(Duration::from_millis(50));
    let (rung, _) = peer.door().recv().unwrap();
    assert_eq!(rung.len(), 1, "doorbells");
}

#[test]
fn what_was_kept_for_a_segmented_message_is_let_go_of_though_nobody_waits_and_nobody_is_woken() {
    let _limit = TimeLimit::seconds(60);
    for policy in [WaitPolicy::Adaptive, WaitPolicy::Park] {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = Echo::start(Config { wait: policy, ..config() });
            let client =
                Attachment::connect(&server.address, &Config { wait: policy, ..config() }).await.unwrap();
            let kept = Arc::new(());
            let mut outgoing = Outgoing {
                headers: Some(Bytes::new()),
                message: Some(OutgoingMessage::segmented(
                    Bytes::from_static(b"parts"),
                    false,
                    Keep::new(kept.clone()),
                )),
                ending: None,
            };
            let opening = Opening { path: PATH, deadline_ns: 0 };
            let mut opener = client.open();
            // The call never ends, and this side never asks how it goes.
            let _stream = poll_fn(|cx| opener.poll_open(cx, opening, &mut outgoing)).await.unwrap();
            assert!(outgoing.is_empty() && client.segmented_messages_in_flight() == 1);
            let began = Instant::now();
            while Arc::strong_count(&kept) > 1 {
                assert!(began.elapsed() < Duration::from_secs(20), "{policy:?}: kept");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
    }
}
