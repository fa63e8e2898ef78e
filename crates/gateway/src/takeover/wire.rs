//! Messages between the two gateways of a takeover, and the listening sockets that come with them: a line of JSON each, over the control
//! socket's connection.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// The longest message, in bytes.
const LEN_MAX: usize = 64 << 10;
/// Sockets that may come and not be taken yet.
const SOCKETS_MAX: usize = 256;
/// Descriptors that there is room for in one receive: as many as the kernel lets anybody send at once.
const DESCRIPTORS_ROOM: usize = 253;

/// What the two say, in this order.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TakeoverMessage {
    /// New: it can receive sockets.
    Begin { version: String },
    /// Old: a listening socket comes with this.
    Socket { key: String, address: String },
    /// Old: those were all.
    Offered { version: String },
    /// New: everything is bound.
    Ready,
    /// Old: backends may be let in.
    Enter,
    /// New: backends that look for the socket find the new gateway.
    Entered,
    /// Old: its backends are there.
    Moved,
    /// New: it accepts clients.
    Serving,
    /// Old: it accepts no more.
    Left,
    /// Either: the takeover is given up.
    Refused { words: String },
}

/// What came.
#[derive(Debug)]
pub(super) enum Heard {
    Message(TakeoverMessage),
    /// The other process is gone, or on its way.
    Gone,
}

/// The connection.
#[derive(Debug)]
pub(super) struct Wire {
    stream: UnixStream,
    heard: Vec<u8>,
    sockets: VecDeque<OwnedFd>,
}

impl Wire {
    /// Of a connection by which these bytes have come.
    pub(super) fn new(stream: UnixStream, heard: Vec<u8>) -> Wire {
        Wire { stream, heard, sockets: VecDeque::new() }
    }

    /// Sends a message, with a socket or without.
    pub(super) async fn say(
        &self,
        message: &TakeoverMessage,
        socket: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(message)?;
        bytes.push(b'\n');
        let (mut sent, mut socket) = (0, socket);
        while sent < bytes.len() {
            let rest = &bytes[sent..];
            sent += self
                .stream
                .async_io(Interest::WRITABLE, || {
                    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                    let mut control = SendAncillaryBuffer::new(&mut space);
                    let sockets = socket.as_slice();
                    if !sockets.is_empty() {
                        control.push(SendAncillaryMessage::ScmRights(sockets));
                    }
                    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                    Ok(sendmsg(&self.stream, &[IoSlice::new(rest)], &mut control, flags)?)
                })
                .await?;
            socket = None;
        }
        Ok(())
    }

    /// The next message, within a time.
    ///
    /// # Errors
    /// In words: none came, or what came is none.
    pub(super) async fn hear(&mut self, patience: Duration) -> Result<Heard, String> {
        let heard = tokio::time::timeout(patience, self.next()).await;
        let heard = heard.map_err(|_| format!("the other gateway has not answered within {patience:?}"))?;
        match heard {
            Ok(heard) => Ok(heard),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) =>
            {
                Ok(Heard::Gone)
            }
            Err(error) => Err(format!("the other gateway can't be understood: {error}")),
        }
    }

    async fn next(&mut self) -> io::Result<Heard> {
        loop {
            if let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.heard.drain(..=end).collect();
                return Ok(Heard::Message(serde_json::from_slice(&line)?));
            }
            if self.heard.len() > LEN_MAX {
                return Err(io::Error::other(format!("a message has more than {LEN_MAX} bytes")));
            }
            let mut buffer = [0; 4096];
            let (len, sockets) =
                self.stream.async_io(Interest::READABLE, || receive(&self.stream, &mut buffer)).await?;
            if len == 0 {
                return Ok(Heard::Gone);
            }
            self.heard.extend_from_slice(&buffer[..len]);
            self.sockets.extend(sockets);
            if self.sockets.len() > SOCKETS_MAX {
                return Err(io::Error::other("it passes sockets without end"));
            }
        }
    }

    /// The socket that came with the message before which no socket was taken.
    pub(super) fn socket(&mut self) -> Option<OwnedFd> {
        self.sockets.pop_front()
    }
}

fn receive(stream: &impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_ROOM))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(stream, &mut [IoSliceMut::new(buffer)], &mut control, flags)?;
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    let sockets = rights.flatten().collect();
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other(
            "no descriptor is left for the sockets that it passes: raise the limit",
        ));
    }
    Ok((received.bytes, sockets))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    async fn message(wire: &mut Wire) -> TakeoverMessage {
        match wire.hear(PATIENCE).await.unwrap() {
            Heard::Message(message) => message,
            Heard::Gone => panic!("gone"),
        }
    }

    #[tokio::test]
    async fn messages_come_with_their_sockets_and_the_end_is_told() {
        let (one, other) = UnixStream::pair().unwrap();
        let (one, mut other) = (Wire::new(one, Vec::new()), Wire::new(other, Vec::new()));
        let listeners = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        for listener in &listeners {
            let address = listener.local_addr().unwrap().to_string();
            let message = TakeoverMessage::Socket { key: "world".into(), address };
            one.say(&message, Some(listener.as_fd())).await.unwrap();
        }
        one.say(&TakeoverMessage::Ready, None).await.unwrap();
        for listener in &listeners {
            let address = listener.local_addr().unwrap();
            let expected = TakeoverMessage::Socket { key: "world".into(), address: address.to_string() };
            assert_eq!(message(&mut other).await, expected);
            let passed = std::net::TcpListener::from(other.socket().unwrap());
            assert_eq!(passed.local_addr().unwrap(), address);
        }
        assert_eq!(message(&mut other).await, TakeoverMessage::Ready);
        assert!(other.socket().is_none());
        assert!(other.hear(Duration::from_millis(1)).await.unwrap_err().contains("not answered"));
        drop(one);
        assert!(matches!(other.hear(PATIENCE).await.unwrap(), Heard::Gone));
    }

    #[tokio::test]
    async fn what_is_no_message_is_an_error_and_none_is_endless() {
        for bytes in [&b"{\"ready\"\n"[..], b"\"nonsense\"\n", &[b'x'; LEN_MAX + 5000]] {
            let (one, other) = UnixStream::pair().unwrap();
            let mut other = Wire::new(other, Vec::new());
            let (heard, _) = tokio::join!(other.hear(PATIENCE), async {
                let mut sent = 0;
                while sent < bytes.len() {
                    one.writable().await.unwrap();
                    sent += one.try_write(&bytes[sent..]).unwrap_or_default();
                }
            });
            assert!(heard.unwrap_err().contains("understood"));
        }
    }
}
