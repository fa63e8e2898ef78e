//! Streams that are cut on their way, and codes that can't be one: nobody takes half a stream for a whole one.

use std::future::poll_fn;

use bytes::Bytes;
use prost::Message as _;
use tollfree_driver_tokio::{Attachment, Config, Ending, Outgoing, OutgoingMessage, Registration};
use tollfree_layout::metadata::pack;
use tollfree_stubs::probe::{Answer, Ask};
use tonic::{Code, Status};

use super::egress::via;
use super::lab::{Lab, PROBE, backend_connections_of};

/// How a backend connection ends a call after a message of its answer.
#[derive(Clone, Copy, Debug)]
enum Says {
    Cancel(u16),
    /// And a status among its headers, as if the call had ended well with them.
    StatusThenCancel(u16),
    Trailers(u16),
}

/// A backend connection of the default group that speaks the session's protocol by itself.
async fn backend_connection(lab: &Lab, says: Vec<Says>) -> tokio::task::JoinHandle<()> {
    let registration = Registration::new("default", vec![PROBE.to_owned()]).unwrap();
    let address = lab.backends().parse().unwrap();
    let attachment = Attachment::attach(&address, &Config::default(), registration).await.unwrap();
    let task = tokio::spawn(async move {
        for says in says {
            let mut place = None;
            if poll_fn(|cx| attachment.poll_accept(cx, &mut place)).await.is_err() {
                return;
            }
            let call = place.unwrap().into_call(true);
            let answer = Answer { body: b"answer".to_vec(), ..Answer::default() }.encode_to_vec();
            let ending = match says {
                Says::Cancel(_) | Says::StatusThenCancel(_) => None,
                Says::Trailers(code) => Some(Ending::Trailers { code, block: Bytes::new() }),
            };
            let message = Some(OutgoingMessage::new(answer.into(), false));
            let mut headers = Vec::new();
            if let Says::StatusThenCancel(_) = says {
                pack(&mut headers, "grpc-status", b"0").unwrap();
            }
            let mut outgoing = Outgoing { headers: Some(headers.into()), message, ending };
            poll_fn(|cx| call.stream.poll_send(cx, &mut outgoing)).await.unwrap();
            if let Says::StatusThenCancel(_) = says {
                // CANCEL drops what nobody has read before it comes.
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            if let Says::Cancel(code) | Says::StatusThenCancel(code) = says {
                call.stream.cancel(code);
            }
        }
        let mut place = None;
        drop(poll_fn(|cx| attachment.poll_accept(cx, &mut place)).await);
    });
    lab.until_figure(&backend_connections_of("default"), |count| count == 1.0).await;
    task
}

#[tokio::test]
async fn a_code_of_a_backend_connection_that_cant_be_one_is_unknown_to_all_who_call() {
    let lab = Lab::start("").await;
    let rows = [
        (Says::Cancel(0), Code::Unknown),
        (Says::Cancel(4711), Code::Unknown),
        (Says::Cancel(8), Code::ResourceExhausted),
        (Says::StatusThenCancel(0), Code::Unknown),
        (Says::StatusThenCancel(8), Code::ResourceExhausted),
        (Says::Trailers(17), Code::Unknown),
        (Says::Trailers(u16::MAX), Code::Unknown),
        (Says::Trailers(0), Code::Ok),
    ];
    let backend_connection =
        backend_connection(&lab, rows.iter().flat_map(|(says, _)| [*says; 2]).collect()).await;
    let mut world = lab.client().await;
    let mut nested = via(&lab, "group:default").await;
    for (says, expected) in rows {
        let of_world = async {
            let mut answers = world.down(Ask::default()).await?.into_inner();
            while answers.message().await?.is_some() {}
            Ok::<_, Status>(())
        };
        let code = of_world.await.map_or_else(|status| status.code(), |()| Code::Ok);
        assert_eq!(code, expected, "{says:?}, to the world");
        let of_process = async {
            let mut answers = nested.down(Ask::default()).await?.into_inner();
            while answers.message().await?.is_some() {}
            Ok::<_, Status>(())
        };
        let code = of_process.await.map_or_else(|status| status.code(), |()| Code::Ok);
        assert_eq!(code, expected, "{says:?}, to a process");
    }
    drop((world, nested));
    backend_connection.abort();
}
