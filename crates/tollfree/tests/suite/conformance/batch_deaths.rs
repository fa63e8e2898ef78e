//! A peer that dies in the middle of a batch: what was in whole records comes, and then an error, never an end.

use prost::Message;
use tollfree_layout::frame::{events, flags};
use tollfree_layout::metadata;
use tollfree_testkit::{Frame, HostilePeer};
use tonic::Code;

use super::carrier::connect;
use super::lab::{Lab, Way, in_time, until};
use super::peers::start_child;
use super::probe::pattern;
use crate::stubs::probe::Ask;
use crate::stubs::probe::probe_client::ProbeClient;

const COUNT: usize = 100;

#[tokio::test]
async fn answers_of_a_server_that_died_come_and_then_an_error() {
    in_time(async {
        let directory = tempfile::tempdir().unwrap();
        let uri = format!("shm://{}", directory.path().join("s.sock").display());
        let mut child = start_child(&uri);
        let mut client = ProbeClient::new(connect(Way::Shm, &uri).await);
        let (more, rest) = tokio::sync::mpsc::channel(1);
        more.send(Ask { lens: vec![10; COUNT], ..Ask::default() }).await.unwrap();
        let rest = tokio_stream::wrappers::ReceiverStream::new(rest);
        let mut answers = client.both(rest).await.unwrap().into_inner();
        let mut number = 0;
        let mut next = async |answers: &mut tonic::Streaming<_>| {
            let answer: crate::stubs::probe::Answer = answers.message().await?.expect("cut off, not ended");
            assert!(answer.body == pattern(10, number), "answer {number} comes in its turn");
            number += 1;
            Ok::<_, tonic::Status>(number as usize)
        };
        for _ in 0..3 {
            next(&mut answers).await.unwrap();
        }
        // The server's only thread has said all that was at hand before it answers these.
        for _ in 0..2 {
            client.unary(Ask::default()).await.unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // The session has ended before anybody reads on.
        let status = client.unary(Ask::default()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        let mut count = 3;
        let status = loop {
            match next(&mut answers).await {
                Ok(number) => count = number,
                Err(status) => break status,
            }
        };
        assert_eq!(count, COUNT, "all that was published came");
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        drop(more);
    })
    .await;
}

fn framed(ask: &Ask) -> Vec<u8> {
    let message = ask.encode_to_vec();
    [&[0][..], &(message.len() as u32).to_be_bytes(), &message].concat()
}

#[tokio::test]
async fn asks_of_a_client_that_died_come_and_then_an_error() {
    in_time(async {
        let lab = Lab::start(Way::Shm).await;
        let path = std::path::PathBuf::from(lab.uri.strip_prefix("shm://").unwrap());
        for (round, method) in ["Up", "Both"].into_iter().enumerate() {
            let read = lab.witness.read();
            let entering = {
                let path = path.clone();
                tokio::task::spawn_blocking(move || HostilePeer::client(&path).unwrap())
            };
            let mut peer = entering.await.unwrap();
            let name = format!("/tollfree.probe.v1.Probe/{method}");
            let mut block = (name.len() as u16).to_le_bytes().to_vec();
            block.extend_from_slice(name.as_bytes());
            // A task of its own reads the request, so that nothing but its end ends it.
            metadata::pack(&mut block, "x-aside", b"1").unwrap();
            let whole = flags::FIRST | flags::LAST;
            let ask = Ask { body: vec![7; 10], ..Ask::default() };
            let message = ask.encode_to_vec();
            let opening = Frame::new(events::HEADERS | events::MESSAGE, whole | flags::NAMES_METHOD, 1)
                .headers(&block)
                .message_len(message.len() as u32)
                .chunk(&message);
            peer.send(&opening).unwrap();
            until("the handler reads", || lab.witness.read() == read + 1).await;
            let batch = Frame::new(events::MESSAGE, whole | flags::BATCH, 1)
                .message_len(COUNT as u32)
                .chunk(&framed(&ask).repeat(COUNT));
            peer.send(&batch).unwrap();
            // Before anybody has looked.
            drop(peer);
            until("the request has ended", || lab.witness.ends().len() > round).await;
            assert_eq!(
                lab.witness.read(),
                (round + 1) * (COUNT + 1),
                "{method}: all that was published came"
            );
            let end = lab.witness.ends()[round].expect("cut off, not ended");
            assert_eq!(end, Code::Unavailable, "{method}");
            until("no handler is left", || lab.witness.live() == 0).await;
        }
        assert!(lab.client().unary(Ask::default()).await.is_ok(), "others go on");
    })
    .await;
}
