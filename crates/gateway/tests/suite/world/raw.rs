//! Backends that speak the session's protocol by themselves: they may say anything, at any time.

use std::future::poll_fn;

use bytes::Bytes;
use tokio::task::JoinHandle;
use tollfree_driver_tokio::{
    Attachment, Call, Config, ConnectError, End, Ending, Opening, Outgoing, OutgoingMessage, Registration,
    Stream,
};
use tollfree_layout::metadata::pack;
use tonic::Code;

use super::lab::{Lab, PATIENCE, PROBE, backend_connections_of};

/// What such a backend connection does with a call.
#[derive(Clone)]
pub(crate) enum Deed {
    /// Says this, one after the other.
    Say(Vec<Outgoing>),
    /// Says this, and ends the call with a code.
    Cancel(Vec<Outgoing>, u16),
    /// Says this, and ends its session.
    Die(Vec<Outgoing>),
    /// Nothing, for as long as it lives.
    Nothing,
}

/// The head of an answer.
pub(crate) fn headers(block: Bytes) -> Outgoing {
    Outgoing { headers: Some(block), ..Outgoing::default() }
}

/// The end of an answer.
pub(crate) fn trailers(code: u16, block: Bytes) -> Outgoing {
    Outgoing { ending: Some(Ending::Trailers { code, block }), ..Outgoing::default() }
}

pub(crate) fn message(message: OutgoingMessage) -> Outgoing {
    Outgoing { message: Some(message), ..Outgoing::default() }
}

/// An answer in one frame.
pub(crate) fn whole(message: OutgoingMessage) -> Outgoing {
    let ending = Ending::Trailers { code: 0, block: Bytes::new() };
    Outgoing { headers: Some(Bytes::new()), message: Some(message), ending: Some(ending) }
}

/// A block of pairs of one name.
pub(crate) fn pairs(count: usize, name: &str, value: &[u8]) -> Bytes {
    let mut block = Vec::new();
    (0..count).for_each(|_| pack(&mut block, name, value).unwrap());
    block.into()
}

/// Makes a backend connection's session. A gateway with too many newcomers refuses some.
pub(crate) async fn try_attach(lab: &Lab, group: &str) -> Result<Attachment, ConnectError> {
    let registration = Registration::new(group, vec![PROBE.to_owned()]).unwrap();
    Attachment::attach(&lab.backends().parse().unwrap(), &Config::default(), registration).await
}

/// A backend connection of a group, until its task ends. It does with each call what `deed` says.
pub(crate) async fn backend_connection(
    lab: &Lab,
    group: &str,
    deed: impl Fn(&Call) -> Deed + Send + 'static,
) -> JoinHandle<()> {
    let before = lab.figure(&backend_connections_of(group)).await;
    let session = try_attach(lab, group).await.unwrap();
    let task = tokio::spawn(async move {
        let mut kept = Vec::new();
        loop {
            let mut place = None;
            if poll_fn(|cx| session.poll_accept(cx, &mut place)).await.is_err() {
                return;
            }
            let call = place.expect("a call is there").into_call(true);
            match deed(&call) {
                Deed::Say(said) => {
                    say_all(&call.stream, said).await;
                    kept.push(call);
                }
                Deed::Cancel(said, code) => {
                    say_all(&call.stream, said).await;
                    call.stream.cancel(code);
                }
                Deed::Die(said) => {
                    say_all(&call.stream, said).await;
                    return session.close("the backend connection of /run/secret.sock, process 4711, dies");
                }
                Deed::Nothing => kept.push(call),
            }
        }
    });
    lab.until_figure(&backend_connections_of(group), |count| count > before).await;
    task
}

pub(crate) async fn say_all(stream: &Stream, said: Vec<Outgoing>) {
    for mut outgoing in said {
        // The one who asked may have had enough.
        drop(poll_fn(|cx| stream.poll_send(cx, &mut outgoing)).await);
    }
}

/// A session of a process that calls by way of the gateway.
pub(crate) async fn via(lab: &Lab, target: &str) -> Attachment {
    let config = Config { via: Some(target.into()), ..Config::default() };
    Attachment::connect(&lab.backends().parse().unwrap(), &config).await.unwrap()
}

/// What a call ends with that has these headers and messages, and no time of its own to end at but the other side's.
pub(crate) async fn call(
    session: &Attachment,
    method: &str,
    block: Bytes,
    messages: Vec<OutgoingMessage>,
    deadline_ns: u64,
) -> (Code, String) {
    let path = format!("/{PROBE}/{method}");
    let (mut outgoing, opening) = (headers(block), Opening { path: &path, deadline_ns });
    let mut opener = session.open();
    let stream = poll_fn(|cx| opener.poll_open(cx, opening, &mut outgoing)).await.unwrap();
    let end = Outgoing { ending: Some(Ending::HalfClose), ..Outgoing::default() };
    say_all(&stream, messages.into_iter().map(message).chain([end]).collect()).await;
    let ended = async {
        loop {
            match poll_fn(|cx| stream.poll_incoming(cx)).await.unwrap().into_part().end {
                Some(End::Trailers { code, block }) => {
                    let words = String::from_utf8_lossy(&block).replace("%20", " ");
                    return (Code::from_i32(code.into()), words);
                }
                Some(end) => panic!("{end:?}"),
                None => {}
            }
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("the call ends")
}
