//! The messages of a call as the HTTP body that tonic's server reads.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Frame;
use tollfree_driver_tokio::{End, Incoming, Stream};
use tonic::{Code, Status};

use crate::message::out_of_band::OutOfBand;
use crate::message::payloads::Sharing;
use crate::message::received::{BodyStep, Inflow};
use crate::status;

/// The body of a request that did not come as a whole, on the server. It ends only where the client has half-closed; a request that was
/// cut ends with an error, [in tonic's words](status::for_handler).
#[derive(Debug)]
pub(crate) struct RequestBody {
    stream: Arc<Stream>,
    /// On the monotonic clock.
    deadline_ns: Option<u64>,
    sharing: Arc<Sharing>,
    inflow: Inflow,
    ended: bool,
}

impl RequestBody {
    /// The body of a call that `incoming` came with. SegmentedMessages may take the `out_of_band`.
    pub(crate) fn new(
        stream: Arc<Stream>,
        deadline_ns: Option<u64>,
        incoming: Option<Incoming>,
        sharing: Arc<Sharing>,
        out_of_band: Option<OutOfBand>,
    ) -> RequestBody {
        RequestBody {
            stream,
            deadline_ns,
            sharing,
            inflow: Inflow::after(incoming.map(Incoming::into_part), out_of_band),
            ended: false,
        }
    }

    /// The client has not finished the request. Its deadline may have rung here first, and ended the call.
    fn cut(&self, code: Code) -> Status {
        status::for_handler(status::in_time(status::unfinished(code), self.deadline_ns))
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        let step = ready!(this.inflow.poll(cx, &this.stream, &this.sharing, true));
        if !matches!(step, Ok(BodyStep::Data(_))) {
            this.ended = true;
        }
        Poll::Ready(match step {
            Ok(BodyStep::Data(bytes)) => Some(Ok(Frame::data(bytes))),
            Ok(BodyStep::End(End::HalfClosed)) => None,
            Ok(BodyStep::Failed(failure)) => Some(Err(failure)),
            Ok(BodyStep::End(End::Cancelled { code, .. })) => Some(Err(this.cut(status::failure_code(code)))),
            Err(closed) => Some(Err(status::closed(&closed, "the client"))),
            Ok(_) => Some(Err(match this.stream.session_closed() {
                Some(closed) => status::closed(&closed, "the client"),
                None => this.cut(Code::Cancelled),
            })),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}
