//! Codes that are none, or can't be meant, by peers that speak the session's protocol by themselves.

use std::future::poll_fn;

use bytes::Bytes;
use prost::Message;
use tollfree::Server;
use tollfree_driver_tokio::{Attachment, Call, Config, Ending, Listener, Opening, Outgoing, OutgoingMessage};
use tollfree_layout::metadata::pack;
use tonic::Code;

use super::probe::{Probe, Witness};
use super::{connect, until};
use crate::stubs::probe::probe_client::ProbeClient;
use crate::stubs::probe::probe_server::ProbeServer;
use crate::stubs::probe::{Answer, Ask};

/// How such a server ends a call.
#[derive(Clone, Copy, Debug)]
enum Says {
    /// Nothing before it gives the call up.
    Cancel(u16),
    MessageThenCancel(u16),
    /// Headers that have a status, before it gives the call up.
    StatusThenCancel(u16),
    Trailers(u16),
    MessageThenTrailers(u16),
}

async fn emit(call: &Call, mut outgoing: Outgoing) {
    drop(poll_fn(|cx| call.stream.poll_send(cx, &mut outgoing)).await);
}

async fn end(call: Call, says: Says) {
    let answer = Answer { body: b"answer".to_vec(), ..Answer::default() }.encode_to_vec();
    let message = || Some(OutgoingMessage::new(Bytes::from(answer), false));
    let trailers = |code| Some(Ending::Trailers { code, block: Bytes::new() });
    match says {
        Says::Cancel(code) => call.stream.cancel(code),
        Says::MessageThenCancel(code) => {
            let headers = Some(Bytes::new());
            emit(&call, Outgoing { headers, message: message(), ending: None }).await;
            call.stream.cancel(code);
        }
        Says::StatusThenCancel(code) => {
            let mut block = Vec::new();
            pack(&mut block, "grpc-status", b"0").unwrap();
            emit(&call, Outgoing { headers: Some(block.into()), ..Outgoing::default() }).await;
            call.stream.cancel(code);
        }
        Says::Trailers(code) => emit(&call, Outgoing { ending: trailers(code), ..Outgoing::default() }).await,
        Says::MessageThenTrailers(code) => {
            let headers = Some(Bytes::new());
            emit(&call, Outgoing { headers, message: message(), ending: trailers(code) }).await;
        }
    }
}

/// A server of two calls.
async fn serve(mut listener: Listener, says: Says) {
    let attachment = listener.accept().await.unwrap();
    for _ in 0..2 {
        let mut place = None;
        poll_fn(|cx| attachment.poll_accept(cx, &mut place)).await.unwrap();
        end(place.unwrap().into_call(true), says).await;
    }
    // Until the client has gone.
    let mut place = None;
    drop(poll_fn(|cx| attachment.poll_accept(cx, &mut place)).await);
}

#[tokio::test]
async fn a_code_of_a_server_that_cant_be_one_is_unknown() {
    let directory = tempfile::tempdir().unwrap();
    let uri = format!("shm://{}", directory.path().join("s.sock").display());
    let mut rows = vec![(Says::Trailers(5), Code::NotFound), (Says::Cancel(8), Code::ResourceExhausted)];
    for code in [0, 17, 4711, u16::MAX] {
        rows.extend(
            [Says::Cancel(code), Says::MessageThenCancel(code), Says::StatusThenCancel(code)]
                .map(|says| (says, Code::Unknown)),
        );
        if code != 0 {
            rows.extend(
                [Says::Trailers(code), Says::MessageThenTrailers(code)].map(|says| (says, Code::Unknown)),
            );
        }
    }
    for (says, expected) in rows {
        let listener = Listener::bind(&uri.parse().unwrap(), Config::default()).unwrap();
        let server = tokio::spawn(serve(listener, says));
        let mut client = ProbeClient::new(connect(&uri).await);
        let unary = client.unary(Ask::default()).await.expect_err("it is no answer");
        let streamed = async {
            let mut answers = client.down(Ask::default()).await?.into_inner();
            while answers.message().await?.is_some() {}
            Ok::<_, tonic::Status>(())
        };
        let streamed = streamed.await.expect_err("it is not complete");
        assert_eq!([unary.code(), streamed.code()], [expected; 2], "{says:?}: {unary}; {streamed}");
        drop(client);
        server.await.unwrap();
    }
}

#[tokio::test]
async fn a_handler_reads_why_its_client_has_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let uri = format!("shm://{}", directory.path().join("s.sock").display());
    let witness = Witness::default();
    let server = Server::builder().add_service(ProbeServer::new(Probe::new(witness.clone())));
    let serving = tokio::spawn(server.serve(uri.clone()));
    drop(connect(&uri).await);
    let attachment = Attachment::connect(&uri.parse().unwrap(), &Config::default()).await.unwrap();
    for (count, (code, expected)) in [
        (0, Code::Unknown),
        (17, Code::Unknown),
        (u16::MAX, Code::Unknown),
        // tonic takes CANCELLED for an end.
        (1, Code::Aborted),
        (4, Code::DeadlineExceeded),
        (8, Code::ResourceExhausted),
    ]
    .into_iter()
    .enumerate()
    {
        let mut headers = Vec::new();
        pack(&mut headers, "x-aside", b"1").unwrap();
        let message = Some(OutgoingMessage::new(Ask::default().encode_to_vec().into(), false));
        let mut outgoing = Outgoing { headers: Some(headers.into()), message, ending: None };
        let opening = Opening { path: "/tollfree.probe.v1.Probe/Up", deadline_ns: 0 };
        let mut opener = attachment.open();
        let stream = poll_fn(|cx| opener.poll_open(cx, opening, &mut outgoing)).await.unwrap();
        until("the handler reads", || witness.read() == count + 1).await;
        stream.cancel(code);
        until("the end is read", || witness.ends().len() == count + 1).await;
        assert_eq!(witness.ends()[count], Some(expected), "{code}");
    }
    serving.abort();
}
