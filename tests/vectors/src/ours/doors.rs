//! A server and a gateway that listen, and what they say to a first message that they must refuse.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use tollfree_driver_tokio::{Accepts, Address, Config, Listener};
use tollfree_layout::handshake::{Hello, kind};
use tollfree_layout::limits::HELLO_LEN;
use tollfree_region::Region;
use zerocopy::FromBytes;

use crate::{Answer, Question};

/// A listener that takes in nobody: a first message is refused before anybody asks for its session.
pub(crate) struct Door {
    name: String,
    /// Both live as long as they are asked.
    _runtime: Runtime,
    _listener: Listener,
}

impl Door {
    pub(crate) fn open(accepts: Accepts) -> Result<Door, String> {
        let name = format!("tollfree-vectors-{}-{accepts:?}", std::process::id());
        let address: Address = format!("shm-abstract:{name}").parse().map_err(|error| format!("{error}"))?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        let bound =
            runtime.block_on(async { Listener::bind(&address, Config { accepts, ..Config::default() }) });
        let listener = bound.map_err(|error| error.to_string())?;
        Ok(Door { name, _runtime: runtime, _listener: listener })
    }

    pub(crate) fn answer(&self, question: &Question) -> Answer {
        let bytes = question.bytes("message")?;
        let region_len = question.number("region_len").ok();
        let said = self.ask(&bytes, region_len).map_err(|error| format!("the listener: {error}"))?;
        if said.kind.get() != kind::REFUSAL {
            return Err(format!("an answer of kind {}", said.kind.get()));
        }
        Ok(json!({ "reason": said.reason.get() }))
    }

    fn ask(&self, bytes: &[u8], region_len: Option<u64>) -> std::io::Result<Hello> {
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&self.name)?;
        let socket = UnixStream::connect_addr(&address)?;
        socket.set_read_timeout(Some(Duration::from_secs(20)))?;
        let region = region_len.map(|len| Region::create("vector", len as usize)).transpose();
        let region = region.map_err(std::io::Error::other)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = region.as_ref().map(|region| [region.fd()]);
        if let Some(fds) = &fds
            && !control.push(SendAncillaryMessage::ScmRights(fds))
        {
            return Err(std::io::Error::other("no room for a descriptor"));
        }
        rustix::net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
        let mut answer = [0; HELLO_LEN];
        (&socket).read_exact(&mut answer)?;
        Hello::read_from_bytes(&answer).map_err(|_| std::io::Error::other("an answer of another length"))
    }
}
