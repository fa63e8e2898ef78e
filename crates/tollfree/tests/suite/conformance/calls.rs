//! The four kinds of calls, and what a handler sees of its caller.

use crate::stubs::probe::Ask;
use tokio_stream::StreamExt;
use tonic::{Code, Request};

use super::lab::{Lab, Way};

fn ask(body: &[u8]) -> Ask {
    Ask { body: body.to_vec(), ..Ask::default() }
}

async fn unary(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    for text in ["", "x", "hello"] {
        let answer = client.unary(ask(text.as_bytes())).await.unwrap().into_inner();
        assert_eq!((answer.body, answer.seen_count), (text.into(), 1));
    }
}

async fn server_streaming(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    let request = Ask { lens: (0..300).collect(), ..Ask::default() };
    let mut stream = client.down(request).await.unwrap().into_inner();
    for number in 0..300u32 {
        let answer = stream.message().await.unwrap().unwrap();
        assert_eq!(answer.body, super::probe::pattern(number as usize, number));
    }
    assert!(stream.message().await.unwrap().is_none());
    assert!(stream.trailers().await.unwrap().is_some());
    let empty = Ask { fault: Some(Default::default()), ..Ask::default() };
    let ended = client.down(empty).await.unwrap().into_inner().message().await;
    assert!(ended.is_ok(), "status OK without a message is no error: {ended:?}");
}

async fn client_streaming(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    for count in [0u32, 1, 2, 500] {
        let asks = tokio_stream::iter((0..count).map(|number| ask(&number.to_le_bytes())));
        let answer = client.up(asks).await.unwrap().into_inner();
        assert_eq!((answer.seen_count, answer.seen_len), (count, u64::from(count) * 4));
    }
}

async fn both_directions_take_turns(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let asks = tokio_stream::wrappers::ReceiverStream::new(receiver);
    // The headers must go out before the first message, or this would never end.
    let mut answers = client.both(asks).await.unwrap().into_inner();
    for number in 0..200u32 {
        sender.send(ask(&number.to_le_bytes())).await.unwrap();
        let answer = answers.message().await.unwrap().unwrap();
        assert_eq!(answer.body, number.to_le_bytes());
        assert_eq!(answer.seen_count, number + 1);
    }
    // Half-close: the handler sees the end of the requests, and still has the last word.
    drop(sender);
    assert!(answers.message().await.unwrap().is_none());
    assert!(answers.trailers().await.unwrap().is_some());
}

async fn half_close_leaves_answers_to_come(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    let request = Ask { lens: vec![10; 20], wait_ms: 20, ..Ask::default() };
    let answers = client.both(tokio_stream::iter([request.clone(), request])).await.unwrap();
    let got: Vec<_> = answers.into_inner().collect().await;
    assert_eq!(got.len(), 40);
    assert!(got.iter().all(Result::is_ok));
}

async fn a_handler_may_answer_before_it_has_read_everything(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    sender.send(Ask { early: true, ..ask(b"one") }).await.unwrap();
    let asks = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let answer = client.up(asks).await.unwrap().into_inner();
    assert_eq!(answer.seen_count, 1);
    // What the application goes on sending has nowhere to go, and that is noticed.
    let sending = async { while sender.send(ask(b"more")).await.is_ok() {} };
    tokio::time::timeout(std::time::Duration::from_secs(30), sending).await.expect("the body is let go of");
}

async fn a_handler_may_refuse_before_it_reads_anything(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    let asks = tokio_stream::iter((0..10_000u32).map(|number| ask(&number.to_le_bytes())));
    let mut request = Request::new(asks);
    request.metadata_mut().insert("x-refuse", "1".parse().unwrap());
    let status = client.up(request).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, "not one message read"));
}

async fn a_request_stream_may_outlive_the_first_answers(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    let asks = tokio_stream::iter((0..2000u32).map(|_| ask(&[7; 1000])));
    let answers = client.both(asks).await.unwrap().into_inner();
    let got: Vec<_> = answers.collect::<Result<Vec<_>, _>>().await.unwrap();
    assert_eq!(got.len(), 2000);
    assert!(got.iter().all(|answer| answer.body == [7; 1000]));
    assert_eq!(got[1999].seen_len, 2_000_000);
}

crate::rows!(
    unary,
    server_streaming,
    client_streaming,
    both_directions_take_turns,
    half_close_leaves_answers_to_come,
    a_handler_may_answer_before_it_has_read_everything,
    a_handler_may_refuse_before_it_reads_anything,
    a_request_stream_may_outlive_the_first_answers,
);
