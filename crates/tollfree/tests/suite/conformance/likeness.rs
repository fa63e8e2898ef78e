//! What users of tonic would stumble over.

use crate::stubs::probe::{Ask, Fault};
use tonic::{Code, Request, Status};

use super::lab::{Lab, Way};

/// A status that must have lost something: its code is whole, and its text says so.
fn expect_short(status: &Status, code: i32, message: &str, details: &[u8]) {
    assert_eq!(status.code(), Code::from_i32(code), "{status}");
    let whole = message.chars().zip(status.message().chars()).take_while(|(sent, came)| sent == came).count();
    let rest: String = status.message().chars().skip(whole).collect();
    assert!(rest.starts_with(" [the client takes ") && rest.contains("left out"), "{rest}");
    assert!(status.details().is_empty() || status.details() == details);
}

async fn a_failed_calls_code_survives_whatever_its_status_holds(way: Way) {
    if !way.is_ours() {
        // Over HTTP/2 its own limits of header lists decide.
        return;
    }
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    let (long, wide) = ("long ".repeat(4_000), "漢字🚗".repeat(4_000));
    let statuses = [("no", 12_000), (&long, 0), (&wide, 10), ("no", 60_000), (&wide, 60_000)];
    for (idx, (message, details_len)) in statuses.into_iter().enumerate() {
        let (code, details) = (idx as i32 + 3, vec![idx as u8; details_len]);
        let fault = Fault { code, message: message.into(), details: details.clone(), panic: false };
        let ask = Ask { fault: Some(fault), ..Ask::default() };
        for _ in 0..3 {
            // The first is the method's first call; later ones may be answered where they are accepted.
            let status = client.unary(ask.clone()).await.unwrap_err();
            expect_short(&status, code, message, &details);
        }
        let streamed = Ask { lens: vec![3], ..ask };
        let mut stream = client.down(streamed).await.unwrap().into_inner();
        assert_eq!(stream.message().await.unwrap().unwrap().body.len(), 3);
        expect_short(&stream.message().await.unwrap_err(), code, message, &details);
    }
    let fault = Fault { code: 9, message: "both".into(), details: vec![1; 6_000], panic: false };
    let mut request = Request::new(Ask { fault: Some(fault), ..Ask::default() });
    request.metadata_mut().insert("x-trail-long", "m".repeat(10_000).parse().unwrap());
    let status = client.unary(request).await.unwrap_err();
    expect_short(&status, 9, "both", &[1; 6_000]);
    assert!(client.unary(Ask::default()).await.is_ok());
}

crate::rows!(a_failed_calls_code_survives_whatever_its_status_holds);
