//! Calls that end early: deadlines, dropped calls, dropped streams.

use std::time::{Duration, Instant};

use crate::stubs::probe::{Ask, Fault};
use tonic::{Code, Request};

use super::lab::{Lab, Way, until};

const SLOW: Duration = Duration::from_secs(3);

fn within<T>(message: T, millis: u64) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(Duration::from_millis(millis));
    request
}

/// tonic's own channel says CANCELLED where gRPC's word is DEADLINE_EXCEEDED.
fn expect_timeout(way: Way, status: &tonic::Status) {
    if way.is_ours() {
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    } else {
        assert!(matches!(status.code(), Code::Cancelled | Code::DeadlineExceeded), "{status}");
    }
}

async fn a_timeout_ends_a_call_on_both_sides(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    let began = Instant::now();
    let slow = Ask { wait_ms: 10_000, ..Ask::default() };
    let status = client.unary(within(slow, 50)).await.unwrap_err();
    let took = began.elapsed();
    expect_timeout(way, &status);
    assert!(took >= Duration::from_millis(50) && took < SLOW, "{took:?}");
    until("the handler is dropped", || lab.witness.begun() == 1 && lab.witness.live() == 0).await;
    assert!(client.unary(within(Ask::default(), 5_000)).await.is_ok());
}

/// A call of each kind with a `grpc-timeout` of its own; what each ends with.
async fn of_each_kind(lab: &Lab, timeout: &str) -> Vec<tonic::Status> {
    fn asking<T>(message: T, timeout: &str) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("grpc-timeout", timeout.parse().unwrap());
        request
    }
    let mut client = lab.client();
    let asks = || tokio_stream::iter(vec![Ask::default(); 2]);
    let one = Ask { lens: vec![1], ..Ask::default() };
    let unary = client.unary(asking(Ask::default(), timeout)).await.err();
    let up = client.up(asking(asks(), timeout)).await.err();
    let down = match client.down(asking(one, timeout)).await {
        Ok(mut answers) => answers.get_mut().message().await.err(),
        Err(status) => Some(status),
    };
    let both = match client.both(asking(asks(), timeout)).await {
        Ok(mut answers) => answers.get_mut().message().await.err(),
        Err(status) => Some(status),
    };
    let ok = || tonic::Status::ok("");
    [unary, up, down, both].map(|failed| failed.unwrap_or_else(ok)).into()
}

async fn a_call_without_any_time_ends_with_the_deadlines_status(way: Way) {
    // tonic's own transport answers some of them.
    if !way.is_ours() {
        return;
    }
    let lab = Lab::start(way).await;
    // Of a method that is quick, too, which may be answered on a shorter way.
    for _ in 0..50 {
        lab.client().unary(Ask::default()).await.unwrap();
    }
    let begun = lab.witness.begun();
    for timeout in ["0n", "0S", "00000000H"] {
        for status in of_each_kind(&lab, timeout).await {
            expect_timeout(if super::carrier::IS_HTTP2 { Way::Http2 } else { way }, &status);
        }
    }
    assert_eq!(lab.witness.begun(), begun, "no handler began");
}

async fn a_timeout_that_is_none_is_refused(way: Way) {
    // tonic gives such a call no limit.
    if !way.is_ours() {
        return;
    }
    let lab = Lab::start(way).await;
    for timeout in ["123456789S", "-1S", "+1S", "1", "S", "1s", "soon"] {
        for status in of_each_kind(&lab, timeout).await {
            assert_eq!(status.code(), Code::InvalidArgument, "{timeout}: {status}");
            assert!(status.message().contains(timeout), "{status}");
        }
    }
    assert_eq!(lab.witness.begun(), 0, "no handler began");
}

async fn a_handler_sees_what_is_left_of_the_time(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    let answer = client.unary(within(Ask::default(), 60_000)).await.unwrap().into_inner();
    let timeout: Vec<_> =
        answer.headers.iter().filter_map(|line| line.strip_prefix("grpc-timeout: ")).collect();
    let [value] = timeout[..] else { panic!("one timeout, not {timeout:?}") };
    let (digits, unit) = value.split_at(value.len() - 1);
    let nanos: u64 = match unit {
        "n" => 1,
        "u" => 1_000,
        "m" => 1_000_000,
        "S" => 1_000_000_000,
        other => panic!("unit {other}"),
    };
    let left = Duration::from_nanos(digits.parse::<u64>().unwrap() * nanos);
    // Clocks of two hosts are compared by a message, which takes its time.
    let late = if way == Way::Streamed { Duration::from_secs(5) } else { Duration::ZERO };
    assert!(left <= Duration::from_secs(60) + late && left > Duration::from_secs(50), "{left:?}");
    if way.is_ours() && way != Way::Streamed {
        assert!(left < Duration::from_secs(60), "what is left, not what was asked for");
    }
}

/// A method that was quick for a while: its calls may be answered on a shorter way, which must not show.
async fn after_quick_calls_any_other_ends_as_ever(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    let fault = |code, panic| Fault { code, message: "as asked".into(), panic, ..Fault::default() };
    for len in [10, 100_000, 1_000_000] {
        for _ in 0..50 {
            assert_eq!(client.unary(Ask::default()).await.unwrap().into_inner().seen_count, 1);
        }
        let waits = Ask { wait_ms: 5, ..Ask::default() };
        assert_eq!(client.unary(waits).await.unwrap().into_inner().seen_count, 1);
        let fails = Ask { fault: Some(fault(Code::NotFound as i32, false)), ..Ask::default() };
        assert_eq!(client.unary(fails).await.unwrap_err().code(), Code::NotFound);
        let large = Ask { lens: vec![len], ..Ask::default() };
        assert_eq!(client.unary(large).await.unwrap().into_inner().body.len(), len as usize);
        let long = Ask { body: vec![1; len as usize], ..Ask::default() };
        assert_eq!(client.unary(long).await.unwrap().into_inner().body.len(), len as usize);
        if way.is_ours() {
            let panics = Ask { fault: Some(fault(0, true)), ..Ask::default() };
            assert_eq!(client.unary(panics).await.unwrap_err().code(), Code::Internal);
        }
        let slow = Ask { wait_ms: 10_000, ..Ask::default() };
        expect_timeout(way, &client.unary(within(slow.clone(), 20)).await.unwrap_err());
        let given_up = tokio::time::timeout(Duration::from_millis(20), client.unary(slow)).await;
        assert!(given_up.is_err());
        until("no handler is left", || lab.witness.live() == 0).await;
    }
}

async fn a_dropped_call_drops_its_handler(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    let slow = Ask { wait_ms: 60_000, ..Ask::default() };
    for _ in 0..3 {
        let mut call = Box::pin(client.unary(slow.clone()));
        tokio::select! {
            _ = &mut call => panic!("it is slow"),
            () = until("the handler runs", || lab.witness.live() == 1) => {}
        }
        drop(call);
        until("the handler is dropped", || lab.witness.live() == 0).await;
    }
    assert!(client.unary(Ask::default()).await.is_ok());
}

async fn a_dropped_response_stream_drops_its_handler(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    let endless = Ask { lens: vec![1000; 100_000], pause_ms: 1, ..Ask::default() };
    let mut stream = client.down(endless).await.unwrap().into_inner();
    for _ in 0..3 {
        stream.message().await.unwrap().unwrap();
    }
    assert_eq!(lab.witness.live(), 1);
    drop(stream);
    until("the stream's source is dropped", || lab.witness.live() == 0).await;
    assert!(lab.witness.sent() < 3_000);
}

async fn a_dropped_call_with_a_request_stream_drops_both(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let asks = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let mut call = Box::pin(client.up(asks));
    let feed = async {
        for _ in 0..5 {
            sender.send(Ask { body: vec![1], ..Ask::default() }).await.unwrap();
        }
        until("the handler reads", || lab.witness.read() == 5).await;
    };
    tokio::select! {
        _ = &mut call => panic!("the request has not ended"),
        () = feed => {}
    }
    drop(call);
    until("the handler is dropped", || lab.witness.live() == 0).await;
    let gone = async { while sender.send(Ask::default()).await.is_ok() {} };
    tokio::time::timeout(SLOW, gone).await.expect("the request's source is dropped");
}

async fn a_request_stream_is_let_go_of_when_its_call_has_failed(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let asks = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let fault = Some(Fault { code: 3, message: "bad".into(), ..Fault::default() });
    sender.send(Ask { fault, ..Ask::default() }).await.unwrap();
    let mut stream = client.both(asks).await.unwrap().into_inner();
    let status = stream.message().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "bad"));
    let gone = async { while sender.send(Ask::default()).await.is_ok() {} };
    tokio::time::timeout(SLOW, gone).await.expect("the request's source is dropped");
    until("the handler is dropped", || lab.witness.live() == 0).await;
}

/// tonic's handle ends a request in the middle; the caller that waits for the response learns of it, and so does the handler.
async fn a_cancelled_request_ends_a_call_that_waits(way: Way) {
    let lab = Lab::start(way).await;
    for after_answer in [false, true] {
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let mut request = Request::new(tokio_stream::wrappers::ReceiverStream::new(receiver));
        let cancel = request.cancellation_handle();
        sender.send(Ask { lens: vec![1], ..Ask::default() }).await.unwrap();
        let mut client = lab.client();
        let status = if after_answer {
            let mut stream = client.both(request).await.unwrap().into_inner();
            assert_eq!(stream.message().await.unwrap().unwrap().body.len(), 1);
            let waiting = tokio::spawn(async move { stream.message().await });
            tokio::time::sleep(Duration::from_millis(10)).await;
            cancel.cancel();
            tokio::time::timeout(SLOW, waiting).await.expect("the reader is told").unwrap().unwrap_err()
        } else {
            let read = lab.witness.read();
            let waiting = tokio::spawn(async move { client.up(request).await });
            until("the handler reads", || lab.witness.read() > read).await;
            cancel.cancel();
            tokio::time::timeout(SLOW, waiting).await.expect("the caller is told").unwrap().unwrap_err()
        };
        assert_eq!(status.code(), Code::Cancelled, "{status}");
        until("the handler is dropped", || lab.witness.live() == 0).await;
        drop(sender);
    }
    assert!(lab.client().unary(Ask::default()).await.is_ok(), "the session lives");
}

crate::rows!(
    a_cancelled_request_ends_a_call_that_waits,
    a_timeout_ends_a_call_on_both_sides,
    a_call_without_any_time_ends_with_the_deadlines_status,
    a_timeout_that_is_none_is_refused,
    a_handler_sees_what_is_left_of_the_time,
    after_quick_calls_any_other_ends_as_ever,
    a_dropped_call_drops_its_handler,
    a_dropped_response_stream_drops_its_handler,
    a_dropped_call_with_a_request_stream_drops_both,
    a_request_stream_is_let_go_of_when_its_call_has_failed,
);

/// tonic's own timeout is over when the response's head is there; gRPC's deadline is for the whole call.
mod ours {
    use super::*;

    async fn stream_until_timeout(ask: Ask) {
        let lab = Lab::start(Way::Shm).await;
        let began = Instant::now();
        let status = match lab.client().down(within(ask, 50)).await {
            Ok(response) => {
                let mut stream = response.into_inner();
                loop {
                    match stream.message().await {
                        Ok(answer) => drop(answer.expect("endless")),
                        Err(status) => break status,
                    }
                }
            }
            // A machine so busy that the head took so long.
            Err(status) => status,
        };
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(50) && took < SLOW, "{took:?}");
        until("the source is dropped", || lab.witness.live() == 0).await;
    }

    #[tokio::test]
    async fn a_deadline_ends_a_quiet_stream() {
        stream_until_timeout(Ask { lens: vec![1; 100], pause_ms: 1_000, ..Ask::default() }).await;
    }

    #[tokio::test]
    async fn a_deadline_ends_a_busy_stream() {
        stream_until_timeout(Ask { lens: vec![1000; 500_000], ..Ask::default() }).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_deadline_ends_a_busy_stream_on_more_threads() {
        stream_until_timeout(Ask { lens: vec![1000; 500_000], ..Ask::default() }).await;
    }

    #[tokio::test]
    async fn a_deadline_ends_a_request_stream() {
        let lab = Lab::start(Way::Shm).await;
        let status = lab.client().up(within(tokio_stream::pending(), 50)).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        until("the handler is dropped", || lab.witness.begun() == 1 && lab.witness.live() == 0).await;
    }

    /// A message that can't be sent, long after the call has begun: the caller hears of it, and why.
    #[tokio::test]
    async fn a_request_that_fails_under_way_ends_the_call_with_its_reason() {
        let lab = Lab::start(Way::Shm).await;
        let mut client = lab.client().max_encoding_message_size(1_000);
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let asks = tokio_stream::wrappers::ReceiverStream::new(receiver);
        let waiting = tokio::spawn(async move { client.up(asks).await });
        sender.send(Ask::default()).await.unwrap();
        until("the handler reads", || lab.witness.read() == 1).await;
        sender.send(Ask { body: vec![1; 2_000], ..Ask::default() }).await.unwrap();
        let outcome = tokio::time::timeout(SLOW, waiting).await.expect("the caller is told").unwrap();
        let status = outcome.unwrap_err();
        assert_eq!(status.code(), Code::OutOfRange, "{status}");
        until("the handler is dropped", || lab.witness.live() == 0).await;
        assert!(lab.client().unary(Ask::default()).await.is_ok(), "the session lives");
    }

    #[tokio::test]
    async fn a_deadline_holds_while_nobody_reads_the_stream() {
        let lab = Lab::start(Way::Shm).await;
        let endless = Ask { lens: vec![10_000; 100_000], ..Ask::default() };
        let stream = lab.client().down(within(endless, 1_000)).await.unwrap().into_inner();
        until("the server ends it by itself", || lab.witness.live() == 0).await;
        drop(stream);
    }

    #[tokio::test]
    async fn a_channel_may_have_a_timeout_of_its_own() {
        let lab = Lab::start(Way::Shm).await;
        let channel =
            tollfree::Channel::builder(&*lab.uri).timeout(Duration::from_millis(50)).connect().await.unwrap();
        let mut client = crate::stubs::probe::probe_client::ProbeClient::new(channel);
        let slow = Ask { wait_ms: 60_000, ..Ask::default() };
        for asked in [None, Some(10), Some(30_000)] {
            let mut request = Request::new(slow.clone());
            if let Some(millis) = asked {
                request.set_timeout(Duration::from_millis(millis));
            }
            let began = Instant::now();
            let status = client.unary(request).await.unwrap_err();
            assert_eq!(status.code(), Code::DeadlineExceeded);
            assert!(began.elapsed() < SLOW);
        }
        assert!(client.unary(Ask::default()).await.is_ok());
        until("no handler is left", || lab.witness.live() == 0).await;
    }

    #[tokio::test]
    async fn no_time_at_all_is_too_little() {
        let lab = Lab::start(Way::Shm).await;
        let slow = Ask { wait_ms: 1_000, ..Ask::default() };
        let status = lab.client().unary(within(slow, 0)).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
    }
}
