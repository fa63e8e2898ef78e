//! The request of a call by a session, sent message by message out of an HTTP body.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::uri::PathAndQuery;
use http_body::{Body as _, Frame};
use tokio::sync::oneshot;
use tollfree_transport::{Attachment, Emission, EmitError, Encoded, Ending, Outgoing};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::call::turn::Turn;
use crate::http::keeping::{Keeping, Kept};
use crate::http::response_body::ClientCall;
use crate::message::aside::{Aside, is_too_much};
use crate::message::batching::next_batch;
use crate::message::bypass::{Bypass, Large, Takes};
use crate::message::encoding::says_encoding;
use crate::message::framing::Deframer;
use crate::message::payloads::Sharing;
use crate::message::relay::{Ready, Relayed};
use crate::message::translation::Translation;
use crate::status;

/// Sends a request body message by message.
pub(crate) struct RequestSender {
    body: Body,
    deframer: Deframer,
    pub(crate) emission: Emission,
    /// The body has ended; its half-close is in `emission` or sent.
    pub(crate) ended: bool,
    /// All of it is sent, or nobody wants it any more.
    is_over: bool,
    /// The body failed after the message at hand.
    failed: Option<Status>,
    /// It is known to which session it goes.
    addressed: bool,
    /// That session, for messages that are still to come: large ones may be made ropes for it.
    session: Option<(Arc<Sharing>, Arc<Attachment>)>,
    /// The first message as it was before it became a rope, while it may have to go to another session.
    plain: Option<Outgoing>,
    /// Where large messages come from, and how many have been read from the body.
    bypass: Option<Bypass>,
    count: u64,
    /// The message at hand, if it came past tonic: an empty one stands in for it until it is encoded for a session.
    past: Option<Arc<dyn Large>>,
    /// Where the method's stubs take objects.
    objects: Option<Objects>,
    /// The message at hand is as it came: it was not made what the session takes yet.
    is_raw: bool,
    /// Bytes of messages that were translated here since the body had nothing.
    here: usize,
    /// It is translated elsewhere.
    decoding: Option<Box<Decoding>>,
    /// The request, while it may have to go to another session.
    keeping: Option<Box<Keeping>>,
}

/// What a message is translated to.
struct Made {
    /// It came as an object, and has been made ready.
    relayed: Option<Arc<Relayed>>,
    /// Its object, if it has one and did not come as one.
    object: Option<Encoded>,
}

/// Messages, or batches, that who waits for the answer sends before it looks for that.
const SOME_COUNT: usize = 3;

/// A message that is translated elsewhere.
enum Decoding {
    Begun(Aside<Result<Made, Status>>),
    Done(Result<Made, Status>),
}

impl Decoding {
    fn begin(translation: &Translation, message: Bytes) -> Decoding {
        let own = translation.clone();
        let made = move || own.object(&message).map(|object| Made { relayed: None, object });
        Decoding::Begun(translation.turns().begin(made))
    }

    /// `None`: nothing has to be done to it.
    fn begin_ready(relayed: Arc<Relayed>, reader: Option<&Translation>) -> Option<Decoding> {
        let (turns, reader) = (relayed.turns()?.clone(), reader.cloned());
        Some(Decoding::Begun(turns.begin(move || {
            let Ready { relayed, anew } = relayed.ready(reader.as_ref())?;
            Ok(Made { relayed: Some(relayed), object: anew })
        })))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Decoding::Begun(aside) = self {
            *self = Decoding::Done(ready!(aside.poll(cx)).flatten());
        }
        Poll::Ready(())
    }
}

/// Whether messages go as objects in the session that a request goes to.
struct Objects {
    session: Arc<Attachment>,
    path: PathAndQuery,
    /// The fingerprint of the method's types.
    types: u64,
    /// Whether the server takes them, once it has said so.
    taken: Option<bool>,
}

impl Objects {
    /// Asks whether the server has said something meanwhile, for messages that are read from now on.
    fn ask(&mut self, bypass: &Bypass) {
        if self.taken.is_none() {
            self.taken = self.session.takes_objects(self.path.as_str(), self.types);
            bypass.take_objects(self.taken == Some(true));
        }
    }
}

/// What the session's other end takes of the call's messages.
fn takes<'b>(objects: Option<&Objects>, bypass: Option<&'b Bypass>) -> Takes<'b> {
    match (objects.and_then(|objects| objects.taken), bypass.and_then(Bypass::translation)) {
        (Some(true), Some(translation)) => Takes::ObjectsOf(translation),
        (Some(true), None) => Takes::Objects,
        _ => Takes::Bytes,
    }
}

impl RequestSender {
    pub(crate) fn new(body: Body, emission: Emission, bypass: Option<Bypass>) -> RequestSender {
        let is_raw = emission.message.is_some();
        RequestSender {
            body,
            deframer: Deframer::default(),
            emission,
            ended: false,
            is_over: false,
            failed: None,
            addressed: false,
            session: None,
            plain: None,
            bypass,
            count: 0,
            past: None,
            objects: None,
            is_raw,
            here: 0,
            decoding: None,
            keeping: None,
        }
    }

    /// Keeps a request of which nothing has been sent, and what its body gives from here on, as far as that is short.
    pub(crate) fn keep(&mut self) -> Kept {
        if self.ended {
            self.keeping = None;
            return Kept::Whole(self.emission.clone(), self.past.clone());
        }
        if self.keeping.is_none() {
            let first = (self.emission.clone(), self.past.clone());
            let rest = (self.deframer.clone(), self.failed.clone(), self.count);
            self.keeping = Some(Box::new(Keeping::new(first, rest, self.bypass.clone())));
        }
        Kept::Sending
    }

    /// A request whose body has ended, which has gone nowhere yet.
    pub(crate) fn whole(emission: Emission, past: Option<Arc<dyn Large>>) -> RequestSender {
        RequestSender { ended: true, past, ..RequestSender::new(Body::empty(), emission, None) }
    }

    /// The same request from its beginning, where all of it is here still.
    pub(crate) fn again(mut self) -> Option<RequestSender> {
        let mut keeping = self.keeping.take()?;
        if !keeping.rewind() {
            return None;
        }
        let Keeping { past, deframer, failed, count, .. } = &*keeping;
        let (past, deframer, failed, count) = (past.clone(), deframer.clone(), failed.clone(), *count);
        let anew = RequestSender::new(self.body, keeping.emission.clone(), self.bypass);
        Some(RequestSender { past, deframer, failed, count, keeping: Some(keeping), ..anew })
    }

    /// Where the sender comes back once its task is done. `None`: the request is not kept any more.
    pub(crate) fn wanted_back(&mut self) -> Option<oneshot::Receiver<RequestSender>> {
        self.keeping.as_mut().map(|keeping| keeping.wanted_back())
    }

    /// It is not sent anew any more.
    pub(crate) fn settle(&mut self) {
        if self.keeping.as_mut().is_some_and(|keeping| keeping.settle()) {
            self.keeping = None;
        }
    }

    /// The next that the body gives, or has given to an earlier attempt.
    #[inline]
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(keeping) = &mut self.keeping else { return Pin::new(&mut self.body).poll_frame(cx) };
        if let Some(chunk) = keeping.next() {
            return Poll::Ready(Some(Ok(Frame::data(chunk))));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let is_kept = match &frame {
            Some(Ok(frame)) => frame.data_ref().is_none_or(|chunk| keeping.add(chunk)),
            Some(Err(_)) => false,
            None => {
                // The next attempt finds its end as well.
                self.body = Body::empty();
                true
            }
        };
        if !is_kept {
            self.keeping = None;
        }
        Poll::Ready(frame)
    }

    /// Whether a message is translated elsewhere, before which nothing of it may be sent.
    pub(crate) fn is_decoding(&self) -> bool {
        self.decoding.as_deref().is_some_and(|decoding| matches!(decoding, Decoding::Begun(_)))
    }

    /// Has a long message that is to go as an object decoded elsewhere, or one that came as an object made ready. Ready: there is none, or
    /// that is done.
    fn poll_decoded(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.decoding.is_none() {
            self.decoding = self.begin_decoding().map(Box::new);
        }
        self.decoding.as_mut().map_or(Poll::Ready(()), |decoding| decoding.poll(cx))
    }

    fn begin_decoding(&mut self) -> Option<Decoding> {
        let is_taken = self.objects.as_ref().is_some_and(|objects| objects.taken == Some(true));
        let reader = self.bypass.as_ref().and_then(Bypass::translation).filter(|_| is_taken);
        if let Some(past) = &self.past {
            let relayed = past.clone().relayed()?;
            if !is_too_much(&mut self.here, relayed.len()) {
                return None;
            }
            return Decoding::begin_ready(relayed, reader);
        }
        let (reader, message) = (reader?, self.emission.message.as_ref()?);
        if message.compressed || message.is_begun() {
            return None;
        }
        is_too_much(&mut self.here, message.len()).then(|| Decoding::begin(reader, message.to_bytes()))
    }

    /// Moves the next message of the body, or its end, into the emission. Pending: the body has nothing now, or the message is decoded
    /// elsewhere.
    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        while self.emission.message.is_none() && !self.ended {
            if let (Some(objects), Some(bypass)) = (&mut self.objects, &self.bypass) {
                objects.ask(bypass);
            }
            let (bypass, takes) = (self.bypass.as_ref(), takes(self.objects.as_ref(), self.bypass.as_ref()));
            if let Some((sharing, _)) = &self.session
                && let Some((batch, count)) =
                    next_batch(&mut self.deframer, bypass, takes, sharing, self.count, &mut self.here)
            {
                self.count += count as u64;
                if self.objects.as_ref().is_some_and(|objects| objects.taken == Some(false)) {
                    (0..count).for_each(|_| sharing.payloads.met_other_schema());
                }
                (self.emission.message, self.past, self.is_raw) = (Some(batch), None, false);
                break;
            }
            if let Some(message) = self.deframer.next() {
                self.emission.message = Some(message);
                self.is_raw = true;
                self.past = self.bypass.as_ref().and_then(|bypass| bypass.take_out(self.count));
                self.count += 1;
                break;
            }
            if let Some(failure) = self.failed.take() {
                return Poll::Ready(Err(failure));
            }
            let Poll::Ready(polled) = self.poll_body(cx) else {
                self.here = 0;
                return Poll::Pending;
            };
            match polled {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.deframer.push(data);
                    }
                }
                Some(Err(error)) => return Poll::Ready(Err(status::as_it_was(error))),
                None if self.deframer.is_partial() => {
                    return Poll::Ready(Err(status::of_content(
                        Code::Internal,
                        "the request ends in the middle of a message",
                    )));
                }
                None => self.end(),
            }
        }
        if self.is_raw {
            ready!(self.poll_decoded(cx));
            return Poll::Ready(self.wrap());
        }
        Poll::Ready(Ok(()))
    }

    /// Makes the message at hand a rope, where that is worth it and the session can have one.
    fn wrap(&mut self) -> Result<(), Status> {
        let Some((sharing, session)) = self.session.clone() else { return Ok(()) };
        self.wrap_for(&sharing, &session)
    }

    /// The same for this session. A message that came past tonic is encoded for it.
    fn wrap_for(&mut self, sharing: &Sharing, session: &Attachment) -> Result<(), Status> {
        self.is_raw = false;
        let made = match self.decoding.take().map(|decoding| *decoding) {
            Some(Decoding::Done(made)) => Some(made?),
            _ => None,
        };
        let message = &mut self.emission.message;
        let taken = self.objects.as_ref().and_then(|objects| objects.taken);
        if taken == Some(false) && message.is_some() {
            sharing.payloads.met_other_schema();
        }
        let translation = self.bypass.as_ref().and_then(Bypass::translation);
        let ready = made.as_ref().and_then(|made| made.relayed.clone());
        let past = ready.map(|relayed| relayed as Arc<dyn Large>).or_else(|| self.past.clone());
        if let Some(past) = past {
            let takes = takes(self.objects.as_ref(), self.bypass.as_ref());
            let encoded = past.encode(sharing, session.peer_pool(), session, takes)?;
            let is_done = translation.is_none() || encoded.is_object();
            *message = Some(encoded);
            if is_done {
                return Ok(());
            }
        }
        if taken == Some(true)
            && let Some(translation) = translation
            && let Some(whole) = message.as_ref().filter(|whole| !whole.is_begun())
        {
            let object = match made {
                _ if whole.compressed => None,
                Some(made) => made.object,
                None => translation.object(&whole.to_bytes())?,
            };
            if let Some(object) = object
                && let Some(object) = sharing.object(object, None, session.peer_pool(), session)?
            {
                *message = Some(object);
                return Ok(());
            }
        }
        sharing.wrap(message, session.peer_pool(), session)
    }

    /// It goes to this session.
    pub(crate) fn address(
        &mut self,
        sharing: &Arc<Sharing>,
        session: &Arc<Attachment>,
    ) -> Result<(), Status> {
        if !self.addressed {
            self.addressed = true;
            let is_translated = self.bypass.as_ref().is_some_and(|bypass| bypass.translation().is_some());
            let is_large = |message: &&Outgoing| is_translated || sharing.is_large(message.len());
            self.plain = self.emission.message.as_ref().filter(is_large).cloned();
            self.wrap_for(sharing, session)?;
            if !self.ended {
                self.session = Some((sharing.clone(), session.clone()));
            }
        }
        Ok(())
    }

    /// It is to go to this session, or to it after all, and nothing of it has gone anywhere. A message that came past tonic is
    /// encoded anew then.
    pub(crate) fn place(&mut self, session: &Arc<Attachment>, path: &PathAndQuery) {
        let says_encoding = || self.emission.headers.as_deref().is_some_and(says_encoding);
        // How messages are compressed is left to tonic, at the server too.
        let types = self.bypass.as_ref().and_then(Bypass::types).filter(|_| !says_encoding());
        self.objects =
            types.map(|types| Objects { session: session.clone(), path: path.clone(), types, taken: None });
        self.session = None;
        // It may be of other types there.
        self.decoding = None;
        if std::mem::take(&mut self.addressed)
            && let Some(plain) = self.plain.take()
        {
            self.emission.message = Some(plain);
            self.is_raw = true;
        }
    }

    /// Looks whether the body ends right after the message at hand, so that both go in one frame.
    pub(crate) fn look_ahead(&mut self, cx: &mut Context<'_>) {
        if self.ended || self.deframer.is_partial() {
            return;
        }
        match self.poll_body(cx) {
            Poll::Ready(None) => self.end(),
            Poll::Ready(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    self.deframer.push(data);
                }
            }
            Poll::Ready(Some(Err(failure))) => self.failed = Some(status::as_it_was(failure)),
            Poll::Pending => {}
        }
    }

    fn end(&mut self) {
        self.ended = true;
        self.emission.ending = Some(Ending::HalfClose);
    }

    /// Sends all of the body. Ready when it is sent, or can't be any more.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>, call: &ClientCall) -> Poll<Result<(), Status>> {
        let mut turn = Turn::default();
        loop {
            ready!(self.poll_send_next(cx, call)?);
            if self.is_over {
                return Poll::Ready(Ok(()));
            }
            ready!(turn.poll_step(cx));
        }
    }

    /// The same for a task that has other things to do as well: ready with nothing when there is more than what it has sent.
    pub(crate) fn poll_send_some(
        &mut self,
        cx: &mut Context<'_>,
        call: &ClientCall,
    ) -> Poll<Option<Result<(), Status>>> {
        for _ in 0..SOME_COUNT {
            match ready!(self.poll_send_next(cx, call)) {
                Ok(()) if !self.is_over => {}
                ended => return Poll::Ready(Some(ended)),
            }
        }
        Poll::Ready(None)
    }

    /// Sends what is at hand, and takes the next message of the body.
    fn poll_send_next(&mut self, cx: &mut Context<'_>, call: &ClientCall) -> Poll<Result<(), Status>> {
        if !self.emission.is_empty() && !self.is_decoding() {
            match ready!(call.stream.poll_emit(cx, &mut self.emission)) {
                Ok(()) => self.past = None,
                // The reader learns how the call ended.
                Err(EmitError::Ended | EmitError::Closed(_)) => {
                    self.is_over = true;
                    return Poll::Ready(Ok(()));
                }
                Err(error) => return Poll::Ready(Err(status::emit(error, &call.peer))),
            }
        }
        if self.ended && !self.is_decoding() {
            self.is_over = true;
            return Poll::Ready(Ok(()));
        }
        if self.poll_fill(cx)?.is_pending() {
            // While the application has nothing to send, only the call's end is of interest.
            ready!(call.stream.poll_ended(cx));
            self.is_over = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends what is at hand, without asking the body for more.
    pub(crate) fn poll_send_first(
        &mut self,
        cx: &mut Context<'_>,
        call: &ClientCall,
    ) -> Poll<Result<(), Status>> {
        match ready!(call.stream.poll_emit(cx, &mut self.emission)) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(EmitError::Ended | EmitError::Closed(_)) => {
                self.ended = true;
                self.emission = Emission::default();
                Poll::Ready(Ok(()))
            }
            Err(error) => Poll::Ready(Err(status::emit(error, &call.peer))),
        }
    }
}

/// A call whose request is sent by a task. Where that goes with its runtime, nothing of the request stays.
struct Sending(Arc<ClientCall>);

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.outflow.give_up();
    }
}

/// Sends the rest of a request body while the application reads the response.
pub(crate) async fn send_rest(call: Arc<ClientCall>) {
    let call = Sending(call);
    let call = &*call.0;
    let sent = std::future::poll_fn(|cx| call.outflow.poll(cx, call)).await;
    let Some((mut sender, result)) = sent else { return };
    if let Err(failure) = result {
        let code = failure.code() as u16;
        *call.failure.lock() = Some(failure);
        // The application may be waiting for the response: it is to learn of this.
        call.stream.abort(code);
    }
    if let Some(reader) = sender.keeping.as_mut().and_then(|keeping| keeping.take_reader()) {
        // Its answer may have begun.
        drop(reader.send(sender));
    }
}
