//! What a gateway sees of a backend's work: which backends take what is there for them.

use std::time::Duration;

use tollfree::WaitPolicy;
use tollfree::gateway::{Attached, Dispatch, PeerActivity};
use tollfree_testkit::Process;

use super::{Place, client, in_time, next_attached, server, start_server, until};
use crate::stubs::probe::Ask;

fn activity(attached: &Attached) -> PeerActivity {
    attached.activity().expect("it is open, and of this host")
}

/// However it waits, and however long its handlers take: all that was sent was taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_with_a_long_call_has_taken_it() {
    for wait in [WaitPolicy::Adaptive, WaitPolicy::LowLatency, WaitPolicy::Poll, WaitPolicy::Park] {
        let place = Place::new();
        let mut backend_listener = place.backend_listener().await;
        let (server, witness) = server();
        let serving = tokio::spawn(server.wait(wait).attach(place.uri()).into_future());
        let attached = next_attached(&mut backend_listener).await;
        let mut called = client(&attached);
        in_time("an answer", called.unary(Ask::default())).await.unwrap();
        let held =
            tokio::spawn(async move { called.unary(Ask { wait_ms: 600_000, ..Ask::default() }).await });
        until("the call is under way", || witness.live() == 1).await;
        until(&format!("{wait:?}: nothing is due"), || !activity(&attached).is_due).await;
        held.abort();
        until("it is cancelled", || witness.live() == 0).await;
        serving.abort();
    }
}

/// A process that is stopped stands still with what it was sent, until it goes on. What was not sent to it is withdrawn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_backend_stands_still_and_gives_back_calls_that_were_not_sent() {
    let place = Place::new();
    let mut backend_listener = place.backend_listener().await;
    let child: Process = start_server(&place, "orders");
    let attached = next_attached(&mut backend_listener).await;
    let mut called = client(&attached);
    in_time("an answer", called.unary(Ask::default())).await.unwrap();
    until("nothing is due", || !activity(&attached).is_due).await;

    child.signal(rustix::process::Signal::STOP);
    // As many as it takes at once, and one that has to wait.
    let calls: Vec<_> = (0..attached.call_count_max())
        .map(|_| {
            let mut called = called.clone();
            tokio::spawn(async move { called.unary(Ask::default()).await })
        })
        .collect();
    until("they are sent, or wait for room", || attached.live_count() > 0 && activity(&attached).is_due)
        .await;
    let before = activity(&attached);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let now = activity(&attached);
    assert!(now.is_due && now.stands_still_since(&before), "{before:?}, {now:?}");

    let request = || {
        let request = http::Request::post("/tollfree.probe.v1.Probe/Unary");
        let request = request.header("content-type", "application/grpc");
        Dispatch::new(request.body(tonic::body::Body::empty()).unwrap())
    };
    let mut dispatch = request();
    let withdrawn = tokio::time::sleep(Duration::from_millis(20));
    let given_back = in_time("it is given back", attached.hand_unless(&mut dispatch, withdrawn)).await;
    assert!(given_back.unwrap_err().may_fail_over);

    child.signal(rustix::process::Signal::CONT);
    for call in calls {
        in_time("an answer", call).await.unwrap().unwrap();
    }
    until("nothing is due", || !activity(&attached).is_due).await;
    assert!(!activity(&attached).stands_still_since(&now));
}
