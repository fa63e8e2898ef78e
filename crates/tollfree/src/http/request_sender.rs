//! The request of a call by a session, sent message by message out of an HTTP body.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::uri::PathAndQuery;
use tokio::sync::oneshot;
use tollfree_driver_tokio::{Attachment, Encoded, Ending, Outgoing, OutgoingMessage, SendError};
use tonic::Status;
use tonic::body::Body;

use crate::call::turn::PollTurn;
use crate::http::keeping::KeptRequest;
use crate::http::request_source::RequestSource;
use crate::http::response_body::ClientCall;
use crate::message::aside::{Aside, Worked};
use crate::message::converter::Converter;
use crate::message::encoding::says_encoding;
use crate::message::out_of_band::{Large, OutOfBand, Takes};
use crate::message::payloads::Sharing;
use crate::message::relay::{ReadyRequest, Relayed};
use crate::status;

/// Sends a request body message by message.
pub(crate) struct RequestSender {
    source: RequestSource,
    /// What is sent next.
    outgoing: Outgoing,
    /// The message at hand, if it came past tonic: an empty one stands in for it until it is encoded for a session.
    past: Option<Arc<dyn Large>>,
    /// The message at hand is as it came: it was not made what the session takes yet.
    is_raw: bool,
    /// It is converted elsewhere.
    decoding: Option<Box<Decoding>>,
    /// Messages that were converted here since the body had nothing.
    worked: Worked,
    /// Where large messages come from.
    out_of_band: Option<OutOfBand>,
    /// Where the method's stubs take objects.
    objects: Option<ObjectsTaken>,
    addressed: Addressed,
    /// All of it is sent, or nobody wants it any more.
    is_over: bool,
}

/// Whether it is known to which session a request goes.
enum Addressed {
    No,
    /// The first message as it was before it was made for that session, while it may have to go to another.
    First {
        plain: Option<OutgoingMessage>,
    },
    /// Messages are still to come: large ones may be made segmented messages for that session.
    All {
        plain: Option<OutgoingMessage>,
        sharing: Arc<Sharing>,
        session: Arc<Attachment>,
    },
}

impl Addressed {
    fn session(&self) -> Option<(&Arc<Sharing>, &Arc<Attachment>)> {
        match self {
            Addressed::All { sharing, session, .. } => Some((sharing, session)),
            _ => None,
        }
    }
}

/// What a message is converted to.
struct Made {
    /// It came as an object, and has been made ready.
    relayed: Option<Arc<Relayed>>,
    /// Its object, if it has one and did not come as one.
    object: Option<Encoded>,
}

/// Messages, or batches, that who waits for the answer sends before it looks for that.
const SOME_COUNT: usize = 3;

/// A message that is converted elsewhere.
enum Decoding {
    Begun(Aside<Result<Made, Status>>),
    Done(Result<Made, Status>),
}

impl Decoding {
    fn begin(converter: &Arc<dyn Converter>, message: Bytes) -> Decoding {
        let own = converter.clone();
        let made = move || own.flat(&message).map(|object| Made { relayed: None, object });
        Decoding::Begun(converter.turns().begin(made))
    }

    /// `None`: nothing has to be done to it.
    fn begin_ready(relayed: Arc<Relayed>, reader: Option<&Arc<dyn Converter>>) -> Option<Decoding> {
        let (turns, reader) = (relayed.turns()?.clone(), reader.cloned());
        Some(Decoding::Begun(turns.begin(move || {
            let ReadyRequest { relayed, anew } = relayed.ready(reader.as_deref())?;
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
struct ObjectsTaken {
    session: Arc<Attachment>,
    path: PathAndQuery,
    /// The fingerprint of the method's types.
    types: u64,
    /// Whether the server takes them, once it has said so.
    taken: Option<bool>,
}

impl ObjectsTaken {
    /// Asks whether the server has said something meanwhile, for messages that are read from now on.
    fn ask(&mut self, out_of_band: &OutOfBand) {
        if self.taken.is_none() {
            self.taken = self.session.takes_objects(self.path.as_str(), self.types);
            out_of_band.take_objects(self.taken == Some(true));
        }
    }
}

/// What the session's other end takes of the call's messages.
fn takes<'b>(objects: Option<&ObjectsTaken>, out_of_band: Option<&'b OutOfBand>) -> Takes<'b> {
    match (objects.and_then(|objects| objects.taken), out_of_band.and_then(OutOfBand::converter)) {
        (Some(true), Some(converter)) => Takes::ObjectsOf(converter),
        (Some(true), None) => Takes::Objects,
        _ => Takes::Bytes,
    }
}

impl RequestSender {
    pub(crate) fn new(body: Body, outgoing: Outgoing, out_of_band: Option<OutOfBand>) -> RequestSender {
        RequestSender::of(RequestSource::new(body), outgoing, out_of_band)
    }

    fn of(source: RequestSource, outgoing: Outgoing, out_of_band: Option<OutOfBand>) -> RequestSender {
        let is_raw = outgoing.message.is_some();
        RequestSender {
            source,
            outgoing,
            past: None,
            is_raw,
            decoding: None,
            worked: Worked::default(),
            out_of_band,
            objects: None,
            addressed: Addressed::No,
            is_over: false,
        }
    }

    /// Keeps a request of which nothing has been sent, and what its body gives from here on, as far as that is short.
    pub(crate) fn keep(&mut self) -> KeptRequest {
        self.source.keep((&self.outgoing, &self.past), self.out_of_band.as_ref())
    }

    /// A request whose body has ended, which has gone nowhere yet.
    pub(crate) fn whole(outgoing: Outgoing, past: Option<Arc<dyn Large>>) -> RequestSender {
        RequestSender { past, ..RequestSender::of(RequestSource::ended(), outgoing, None) }
    }

    /// The same request from its beginning, where all of it is here still.
    pub(crate) fn again(self) -> Option<RequestSender> {
        let (source, (outgoing, past)) = self.source.again()?;
        Some(RequestSender { past, ..RequestSender::of(source, outgoing, self.out_of_band) })
    }

    /// Where the sender comes back once its task is done. `None`: the request is not kept any more.
    pub(crate) fn wanted_back(&mut self) -> Option<oneshot::Receiver<RequestSender>> {
        self.source.wanted_back()
    }

    /// It is not sent anew any more.
    pub(crate) fn settle(&mut self) {
        self.source.settle();
    }

    /// What is sent next, for a call that is opened with it.
    pub(crate) fn outgoing_mut(&mut self) -> &mut Outgoing {
        &mut self.outgoing
    }

    /// Nothing is at hand.
    pub(crate) fn has_said_all_at_hand(&self) -> bool {
        self.outgoing.is_empty()
    }

    /// All of it is sent.
    pub(crate) fn is_sent(&self) -> bool {
        self.source.has_ended() && self.outgoing.is_empty()
    }

    /// Whether a message is converted elsewhere, before which nothing of it may be sent.
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
        let reader = self.out_of_band.as_ref().and_then(OutOfBand::converter).filter(|_| is_taken);
        if let Some(past) = &self.past {
            let relayed = past.clone().relayed()?;
            if !self.worked.is_too_much(relayed.len()) {
                return None;
            }
            return Decoding::begin_ready(relayed, reader);
        }
        let (reader, message) = (reader?, self.outgoing.message.as_ref()?);
        if message.compressed || message.is_begun() {
            return None;
        }
        self.worked.is_too_much(message.len()).then(|| Decoding::begin(reader, message.to_bytes()))
    }

    /// Moves the next message of the body, or its end, into the outgoing. Pending: the body has nothing now, or the message is decoded
    /// elsewhere.
    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        while self.outgoing.message.is_none() && !self.source.has_ended() {
            if let (Some(objects), Some(out_of_band)) = (&mut self.objects, &self.out_of_band) {
                objects.ask(out_of_band);
            }
            let (out_of_band, takes) =
                (self.out_of_band.as_ref(), takes(self.objects.as_ref(), self.out_of_band.as_ref()));
            if let Some((sharing, _)) = self.addressed.session()
                && let Some((batch, count)) =
                    self.source.take_batch(out_of_band, takes, sharing, &mut self.worked)
            {
                if self.objects.as_ref().is_some_and(|objects| objects.taken == Some(false)) {
                    (0..count).for_each(|_| sharing.payloads.met_other_schema());
                }
                (self.outgoing.message, self.past, self.is_raw) = (Some(batch), None, false);
                break;
            }
            if let Some((message, past)) = self.source.take_message(out_of_band) {
                (self.outgoing.message, self.past, self.is_raw) = (Some(message), past, true);
                break;
            }
            match self.source.poll_more(cx) {
                Poll::Ready(more) => more?,
                Poll::Pending => {
                    self.worked.waits();
                    return Poll::Pending;
                }
            }
            self.close_if_ended();
        }
        if self.is_raw {
            ready!(self.poll_decoded(cx));
            return Poll::Ready(self.wrap());
        }
        Poll::Ready(Ok(()))
    }

    /// Makes the message at hand a segmented message, where that is worth it and the session can have one.
    fn wrap(&mut self) -> Result<(), Status> {
        let Some((sharing, session)) = self.addressed.session() else { return Ok(()) };
        let (sharing, session) = (sharing.clone(), session.clone());
        self.wrap_for(&sharing, &session)
    }

    /// The same for this session. A message that came past tonic is encoded for it.
    fn wrap_for(&mut self, sharing: &Sharing, session: &Attachment) -> Result<(), Status> {
        self.is_raw = false;
        let made = match self.decoding.take().map(|decoding| *decoding) {
            Some(Decoding::Done(made)) => Some(made?),
            _ => None,
        };
        let message = &mut self.outgoing.message;
        let taken = self.objects.as_ref().and_then(|objects| objects.taken);
        if taken == Some(false) && message.is_some() {
            sharing.payloads.met_other_schema();
        }
        let converter = self.out_of_band.as_ref().and_then(OutOfBand::converter);
        let ready = made.as_ref().and_then(|made| made.relayed.clone());
        let past = ready.map(|relayed| relayed as Arc<dyn Large>).or_else(|| self.past.clone());
        if let Some(past) = past {
            let takes = takes(self.objects.as_ref(), self.out_of_band.as_ref());
            let encoded = past.encode(sharing, session.peer_pool(), session, takes)?;
            let is_done = converter.is_none() || encoded.is_object();
            *message = Some(encoded);
            if is_done {
                return Ok(());
            }
        }
        if taken == Some(true)
            && let Some(converter) = converter
            && let Some(whole) = message.as_ref().filter(|whole| !whole.is_begun())
        {
            let object = match made {
                _ if whole.compressed => None,
                Some(made) => made.object,
                None => converter.flat(&whole.to_bytes())?,
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
        if let Addressed::No = self.addressed {
            let is_converted =
                self.out_of_band.as_ref().is_some_and(|out_of_band| out_of_band.converter().is_some());
            let is_large = |message: &&OutgoingMessage| is_converted || sharing.is_large(message.len());
            let plain = self.outgoing.message.as_ref().filter(is_large).cloned();
            self.addressed = Addressed::First { plain: plain.clone() };
            self.wrap_for(sharing, session)?;
            if !self.source.has_ended() {
                let (sharing, session) = (sharing.clone(), session.clone());
                self.addressed = Addressed::All { plain, sharing, session };
            }
        }
        Ok(())
    }

    /// It is to go to this session, or to it after all, and nothing of it has gone anywhere. A message that came past tonic is
    /// encoded anew then.
    pub(crate) fn place(&mut self, session: &Arc<Attachment>, path: &PathAndQuery) {
        let says_encoding = || self.outgoing.headers.as_deref().is_some_and(says_encoding);
        // How messages are compressed is left to tonic, at the server too.
        let types = self.out_of_band.as_ref().and_then(OutOfBand::types).filter(|_| !says_encoding());
        self.objects = types.map(|types| ObjectsTaken {
            session: session.clone(),
            path: path.clone(),
            types,
            taken: None,
        });
        // It may be of other types there.
        self.decoding = None;
        if let Addressed::First { plain: Some(plain) } | Addressed::All { plain: Some(plain), .. } =
            std::mem::replace(&mut self.addressed, Addressed::No)
        {
            self.outgoing.message = Some(plain);
            self.is_raw = true;
        }
    }

    /// Looks whether the body ends right after the message at hand, so that both go in one frame.
    pub(crate) fn look_ahead(&mut self, cx: &mut Context<'_>) {
        if !self.source.has_ended() {
            self.source.look_ahead(cx);
            self.close_if_ended();
        }
    }

    /// Says that there is no more, once that is so.
    fn close_if_ended(&mut self) {
        if self.source.has_ended() {
            self.outgoing.ending = Some(Ending::HalfClose);
        }
    }

    /// Sends all of the body. Ready when it is sent, or can't be any more.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>, call: &ClientCall) -> Poll<Result<(), Status>> {
        let mut turn = PollTurn::default();
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
        if !self.outgoing.is_empty() && !self.is_decoding() {
            match ready!(call.stream.poll_send(cx, &mut self.outgoing)) {
                Ok(()) => self.past = None,
                // The reader learns how the call ended.
                Err(SendError::Ended | SendError::Closed(_)) => {
                    self.is_over = true;
                    return Poll::Ready(Ok(()));
                }
                Err(error) => return Poll::Ready(Err(status::unsent(error, &call.peer))),
            }
        }
        if self.source.has_ended() && !self.is_decoding() {
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
        match ready!(call.stream.poll_send(cx, &mut self.outgoing)) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(SendError::Ended | SendError::Closed(_)) => {
                self.source.end();
                self.outgoing = Outgoing::default();
                Poll::Ready(Ok(()))
            }
            Err(error) => Poll::Ready(Err(status::unsent(error, &call.peer))),
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
    if let Some(reader) = sender.source.take_reader() {
        // Its answer may have begun.
        drop(reader.send(sender));
    }
}
