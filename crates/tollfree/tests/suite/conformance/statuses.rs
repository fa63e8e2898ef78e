//! How calls end: code, message, details; before, within and after messages.

use crate::stubs::probe::{Ask, Fault};
use tonic::Code;

use super::lab::{Lab, Way};

fn fault(code: i32, message: &str, details: &[u8]) -> Option<Fault> {
    Some(Fault { code, message: message.into(), details: details.to_vec(), panic: false })
}

const MESSAGES: [&str; 7] = [
    "",
    "plain",
    "50% of “ünïcödé” 漢字 🚗",
    "line\nbreak\tand\u{7f}control",
    "%41 is not A",
    " leading and trailing ",
    "\"quoted\", with; separators",
];

async fn codes_messages_and_details_arrive(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    for code in 1..=16 {
        let message = MESSAGES[code as usize % MESSAGES.len()];
        let details: Vec<u8> = (0..code as u8 * 7).collect();
        let ask = Ask { fault: fault(code, message, &details), ..Ask::default() };
        let status = client.unary(ask.clone()).await.unwrap_err();
        assert_eq!(status.code(), Code::from_i32(code));
        assert_eq!(status.message(), message);
        assert_eq!(status.details(), &details[..]);
        let status = client.down(ask).await.unwrap().into_inner().message().await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::from_i32(code), message));
        assert_eq!(status.details(), &details[..]);
    }
}

async fn an_error_may_follow_messages(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    for lens in [vec![1], vec![70_000, 5], vec![1 << 20]] {
        let count = lens.len();
        let ask = Ask { lens, fault: fault(13, "then it broke", b"d"), ..Ask::default() };
        let mut stream = client.down(ask).await.unwrap().into_inner();
        for _ in 0..count {
            stream.message().await.unwrap().unwrap();
        }
        let status = stream.message().await.unwrap_err();
        assert_eq!(
            (status.code(), status.message(), status.details()),
            (Code::Internal, "then it broke", &b"d"[..])
        );
        assert!(stream.message().await.unwrap().is_none(), "an error comes once");
    }
}

async fn an_error_may_come_instead_of_a_stream(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    let ask = Ask { early: true, fault: fault(7, "no", b""), ..Ask::default() };
    let status = client.down(ask).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::PermissionDenied, "no"));
}

async fn an_error_may_come_while_requests_are_still_sent(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    let asks = (0..5000u32).map(|number| Ask {
        body: vec![1; 500],
        fault: if number == 100 { fault(11, "one hundred", b"") } else { None },
        ..Ask::default()
    });
    let status = client.up(tokio_stream::iter(asks)).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::OutOfRange, "one hundred"));
}

async fn a_panicking_handler_harms_only_its_call(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    let panic = Some(Fault { panic: true, ..Fault::default() });
    let status = client.unary(Ask { fault: panic.clone(), ..Ask::default() }).await.unwrap_err();
    let expect = |status: &tonic::Status| {
        if way.is_ours() {
            assert_eq!(status.code(), Code::Internal, "{status}");
        }
    };
    expect(&status);
    let ask = Ask { lens: vec![3], fault: panic.clone(), pause_ms: 1, ..Ask::default() };
    // tonic's own server loses the whole connection here, the message before the panic included.
    let streamed = match client.down(ask).await {
        Ok(response) => {
            let mut stream = response.into_inner();
            match stream.message().await {
                Ok(_) => stream.message().await.unwrap_err(),
                Err(status) => status,
            }
        }
        Err(status) => status,
    };
    expect(&streamed);
    let status = client.up(tokio_stream::iter([Ask { fault: panic, ..Ask::default() }])).await.unwrap_err();
    expect(&status);
    assert!(client.unary(Ask::default()).await.is_ok(), "other calls go on");
}

crate::rows!(
    codes_messages_and_details_arrive,
    an_error_may_follow_messages,
    an_error_may_come_instead_of_a_stream,
    an_error_may_come_while_requests_are_still_sent,
    a_panicking_handler_harms_only_its_call,
);
