//! What a server says on a call: what is yet to be sent, and how it ends.

use std::borrow::Borrow;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use smallvec::SmallVec;
use tollfree_driver_tokio::{Ending, Outgoing, OutgoingMessage, SendError, Stream};
use tollfree_layout::limits::METADATA_LEN_MAX;
use tollfree_layout::metadata::{BlockError, pairs};
use tonic::{Code, Status};

use crate::metadata::{pack, travelling};
use crate::metrics::ServedCall;
use crate::server::caller::ClientRole;
use crate::server::final_status::fit;
use crate::status;

/// A server's half of a call, no matter what else holds its stream.
pub(crate) struct ResponseWriter<S> {
    pub(crate) stream: S,
    /// Yet to be sent.
    pub(crate) outgoing: Outgoing,
    /// Where the server has metrics.
    pub(crate) record: Option<ServedCall>,
    client: ClientRole,
}

impl<S: Borrow<Stream>> ResponseWriter<S> {
    pub(crate) fn new(stream: S, record: Option<ServedCall>, client: ClientRole) -> ResponseWriter<S> {
        ResponseWriter { stream, outgoing: Outgoing::default(), record, client }
    }

    /// Packs headers for the client.
    ///
    /// # Errors
    /// As [`pack`].
    pub(crate) fn pack(&self, headers: &HeaderMap) -> Result<Bytes, BlockError> {
        pack(&self.client.answer_headers(headers))
    }

    /// Ends the call with a status, after what is at hand was sent.
    pub(crate) fn end_with(&mut self, last: Status) {
        let mut headers = HeaderMap::new();
        let code = last.code() as u16;
        // tonic's own way of writing message, details and metadata of a status into headers.
        if last.add_header(&mut headers).is_err() {
            headers.clear();
        }
        self.end_with_headers(code, &headers, "status");
    }

    /// Ends the call with a status that stands in headers; `what` they are is said where they can't be packed. That of a
    /// call that has failed always can, in part at least.
    pub(crate) fn end_with_headers(&mut self, code: u16, headers: &HeaderMap, what: &str) {
        let headers = &*self.client.answer_headers(headers);
        match pack(headers) {
            Ok(block) => self.outgoing.ending = Some(Ending::Trailers { code, block }),
            Err(_) if code != 0 => {
                let pairs =
                    travelling(headers).map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
                let block = fit(pairs, METADATA_LEN_MAX);
                self.outgoing.ending = Some(Ending::Trailers { code, block });
            }
            Err(error) => self.end_with(Status::resource_exhausted(format!("{what}: {error}"))),
        }
    }

    /// Ends the call with a status at once; what is at hand is dropped.
    pub(crate) fn abort_with(&mut self, last: Status) {
        self.outgoing = Outgoing::default();
        self.end_with(last);
    }

    /// There is no room for the final status, and nobody waits for them any more: the code alone is said, behind what the client has received.
    /// Who still reads the request is told, too.
    #[cold]
    pub(crate) fn give_up(&mut self, code: Code) {
        self.outgoing = Outgoing::default();
        self.stream.borrow().give_up(code as u16);
        if let Some(record) = &self.record {
            record.end(code);
        }
    }

    /// Nothing is left to be sent.
    pub(crate) fn is_said(&self) -> bool {
        self.outgoing.is_empty()
    }

    /// Makes the status of a call that has failed fit what the client takes. `false`: there is none, or it does.
    #[cold]
    fn shorten(&mut self, max: usize) -> bool {
        match &mut self.outgoing.ending {
            Some(Ending::Trailers { code, block }) if *code != 0 && block.len() > max => {
                *block = fit(pairs(block).flatten().map(|(name, value)| (name.as_bytes(), value)), max);
                block.len() <= max
            }
            _ => false,
        }
    }

    /// Sends what is at hand; `true` when nobody listens any more.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let said = self.record.as_ref().map(|_| Said::of(&self.outgoing));
        let sent = self.stream.borrow().poll_send(cx, &mut self.outgoing);
        if let (Some(record), Some(said)) = (&self.record, said) {
            said.count(record, &self.outgoing);
        }
        match ready!(sent) {
            Ok(()) => Poll::Ready(false),
            Err(SendError::Ended | SendError::Closed(_)) => Poll::Ready(true),
            Err(SendError::MetadataLen { max, .. }) if self.shorten(max) => Poll::Ready(false),
            Err(error) => {
                self.abort_with(status::unsent(error, "the client"));
                Poll::Ready(false)
            }
        }
    }

    /// Ready when nobody listens any more.
    pub(crate) fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.stream.borrow().poll_ended(cx)
    }
}

/// What an outgoing had yet to say, for a server's metrics.
struct Said {
    /// The lengths of its messages.
    lens: SmallVec<[usize; 1]>,
    code: Option<Code>,
}

impl Said {
    fn of(outgoing: &Outgoing) -> Said {
        let code = match &outgoing.ending {
            Some(Ending::Trailers { code, .. }) => Some(Code::from_i32((*code).into())),
            _ => None,
        };
        Said { lens: outgoing.message.iter().flat_map(OutgoingMessage::lens).collect(), code }
    }

    /// Counts what has gone of it since.
    fn count(self, record: &ServedCall, left: &Outgoing) {
        let left_count = left.message.as_ref().map_or(0, |message| message.lens().count());
        let gone_count = self.lens.len().saturating_sub(left_count);
        self.lens.iter().take(gone_count).for_each(|len| record.sent(*len));
        if let (Some(code), None) = (self.code, &left.ending) {
            record.end(code);
        }
    }
}
