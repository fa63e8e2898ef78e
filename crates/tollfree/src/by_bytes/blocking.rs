//! The client's end for threads without a runtime.

use bytes::Bytes;
use tonic::{IntoRequest, Request, Response, Status};

use crate::by_bytes::{Client, Method};
use crate::channel::Channel;
use crate::channel::blocking::{self, Streaming};

/// As [`Client`], and blocks its thread. Must not be used in tasks of a tokio runtime: it panics there.
#[derive(Clone, Debug)]
pub struct BlockingClient {
    client: Client<Channel>,
    channel: blocking::Channel,
}

impl BlockingClient {
    /// A client of a channel.
    pub fn new(channel: blocking::Channel) -> BlockingClient {
        BlockingClient { client: Client::new(channel.get_ref().clone()), channel }
    }

    /// With the settings of a [`Client`].
    pub fn map(self, settle: impl FnOnce(Client<Channel>) -> Client<Channel>) -> BlockingClient {
        BlockingClient { client: settle(self.client), channel: self.channel }
    }

    /// A call with one message each way.
    ///
    /// # Errors
    /// The call's status.
    pub fn unary(
        &mut self,
        method: &Method,
        request: impl IntoRequest<Bytes>,
    ) -> Result<Response<Bytes>, Status> {
        self.channel.run(self.client.unary(method, request))
    }

    /// A call with one message there and many back.
    ///
    /// # Errors
    /// The call's status.
    pub fn server_streaming(
        &mut self,
        method: &Method,
        request: impl IntoRequest<Bytes>,
    ) -> Result<Response<Streaming<Bytes>>, Status> {
        let answer = self.channel.run(self.client.server_streaming(method, request))?;
        Ok(answer.map(|messages| Streaming::new(self.channel.clone(), messages)))
    }

    /// A call with many messages there and one back. Messages are asked for on this thread, as they can be sent.
    ///
    /// # Errors
    /// The call's status.
    pub fn client_streaming<I>(
        &mut self,
        method: &Method,
        request: Request<I>,
    ) -> Result<Response<Bytes>, Status>
    where
        I: IntoIterator<Item = Bytes, IntoIter: Send + 'static>,
    {
        self.channel.run(self.client.client_streaming(method, request.map(tokio_stream::iter)))
    }

    /// A call with many messages each way. Messages are asked for on this thread, as they can be sent.
    ///
    /// # Errors
    /// The call's status.
    pub fn streaming<I>(
        &mut self,
        method: &Method,
        request: Request<I>,
    ) -> Result<Response<Streaming<Bytes>>, Status>
    where
        I: IntoIterator<Item = Bytes, IntoIter: Send + 'static>,
    {
        let answer = self.channel.run(self.client.streaming(method, request.map(tokio_stream::iter)))?;
        Ok(answer.map(|messages| Streaming::new(self.channel.clone(), messages)))
    }
}
