//! Calls with messages of many fields: what a caller sends by turns, and how it looks at what comes back.

use std::future::Future;
use std::hint::black_box;
use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::direct::messages_server::Messages as DirectMessages;
use crate::fds::FileDescriptorSet;
use crate::hyperprotobench::M3;
use crate::message::{Message, Read};
use crate::proto::messages_server::Messages;
use crate::shop::Order;

/// A kept message, and what reading all of its fields gives.
pub(super) struct Kept<M> {
    pub(super) message: M,
    pub(super) sum: u64,
}

/// Kept messages, of which a caller takes one after the other.
pub(super) struct Turns<M> {
    all: Arc<[Kept<M>]>,
    next: usize,
    /// Replies that were compared in full: each message's first.
    compared: usize,
}

impl<M> Clone for Turns<M> {
    fn clone(&self) -> Self {
        Self { all: Arc::clone(&self.all), next: self.next, compared: self.compared }
    }
}

impl<M> Turns<M> {
    /// `decode` also reads each message.
    pub(super) fn new(
        samples: &[Vec<u8>],
        decode: impl Fn(&[u8]) -> Result<(M, u64), String>,
    ) -> Result<Self, String> {
        let kept = |bytes: &Vec<u8>| decode(bytes).map(|(message, sum)| Kept { message, sum });
        let all = samples.iter().map(kept).collect::<Result<Arc<[_]>, _>>()?;
        if all.is_empty() {
            Err("there are no messages".to_owned())
        } else {
            Ok(Self { all, next: 0, compared: 0 })
        }
    }

    /// The next one, and whether its reply is to be compared in full.
    pub(super) fn take(&mut self) -> (&Kept<M>, bool) {
        let idx = self.next;
        self.next = if idx + 1 == self.all.len() { 0 } else { idx + 1 };
        let is_first = self.compared < self.all.len();
        self.compared += usize::from(is_first);
        (&self.all[idx], is_first)
    }
}

/// The error of a reply that holds something else.
pub(super) fn other() -> String {
    "the reply is not what was sent".to_owned()
}

impl<M: prost::Message + Default + Clone + PartialEq + Read> Turns<M> {
    fn of_structs(samples: &[Vec<u8>]) -> Result<Self, String> {
        Turns::new(samples, |bytes| {
            let message =
                M::decode(bytes).map_err(|error| format!("a message cannot be decoded: {error}"))?;
            let sum = message.read();
            Ok((message, sum))
        })
    }

    /// Calls with the next one, and reads every field of the reply.
    pub(super) async fn exchange<F>(&mut self, call: impl FnOnce(M) -> F) -> Result<(), String>
    where
        F: Future<Output = Result<Response<M>, Status>>,
    {
        let (kept, is_first) = self.take();
        let reply = call(kept.message.clone()).await.map_err(|status| format!("a call failed: {status}"))?;
        let reply = reply.into_inner();
        if reply.read() == kept.sum && !(is_first && reply != kept.message) { Ok(()) } else { Err(other()) }
    }
}

/// The messages that a caller of prost's structs sends.
#[derive(Clone)]
pub(super) enum Structs {
    M3(Turns<M3>),
    Order(Turns<Order>),
    Fds(Turns<FileDescriptorSet>),
}

impl Structs {
    pub(super) fn new(message: Message, samples: &[Vec<u8>]) -> Result<Self, String> {
        match message {
            Message::Probe => Err("a probe has no messages".to_owned()),
            Message::M3 => Turns::of_structs(samples).map(Structs::M3),
            Message::Order => Turns::of_structs(samples).map(Structs::Order),
            Message::Fds | Message::FdsCopy => Turns::of_structs(samples).map(Structs::Fds),
        }
    }
}

/// The service: reads every field of a request, and answers with a struct that has the same.
pub(crate) struct Answers;

impl Answers {
    fn answer<M: Read + Clone>(request: &Request<M>) -> Response<M> {
        black_box(request.get_ref().read());
        // A copy takes the same allocations as building the struct does.
        Response::new(request.get_ref().clone())
    }
}

/// Both kinds of stubs have the same methods.
macro_rules! answers {
    ($($service:ident),+) => { $(
        #[tonic::async_trait]
        impl $service for Answers {
            async fn m3(&self, request: Request<M3>) -> Result<Response<M3>, Status> {
                Ok(Self::answer(&request))
            }

            async fn order(&self, request: Request<Order>) -> Result<Response<Order>, Status> {
                Ok(Self::answer(&request))
            }

            async fn fds(
                &self,
                request: Request<FileDescriptorSet>,
            ) -> Result<Response<FileDescriptorSet>, Status> {
                Ok(Self::answer(&request))
            }
        }
    )+ };
}

answers!(Messages, DirectMessages);
