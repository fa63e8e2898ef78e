//! A server that echoes, and a channel to it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tempfile::TempDir;
use tollfree_driver_blocking::{
    Address, CallStart, Channel, ChannelConfig, Client, Handler, LoopConfig, Message, ServedCall, Server,
};

/// Longer than anything takes.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A server, and a channel of a client by itself.
pub(crate) struct Both {
    pub(crate) channel: Channel,
    pub(crate) server: Server,
    pub(crate) address: Address,
    pub(crate) _directory: TempDir,
}

impl Both {
    pub(crate) fn new(handlers_max: usize, handler: impl Handler) -> Both {
        let directory = tempfile::tempdir().unwrap();
        let address = Address::Path(directory.path().join("s.sock"));
        let server = Server::new(LoopConfig::default(), handlers_max, handler).unwrap();
        server.listen(&address).unwrap();
        Both { channel: channel(&address), server, address, _directory: directory }
    }
}

pub(crate) fn channel(address: &Address) -> Channel {
    Client::new(LoopConfig::default()).unwrap().channel(ChannelConfig::new(address)).unwrap()
}

pub(crate) fn echo(call: &ServedCall) {
    if let Some(message) = call.receive() {
        let _ = call.answer(message);
    }
}

/// The start of a call with one message.
pub(crate) fn unary(path: &str, message: impl Into<Bytes>) -> CallStart<'_> {
    CallStart { message: Some(Message::from(message.into())), is_last: true, ..CallStart::new(path) }
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
