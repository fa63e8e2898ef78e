//! What is kept of a request, so that it can go to another session where no server has looked at it.
//!
//! The sender keeps what it reads itself: a message of a stream costs no lock. While the rest of a request is sent in a task of its own, the
//! reader of the answer gets the sender back from that task, once the call has ended.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;
use tollfree_driver_tokio::Outgoing;
use tonic::Status;

use crate::http::replay::KEPT_LEN_MAX;
use crate::http::request_sender::RequestSender;
use crate::message::framing::Deframer;
use crate::message::out_of_band::{Large, OutOfBand};

/// Where the request of a call is that may have to go to another session.
pub(crate) enum KeptRequest {
    /// Here: its body had ended before anything of it was sent.
    Whole(Outgoing, Option<Arc<dyn Large>>),
    /// The sender at hand has it.
    Sending,
    /// The sender has it, and has sent all of it.
    Sent(Box<RequestSender>),
    /// A task sends it, and gives the sender back.
    Away(oneshot::Receiver<RequestSender>),
}

/// A request of which nothing had been sent, and what its body has given since.
pub(crate) struct Keeping {
    pub(crate) outgoing: Outgoing,
    pub(crate) past: Option<Arc<dyn Large>>,
    pub(crate) deframer: Deframer,
    pub(crate) failed: Option<Status>,
    pub(crate) count: u64,
    /// Where large messages of it are.
    out_of_band: Option<OutOfBand>,
    /// What the body has given: copied, since the memory of what it gives is used again once that is sent.
    bytes: Vec<u8>,
    /// So many of them has the present attempt been given.
    given: usize,
    /// Who wants the request back, where that is not who sends it.
    reader: Option<oneshot::Sender<RequestSender>>,
    /// It is not sent anew any more; the present attempt is still to be given some of it.
    is_settled: bool,
}

impl Keeping {
    /// From here on, where this is what is on its way.
    pub(crate) fn new(
        (outgoing, past): (Outgoing, Option<Arc<dyn Large>>),
        (deframer, failed, count): (Deframer, Option<Status>, u64),
        out_of_band: Option<OutOfBand>,
    ) -> Keeping {
        if let Some(out_of_band) = &out_of_band {
            out_of_band.keep(true);
        }
        let (bytes, given, reader, is_settled) = (Vec::new(), 0, None, false);
        Keeping { outgoing, past, deframer, failed, count, out_of_band, bytes, given, reader, is_settled }
    }

    /// What was kept, for an attempt that is not the first.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Bytes> {
        if self.given == self.bytes.len() {
            return None;
        }
        let rest = Bytes::copy_from_slice(&self.bytes[self.given..]);
        self.given = self.bytes.len();
        Some(rest)
    }

    /// Keeps what the body has given. `false`: nothing needs to be kept any more, since it is too long, or an answer has begun.
    #[inline]
    pub(crate) fn add(&mut self, chunk: &Bytes) -> bool {
        let len = self.bytes.len() + chunk.len() + self.out_of_band.as_ref().map_or(0, OutOfBand::out_len);
        if len > KEPT_LEN_MAX
            || self.is_settled
            || self.reader.as_ref().is_some_and(oneshot::Sender::is_closed)
        {
            return false;
        }
        self.bytes.extend_from_slice(chunk);
        self.given = self.bytes.len();
        true
    }

    /// The reader of the answer wants the request back.
    pub(crate) fn wanted_back(&mut self) -> oneshot::Receiver<RequestSender> {
        let (giving, back) = oneshot::channel();
        self.reader = Some(giving);
        back
    }

    /// Who is to get the sender.
    pub(crate) fn take_reader(&mut self) -> Option<oneshot::Sender<RequestSender>> {
        self.reader.take()
    }

    /// The request is not sent anew any more. Whether this is of no further use: the present attempt has been given all.
    pub(crate) fn settle(&mut self) -> bool {
        self.is_settled = true;
        self.given == self.bytes.len()
    }

    /// The next attempt reads from the beginning. `false`: there is to be none.
    pub(crate) fn rewind(&mut self) -> bool {
        (self.given, self.reader) = (0, None);
        !self.is_settled
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        if let Some(out_of_band) = &self.out_of_band {
            out_of_band.keep(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeping() -> Keeping {
        Keeping::new((Outgoing::default(), None), (Deframer::default(), None, 0), None)
    }

    #[test]
    fn what_was_given_is_given_again_and_what_follows_is_kept_too() {
        let mut keeping = keeping();
        assert!(keeping.next().is_none());
        let chunks = [Bytes::from_static(b"a"), Bytes::from_static(b"b")];
        assert!(chunks.iter().all(|chunk| keeping.add(chunk)));
        assert!(keeping.next().is_none(), "the first attempt has them");
        for _ in 0..2 {
            assert!(keeping.rewind());
            assert_eq!([keeping.next(), keeping.next()], [Some(Bytes::from_static(b"ab")), None]);
        }
    }

    #[test]
    fn what_is_sent_for_the_last_time_is_given_to_its_end() {
        let mut keeping = keeping();
        let chunk = Bytes::from_static(b"a");
        assert!(keeping.add(&chunk) && keeping.rewind());
        assert!(!keeping.settle(), "it is still needed");
        assert_eq!(keeping.next(), Some(chunk.clone()));
        assert!(!keeping.add(&chunk) && keeping.settle() && !keeping.rewind());
    }

    #[test]
    fn a_long_request_and_one_that_is_answered_are_not_kept() {
        let chunk = Bytes::from(vec![1; KEPT_LEN_MAX / 2]);
        let mut long = keeping();
        assert!(long.add(&chunk) && long.add(&chunk) && !long.add(&chunk));
        let mut answered = keeping();
        let back = answered.wanted_back();
        assert!(answered.add(&chunk));
        drop(back);
        assert!(!answered.add(&chunk), "nobody wants it back");
    }
}
