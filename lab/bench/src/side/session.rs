//! A bare session: the same calls as the stubs make, as bytes, without tonic, protobuf or metadata.

use std::future::poll_fn;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::{Buf, Bytes, BytesMut};
use tollfree_driver_tokio::{
    Address, Attachment, Call, Chunk, Config, Encoded, End, Ending, Listener, Opening, Outgoing,
    OutgoingMessage, Stream, join,
};

use super::AsyncSide;
use crate::load::EchoCall;
use crate::order::{Serve, Serving};
use crate::plan::Case;

/// The method, as the stubs would name it.
const PATH: &str = "/tollfree.bench.v1.Echo/Call";

pub(super) struct Session;

/// The process does nothing but this, as the floor's.
fn config() -> Config {
    Config { dedicated: true, ..Config::default() }
}

impl AsyncSide for Session {
    type Caller = Caller;

    async fn serve(order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), String> {
        serve(&order.dir, config(), ready).await
    }

    async fn connect(address: &str, _case: Case) -> Result<Caller, String> {
        connect(address, &config()).await
    }
}

/// Serves in a directory, and calls `ready` once clients may connect.
pub(crate) async fn serve(dir: &Path, config: Config, ready: impl FnOnce(Serving)) -> Result<(), String> {
    let text = format!("shm://{}", dir.join("session.sock").display());
    let address: Address = text.parse().map_err(|error| format!("{error}"))?;
    let mut listener =
        Listener::bind(&address, config).map_err(|error| format!("cannot listen on {address}: {error}"))?;
    ready(Serving { address: text });
    while let Some(attachment) = listener.accept().await {
        tokio::spawn(serve_one(attachment));
    }
    Err(format!("listening on {address} ended"))
}

pub(crate) async fn connect(address: &str, config: &Config) -> Result<Caller, String> {
    let address: Address = address.parse().map_err(|error| format!("{error}"))?;
    let attachment =
        Attachment::connect(&address, config).await.map_err(|error| format!("cannot connect: {error}"))?;
    Ok(Caller { attachment: Arc::new(attachment) })
}

/// Answers one client's calls until it leaves.
async fn serve_one(attachment: Attachment) {
    let mut place = None;
    while let Ok(()) = poll_fn(|cx| attachment.poll_accept(cx, &mut place)).await {
        let Some(accepted) = &mut place else { continue };
        // A small request is here already, and mostly its answer fits the ring.
        let mut left = None;
        if let Some(request) = accepted.take_whole() {
            let mut outgoing = reply_with(echoed(request.message()));
            match accepted.reply(&mut outgoing) {
                Ok(false) => left = Some(outgoing),
                Ok(true) | Err(_) => continue,
            }
        }
        let Some(call) = place.take().map(|accepted| accepted.into_call(false)) else { continue };
        let mut answer: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
            match left {
                Some(mut outgoing) => send(&call.stream, &mut outgoing).await,
                None => answer(call).await,
            }
        });
        // No task is made for what is there as soon as this thread has looked for it: while it looks, tasks wait.
        let answered = poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx).is_ready())).await;
        if !answered {
            tokio::spawn(answer);
        }
    }
}

/// A message of the same bytes.
fn echoed(message: &[u8]) -> OutgoingMessage {
    OutgoingMessage::plain(Encoded::write(message.len(), |buffer| buffer.extend_from_slice(message)))
}

/// All that is said on a call.
fn reply_with(message: OutgoingMessage) -> Outgoing {
    Outgoing {
        headers: Some(Bytes::new()),
        message: Some(message),
        ending: Some(Ending::Trailers { code: 0, block: Bytes::new() }),
    }
}

/// A client that does not get its answer reports that itself.
async fn send(stream: &Stream, outgoing: &mut Outgoing) {
    let _ = poll_fn(|cx| stream.poll_send(cx, outgoing)).await;
}

/// Sends back what came.
async fn answer(call: Call) {
    let Call { stream, mut first, .. } = call;
    let mut message = Message::default();
    loop {
        let incoming = match first.take() {
            Some(incoming) => incoming,
            None => match poll_fn(|cx| stream.poll_incoming(cx)).await {
                Ok(incoming) => incoming,
                Err(_) => return,
            },
        };
        let part = incoming.into_part();
        part.chunk.into_iter().for_each(|chunk| message.add(chunk));
        match part.end {
            None => {}
            Some(End::HalfClosed) => break,
            Some(_) => return,
        }
    }
    send(&stream, &mut reply_with(OutgoingMessage::new(message.take(), false))).await;
}

/// A client's end of the session, shared by all calls in flight.
#[derive(Clone)]
pub(crate) struct Caller {
    attachment: Arc<Attachment>,
}

impl EchoCall for Caller {
    type Body = Bytes;

    async fn call(&mut self, body: Bytes) -> Result<Bytes, String> {
        let opening = Opening { path: PATH, deadline_ns: 0 };
        let mut outgoing = Outgoing {
            headers: None,
            message: Some(OutgoingMessage::new(body, false)),
            ending: Some(Ending::HalfClose),
        };
        let mut opener = self.attachment.open();
        let stream = poll_fn(|cx| opener.poll_open(cx, opening, &mut outgoing))
            .await
            .map_err(|error| format!("a call could not be opened: {error}"))?;
        if !outgoing.is_empty() {
            poll_fn(|cx| stream.poll_send(cx, &mut outgoing))
                .await
                .map_err(|error| format!("a request could not be sent: {error}"))?;
        }
        reply(&stream).await
    }
}

async fn reply(stream: &Stream) -> Result<Bytes, String> {
    let mut message = Message::default();
    loop {
        let incoming = poll_fn(|cx| stream.poll_incoming(cx)).await;
        let part = incoming.map_err(|closed| format!("the session ended: {closed}"))?.into_part();
        part.chunk.into_iter().for_each(|chunk| message.add(chunk));
        match part.end {
            None => {}
            Some(End::Trailers { code: 0, .. }) => return Ok(message.take()),
            Some(end) => return Err(format!("a call ended with {end:?}")),
        }
    }
}

/// A message as it arrives: chunks that lie behind each other are never copied.
#[derive(Default)]
struct Message {
    pieces: BytesMut,
    len: usize,
}

impl Message {
    fn add(&mut self, chunk: Chunk) {
        let mut bytes = chunk.bytes;
        if chunk.first {
            let _compressed = bytes.get_u8();
            self.len = bytes.get_u32() as usize;
            self.pieces = bytes;
        } else {
            join(&mut self.pieces, bytes, self.len);
        }
    }

    fn take(self) -> Bytes {
        self.pieces.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_together_without_their_prefix() {
        let chunk = |bytes: &'static [u8], first, last| Chunk {
            bytes: BytesMut::from(bytes),
            first,
            last,
            batch_count: 0,
            segmented: None,
        };
        let mut message = Message::default();
        message.add(chunk(b"\0\0\0\0\x02ab", true, true));
        assert_eq!(message.take(), "ab");
        let mut message = Message::default();
        message.add(chunk(b"\0\0\0\0\x06ab", true, false));
        message.add(chunk(b"cd", false, false));
        message.add(chunk(b"ef", false, true));
        assert_eq!(message.take(), "abcdef");
    }
}
