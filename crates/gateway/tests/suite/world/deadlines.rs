//! A call with a deadline waits no longer than that, whatever it waits for.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tollfree_driver_tokio::now_ns;
use tollfree_stubs::probe::Ask;
use tonic::Code;

use super::lab::{Lab, PATIENCE, PROBE};
use super::raw::{self, Deed, backend_connection};

/// Nobody who waits for this long is answered before the test is over.
const FOR_EVER: &str = "limits.attach_wait_ms = 6000000\n";

/// A call of the world by HTTP/2 alone, which has no time of its own to end at. Its code and words.
async fn call(lab: &Lab, path: &str, timeout: &str) -> (Code, String) {
    let stream = TcpStream::connect(lab.socket_address()).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let request = http::Request::post(format!("http://localhost/{path}"))
        .header("content-type", "application/grpc")
        .header("grpc-timeout", timeout)
        .body(())
        .unwrap();
    let (answer, mut body) = client.send_request(request, false).unwrap();
    body.send_data(Bytes::from_static(&[0; 5]), true).unwrap();
    let answer = tokio::time::timeout(PATIENCE, answer).await.expect("it is answered in time").unwrap();
    let text = |name: &str| answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let code = text("grpc-status").expect("it has failed").parse::<i32>().unwrap();
    (Code::from_i32(code), text("grpc-message").unwrap_or_default())
}

/// The service is known, the gateway is new, or all backend connections are busy.
#[tokio::test]
async fn a_call_of_the_world_waits_for_a_backend_connection_until_its_deadline() {
    let lab = Lab::start(&format!("{FOR_EVER}[groups.later]\nservices = [\"{PROBE}\"]\n")).await;
    for path in [format!("{PROBE}/Unary"), "a.Nobody/Knows".to_owned()] {
        let (code, words) = call(&lab, &path, "200m").await;
        assert_eq!(code, Code::DeadlineExceeded, "{path}: {words}");
    }
    assert_eq!(lab.refused("late").await, 2.0);
    let busy = Lab::start("load_balancing.depth = 1\n").await;
    let attached = busy.attach("default").await;
    let mut first = busy.client().await;
    let first = tokio::spawn(async move { first.unary(Ask { wait_ms: 1, ..Ask::default() }).await });
    let begun = Instant::now();
    while attached.probe.live.load(Ordering::SeqCst) == 0 {
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (code, words) = call(&busy, &format!("{PROBE}/Unary"), "200m").await;
    assert_eq!(code, Code::DeadlineExceeded, "{words}");
    attached.probe.gate.notify_one();
    first.await.unwrap().unwrap();
}

/// Also where somebody is attached who would answer at once, and for the gateway's own service.
#[tokio::test]
async fn a_call_of_the_world_without_time_or_with_a_timeout_that_is_none_goes_to_nobody() {
    let lab = Lab::start("").await;
    let attached = lab.attach("default").await;
    for path in [format!("{PROBE}/Unary"), "grpc.health.v1.Health/Check".to_owned()] {
        for timeout in ["0n", "0H"] {
            assert_eq!(call(&lab, &path, timeout).await.0, Code::DeadlineExceeded, "{path} {timeout}");
        }
        for timeout in ["123456789S", "-1S", "1", "S", "1x"] {
            let (code, words) = call(&lab, &path, timeout).await;
            assert_eq!(code, Code::InvalidArgument, "{path} {timeout}: {words}");
            assert!(words.contains(timeout), "{words}");
        }
    }
    assert_eq!((lab.refused("late").await, lab.refused("timeout").await), (4.0, 10.0));
    assert_eq!(attached.probe.begun.load(Ordering::SeqCst), 0);
}

/// The session says that nothing is left, or the headers say by themselves what no client of ours would.
#[tokio::test]
async fn a_call_by_way_of_the_gateway_without_time_goes_to_nobody() {
    let lab = Lab::start("[groups.default]\nvia = [\"group:default\"]\n").await;
    let attached = lab.attach("default").await;
    let session = raw::via(&lab, "group:default").await;
    let (code, words) = raw::call(&session, "Unary", Bytes::new(), Vec::new(), 1).await;
    assert_eq!(code, Code::DeadlineExceeded, "{words}");
    for (timeout, expected) in [("-1S", Code::InvalidArgument), ("0n", Code::DeadlineExceeded)] {
        let block = raw::pairs(1, "grpc-timeout", timeout.as_bytes());
        let (code, words) = raw::call(&session, "Unary", block, Vec::new(), 0).await;
        assert_eq!(code, expected, "{timeout}: {words}");
    }
    assert_eq!(attached.probe.begun.load(Ordering::SeqCst), 0);
}

/// For a backend connection, and for a server elsewhere that says nothing; nothing of the call is left then.
#[tokio::test]
async fn a_call_by_way_of_the_gateway_waits_until_its_deadline() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("http://{}", silent.local_addr().unwrap());
    let lab = Lab::start(&format!(
        "{FOR_EVER}[groups.later]\nservices = [\"{PROBE}\"]\n[groups.default]\nvia = [\"{target}\"]\n"
    ))
    .await;
    for to in ["group:later", &target] {
        let session = raw::via(&lab, to).await;
        let until = now_ns() + 200_000_000;
        let (code, words) = raw::call(&session, "Unary", Bytes::new(), Vec::new(), until).await;
        assert_eq!(code, Code::DeadlineExceeded, "{to}: {words}");
    }
    for group in ["later", "default"] {
        let calls = format!("tollfree_gateway_egress_calls{{group=\"{group}\"}}");
        lab.until_figure(&calls, |count| count == 0.0).await;
    }
}

/// Who gives up while it waits leaves its place to others.
#[tokio::test]
async fn a_call_that_is_cancelled_while_it_waits_gives_its_place_up() {
    let lab = Lab::start("load_balancing = { depth = 1, waiting = 1 }\n").await;
    let _backend_connection = backend_connection(&lab, "default", |_| Deed::Nothing).await;
    let waiting = "tollfree_gateway_waiting{group=\"default\",policy=\"least_outstanding\"}";
    let client = lab.client().await;
    let spawn = || {
        let mut client = client.clone();
        tokio::spawn(async move { client.unary(Ask::default()).await })
    };
    let first = spawn();
    lab.until_figure("tollfree_gateway_outstanding{group=\"default\"}", |count| count == 1.0).await;
    for _ in 0..3 {
        let second = spawn();
        lab.until_figure(waiting, |count| count == 1.0).await;
        second.abort();
        lab.until_figure(waiting, |count| count == 0.0).await;
    }
    first.abort();
}
