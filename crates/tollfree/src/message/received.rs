//! Received messages, put together again where they are segmented messages.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::time::Instant;
use tollfree_driver_tokio::{
    Chunk, Claim, Closed, End, GRPC_PREFIX_LEN, IncomingPiece, OBJECT_PREFIX, Part, Stream, join,
};
use tollfree_layout::limits::OBJECT_LEN_MAX;
use tollfree_pool::{Plan, Pool, RefError, SegmentedMessage};
use tonic::{Code, Status};

use crate::message::aside::{Aside, Worked};
use crate::message::encoding::{RECEIVED_LEN_MAX, in_one, too_long};
use crate::message::form::unasked;
use crate::message::holdings::Held;
use crate::message::out_of_band::{OutOfBand, Past};
use crate::message::payloads::{Payloads, Sharing};
use crate::status::{self, of_content};

/// A segmented message whose extents are on their way here.
pub(crate) type Fetching = Pin<Box<dyn Future<Output = Result<SegmentedMessage, Status>> + Send>>;

/// A segmented message that came, with hold taken of its refs, or about to be.
pub(crate) enum Mapped {
    Here(SegmentedMessage),
    Fetching(Fetching),
}

/// Takes hold of a segmented message's refs, for a reader of messages of at most `limit` bytes. The sender is told as soon as that is done,
/// or can't be; what can't be mapped here it is asked for.
///
/// # Errors
/// The status for a message that is too long, that is no segmented message, or that has refs that can't be had.
pub(crate) fn map(sharing: &Sharing, bytes: Bytes, claim: Claim, limit: usize) -> Result<Mapped, Status> {
    let copied = bytes.len();
    let plan = Plan::parse(bytes).map_err(|error| status::segmented(&error))?;
    let Some(pool) = sharing.reads_in.get().or(sharing.pool.as_ref()) else {
        return Err(of_content(Code::Internal, "a message with refs came, and there is no pool here"));
    };
    if plan.len() > limit {
        return Err(too_long(plan.len(), limit));
    }
    match plan.try_map(pool) {
        Ok(segmented) => {
            drop(claim);
            sharing.payloads.received_by_ref(plan.ref_bytes(), copied);
            Ok(Mapped::Here(segmented))
        }
        Err(error) if error.may_be_asked_for() => {
            let fetching = fetch(plan, copied, pool.clone(), sharing.payloads.clone(), claim);
            Ok(Mapped::Fetching(Box::pin(fetching)))
        }
        Err(error) => Err(refused(&error, &claim, &sharing.payloads)),
    }
}

/// The status for refs that can't be had. A sender that has died keeps nothing any more, whatever its refs look like then.
fn refused(error: &RefError, claim: &Claim, payloads: &Payloads) -> Status {
    payloads.refused();
    let status = status::refs(error);
    match claim.session_closed() {
        Some(closed) if !error.is_forbidden() => {
            Status::unavailable(format!("{}; its session {closed}", status.message()))
        }
        _ => status,
    }
}

/// The same where extents have to be fetched first, or their sender asked for what is in them.
async fn fetch(
    plan: Plan,
    copied: usize,
    pool: Pool,
    payloads: Payloads,
    claim: Claim,
) -> Result<SegmentedMessage, Status> {
    let mut fetching = tollfree_pool::Fetching::new(&plan, &pool);
    let fetched = loop {
        let turn = match fetching.turn() {
            Ok(turn) => turn,
            Err(error) => break Err(error),
        };
        let began = Instant::now();
        match tokio::time::timeout(turn, poll_fn(|cx| fetching.poll(cx))).await {
            Ok(fetched) => break fetched,
            Err(_) => fetching.waited(began.elapsed()),
        }
    };
    match fetched {
        Ok(segmented) => {
            drop(claim);
            payloads.received_by_ref(plan.ref_bytes(), copied);
            Ok(segmented)
        }
        Err(error) if error.may_be_asked_for() => {
            let filled = ask(&plan, &claim).await.ok_or_else(|| refused(&error, &claim, &payloads))?;
            payloads.received_inline(plan.len(), copied + plan.ref_bytes());
            Ok(filled)
        }
        Err(error) => Err(refused(&error, &claim, &payloads)),
    }
}

/// Asks the sender of a segmented message for the bytes of its refs. `None`: it doesn't give them, or is gone.
async fn ask(plan: &Plan, claim: &Claim) -> Option<SegmentedMessage> {
    claim.want_bytes(u32::try_from(plan.ref_bytes()).ok()?);
    let bytes = poll_fn(|cx| claim.poll_bytes(cx)).await.ok()??;
    plan.fill(bytes)
}

/// What a reader of an HTTP body is given.
pub(crate) enum BodyStep {
    /// Response headers.
    Headers,
    /// Bytes of messages in gRPC's framing.
    Data(Bytes),
    /// The peer has said all.
    End(End),
    /// A message can't be had: the call is to end so.
    Failed(Status),
}

/// As much of a batch's objects as is given at once, encoded.
const GIVEN_LEN: usize = 32 * 1024;

/// An empty message in gRPC's framing.
const EMPTY: Bytes = Bytes::from_static(&[0; GRPC_PREFIX_LEN]);

/// What the reader of a body is given of a message.
pub(crate) enum Given {
    /// This.
    Now(Bytes),
    /// What comes of it on a thread that serves no calls.
    Later(Later),
}

/// What is done to a long object aside. It is counted until that is here.
pub(crate) type Later = Aside<(Result<Bytes, Status>, Held)>;

/// Puts an object past a body that stands in for it, where its prefix says that it is one; all of it is here. What its reader is
/// given instead.
///
/// # Errors
/// INTERNAL for an object that the body's reader has not asked for, or that is not sound; RESOURCE_EXHAUSTED where there is no room for it.
pub(crate) fn past(
    out_of_band: Option<&OutOfBand>,
    number: u64,
    data: Bytes,
    sharing: &Sharing,
) -> Result<Given, Status> {
    if !is_object(&data) {
        count_bytes(out_of_band, &data);
        return Ok(Given::Now(data));
    }
    // Its bytes are no message to the body's reader.
    let out_of_band = out_of_band.filter(|out_of_band| out_of_band.is_for_objects()).ok_or_else(unasked)?;
    give_object(out_of_band, number, data.slice(GRPC_PREFIX_LEN..), sharing, None, &mut Worked::default())
}

/// Counts a message that came as bytes where an object would have been encoded.
fn count_bytes(out_of_band: Option<&OutOfBand>, data: &[u8]) {
    if let Some(converter) = out_of_band.and_then(OutOfBand::converter).filter(|_| !data.is_empty()) {
        converter.came_encoded();
    }
}

/// The same of a batch.
fn count_batch(out_of_band: Option<&OutOfBand>, count: u32) {
    if let Some(converter) = out_of_band.and_then(OutOfBand::converter) {
        (0..count).for_each(|_| converter.came_encoded());
    }
}

/// What the reader of a body gets of an object, which may be counted already: an empty message, as it takes the object past the body; or
/// its encoding. `worked`: what was verified on this thread since the reader has waited.
fn give_object(
    out_of_band: &OutOfBand,
    number: u64,
    object: Bytes,
    sharing: &Sharing,
    held: Option<Held>,
    worked: &mut Worked,
) -> Result<Given, Status> {
    sharing.payloads.received_object();
    if let Some(turns) = out_of_band.turns_of(object.len())
        && worked.is_too_much(object.len())
    {
        let held = held.map_or_else(|| out_of_band.count(object.len()), Ok)?;
        let out_of_band = out_of_band.clone();
        let give = move || (out_of_band.give_object(number, object).map(given), held);
        return Ok(Given::Later(turns.begin(give)));
    }
    out_of_band.give_object(number, object).map(|encoded| Given::Now(given(encoded)))
}

fn given(encoded: Option<Bytes>) -> Bytes {
    encoded.unwrap_or(EMPTY)
}

/// Whether a message that begins so is a flat message.
fn is_object(data: &[u8]) -> bool {
    data.len() >= GRPC_PREFIX_LEN && data[0] == OBJECT_PREFIX
}

/// Reads a call for an HTTP body: chunks as they come, segmented messages as the bytes that they stand for, or past the body, as objects
/// always go.
#[derive(Default)]
pub(crate) struct Inflow {
    state: State,
    /// Came together with what was read last.
    rest: Option<Part>,
    /// Where segmented messages go, once the reader's end says that it takes them.
    out_of_band: Option<OutOfBand>,
    /// Messages begun.
    count: u64,
    /// Bytes of objects that were verified here since more was waited for.
    worked: Worked,
    /// What is left of a batch of objects, each behind its prefix.
    objects: Bytes,
    /// Why what follows is not given.
    refused: Option<Status>,
}

#[derive(Default)]
enum State {
    /// Between messages, or in one that is no segmented message.
    #[default]
    Plain,
    /// In the middle of a segmented message. Its reader has been told how long it will be, once that is known.
    Gathering(Gathering),
    /// In the middle of an object.
    Joining(PartialObject),
    /// A long one is being verified elsewhere.
    Waiting(Later),
    /// And where it goes then.
    Fetching(Fetching, To),
    /// Pieces to be given, never none.
    Giving(VecDeque<Bytes>),
}

/// Where a segmented message's message goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    Body,
    /// Past the body, whose reader is told nothing of it.
    Past,
    /// The same of a flat message.
    PastAsObject,
}

/// An object that is put together.
struct PartialObject {
    /// What has come of it, prefix included.
    pieces: BytesMut,
    /// How long it will be, with that.
    len: usize,
    /// How many bytes were copied to put it together.
    copied: usize,
    held: Held,
}

struct Gathering {
    claim: Claim,
    compressed: u8,
    /// Bytes that the segmented message says it has as it travels.
    len: usize,
    pieces: BytesMut,
    told: bool,
    to: To,
}

impl Gathering {
    /// The prefix of the message that the segmented message stands for, once enough of it is there; `Err` for a segmented message much longer than that.
    fn prefix(&mut self) -> Result<Option<Bytes>, Status> {
        let is_due = !self.told && self.to == To::Body;
        let Some(len) = Plan::stated_len(&self.pieces).filter(|_| is_due) else { return Ok(None) };
        if self.len > Plan::travelling_len_max(len) {
            return Err(of_content(
                Code::Internal,
                "protocol error: a message with refs is longer than without",
            ));
        }
        self.told = true;
        let mut prefix = BytesMut::with_capacity(GRPC_PREFIX_LEN);
        prefix.put_u8(self.compressed);
        prefix.put_u32(len as u32);
        Ok(Some(prefix.freeze()))
    }
}

impl Inflow {
    /// Begins with what has come already.
    pub(crate) fn after(rest: Option<Part>, out_of_band: Option<OutOfBand>) -> Inflow {
        Inflow { rest, out_of_band, ..Inflow::default() }
    }

    /// A segmented message as its reader gets it: past the body, or in pieces.
    ///
    /// # Errors
    /// The status for an object that is refused.
    fn give(&mut self, segmented: SegmentedMessage, to: To, sharing: &Sharing) -> Result<(), Status> {
        let (len, number) = (segmented.remaining(), self.count - 1);
        let pieces = match (&self.out_of_band, to) {
            (None, _) | (_, To::Body) => segmented.into_segments().collect(),
            (Some(out_of_band), To::Past) => {
                out_of_band.put_back(number, len, Past::SegmentedMessage(segmented));
                [EMPTY].into()
            }
            (Some(out_of_band), To::PastAsObject) => {
                match give_object(out_of_band, number, in_one(segmented), sharing, None, &mut self.worked)? {
                    Given::Now(data) => [data].into(),
                    Given::Later(later) => {
                        self.state = State::Waiting(later);
                        return Ok(());
                    }
                }
            }
        };
        self.state = State::Giving(pieces);
        Ok(())
    }

    /// The next thing received, as it came.
    fn poll_incoming(
        &mut self,
        cx: &mut Context<'_>,
        stream: &Stream,
        waits: bool,
    ) -> Poll<Result<IncomingPiece, Closed>> {
        loop {
            if let Some(rest) = &mut self.rest {
                match rest.take_next() {
                    Some(incoming) => return Poll::Ready(Ok(incoming)),
                    None => self.rest = None,
                }
            }
            let incoming = match waits {
                true => stream.poll_incoming(cx)?,
                false => stream.try_incoming()?.map_or(Poll::Pending, Poll::Ready),
            };
            let Poll::Ready(incoming) = incoming else {
                self.worked.waits();
                return Poll::Pending;
            };
            self.rest = Some(incoming.into_part());
        }
    }

    /// The next thing received. Who does not wait for it asks again soon.
    ///
    /// # Errors
    /// Ready with the reason in a child of `fork`.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        stream: &Stream,
        sharing: &Arc<Sharing>,
        waits: bool,
    ) -> Poll<Result<BodyStep, Closed>> {
        loop {
            match &mut self.state {
                State::Giving(pieces) => {
                    let piece = pieces.pop_front();
                    if pieces.is_empty() {
                        self.state = State::Plain;
                    }
                    if let Some(piece) = piece {
                        return Poll::Ready(Ok(BodyStep::Data(piece)));
                    }
                }
                State::Fetching(fetching, to) => {
                    let to = *to;
                    match ready!(fetching.as_mut().poll(cx)) {
                        Ok(segmented) => {
                            if let Err(failure) = self.give(segmented, to, sharing) {
                                return Poll::Ready(Ok(BodyStep::Failed(failure)));
                            }
                        }
                        Err(failure) => return Poll::Ready(Ok(BodyStep::Failed(failure))),
                    }
                }
                State::Waiting(later) => {
                    let done = ready!(later.poll(cx)).and_then(|(given, _)| given);
                    self.state = State::Plain;
                    return Poll::Ready(Ok(done.map_or_else(BodyStep::Failed, BodyStep::Data)));
                }
                State::Plain if !self.objects.is_empty() => match self.unpack(sharing) {
                    Ok(Some(data)) => return Poll::Ready(Ok(BodyStep::Data(data))),
                    Ok(None) => {}
                    Err(failure) => return Poll::Ready(Ok(BodyStep::Failed(failure))),
                },
                State::Plain | State::Gathering(_) | State::Joining(_) => {
                    match ready!(self.poll_incoming(cx, stream, waits))? {
                        IncomingPiece::Headers(_) => return Poll::Ready(Ok(BodyStep::Headers)),
                        IncomingPiece::End(end) => return Poll::Ready(Ok(BodyStep::End(end))),
                        IncomingPiece::Chunk(chunk) => match self.add(chunk, sharing) {
                            Ok(Some(data)) => return Poll::Ready(Ok(BodyStep::Data(data))),
                            Ok(None) => {}
                            Err(failure) => return Poll::Ready(Ok(BodyStep::Failed(failure))),
                        },
                    }
                }
            }
        }
    }

    /// Where objects go, once the reader's end says that it takes them.
    pub(crate) fn out_of_band(&self) -> Option<&OutOfBand> {
        self.out_of_band.as_ref()
    }

    /// The reader's limit, where it takes objects.
    fn objects_limit(&self) -> Option<usize> {
        self.out_of_band.as_ref().filter(|out_of_band| out_of_band.is_for_objects())?.back_limit()
    }

    /// Takes the next chunk of an object for a reader of messages of at most `limit` bytes: what that is given, once all is here.
    fn join(
        &mut self,
        bytes: BytesMut,
        last: bool,
        sharing: &Sharing,
        limit: usize,
    ) -> Result<Option<Bytes>, Status> {
        let out_of_band = self.out_of_band.as_ref().ok_or_else(unasked)?;
        let (data, held) = match std::mem::take(&mut self.state) {
            State::Joining(mut joining) => {
                // More than a word stands behind the length by now, and it is within the limit.
                joining.copied += join(&mut joining.pieces, bytes, joining.len);
                if !last {
                    self.state = State::Joining(joining);
                    return Ok(None);
                }
                let whole = joining.pieces.freeze();
                sharing.received_inline(whole.len() - GRPC_PREFIX_LEN, joining.copied);
                (whole, Some(joining.held))
            }
            _ => {
                let len = (&bytes[1..GRPC_PREFIX_LEN]).get_u32() as usize;
                // Whether its encoding is too long is known when it is verified.
                if len > limit.max(OBJECT_LEN_MAX) {
                    return Err(too_long(len, limit));
                }
                if !last {
                    let (len, held) = (len + GRPC_PREFIX_LEN, out_of_band.count(len)?);
                    self.state = State::Joining(PartialObject { pieces: bytes, len, copied: 0, held });
                    return Ok(None);
                }
                sharing.received_inline(len, 0);
                (bytes.freeze(), None)
            }
        };
        self.give_whole(data.slice(GRPC_PREFIX_LEN..), sharing, held)
    }

    /// What the reader of the body is given of an object, all of which is here. `None`: that is done elsewhere.
    fn give_whole(
        &mut self,
        object: Bytes,
        sharing: &Sharing,
        held: Option<Held>,
    ) -> Result<Option<Bytes>, Status> {
        let out_of_band = self.out_of_band.as_ref().ok_or_else(unasked)?;
        Ok(match give_object(out_of_band, self.count - 1, object, sharing, held, &mut self.worked)? {
            Given::Now(data) => Some(data),
            Given::Later(later) => {
                self.state = State::Waiting(later);
                None
            }
        })
    }

    /// The next objects of a batch, one by one, up to the first that is verified elsewhere or refused.
    ///
    /// # Errors
    /// The status for an object that is refused, behind those before it.
    fn unpack(&mut self, sharing: &Sharing) -> Result<Option<Bytes>, Status> {
        if let Some(refused) = self.refused.take() {
            return Err(refused);
        }
        let mut given = BytesMut::new();
        // The session has looked whether they are whole.
        while let Some([_, len @ ..]) = self.objects.first_chunk::<GRPC_PREFIX_LEN>()
            && given.len() < GIVEN_LEN
        {
            let len = u32::from_be_bytes(*len) as usize;
            let object = self.objects.slice(GRPC_PREFIX_LEN..GRPC_PREFIX_LEN + len);
            self.count += 1;
            sharing.received_inline(len, 0);
            let whole = self.give_whole(object, sharing, None);
            match whole {
                Err(refused) if given.is_empty() => return Err(refused),
                Err(refused) => {
                    self.refused = Some(refused);
                    break;
                }
                Ok(data) => {
                    self.objects.advance(GRPC_PREFIX_LEN + len);
                    match data {
                        Some(data) => given.put_slice(&data),
                        None => break,
                    }
                }
            }
        }
        Ok(Some(given.freeze()).filter(|given| !given.is_empty()))
    }

    /// Takes the next chunk. What can be given to the reader of it is given at once.
    fn add(&mut self, chunk: Chunk, sharing: &Sharing) -> Result<Option<Bytes>, Status> {
        if let State::Joining(_) = self.state {
            return self.join(chunk.bytes, chunk.last, sharing, RECEIVED_LEN_MAX);
        }
        let Chunk { mut bytes, first, last, batch_count, segmented } = chunk;
        if batch_count > 0 && is_object(&bytes) {
            self.objects_limit().ok_or_else(unasked)?;
            self.objects = bytes.freeze();
            return Ok(None);
        }
        if batch_count > 0 {
            self.count += u64::from(batch_count);
            count_batch(self.out_of_band.as_ref(), batch_count);
            return Ok(Some(bytes.freeze()));
        }
        if let State::Plain = self.state {
            self.count += u64::from(first);
            let is_object = first && is_object(&bytes);
            let objects_limit = self.objects_limit();
            if is_object && segmented.is_none() {
                return self.join(bytes, last, sharing, objects_limit.ok_or_else(unasked)?);
            }
            if first && !is_object {
                count_bytes(self.out_of_band.as_ref(), &bytes);
            }
            let Some(claim) = segmented else {
                if first && bytes.len() >= GRPC_PREFIX_LEN {
                    let len = (&bytes[1..GRPC_PREFIX_LEN]).get_u32() as usize;
                    if sharing.is_large(len) {
                        sharing.payloads.received_inline(len, len);
                    }
                }
                return Ok(Some(bytes.freeze()));
            };
            let (compressed, len) = (bytes.get_u8(), bytes.get_u32() as usize);
            let (to, limit) = match &self.out_of_band {
                _ if is_object => {
                    (To::PastAsObject, Some(objects_limit.ok_or_else(unasked)?.max(OBJECT_LEN_MAX)))
                }
                Some(out_of_band) if compressed == 0 && out_of_band.back_limit().is_some() => {
                    (To::Past, out_of_band.back_limit())
                }
                _ => (To::Body, None),
            };
            if let Some(limit) = limit.filter(|limit| len > Plan::travelling_len_max(*limit)) {
                return Err(too_long(len, limit));
            }
            self.state =
                State::Gathering(Gathering { claim, compressed, len, pieces: bytes, told: false, to });
        } else if let State::Gathering(gathering) = &mut self.state {
            join(&mut gathering.pieces, bytes, gathering.len);
        }
        let State::Gathering(gathering) = &mut self.state else { return Ok(None) };
        let prefix = gathering.prefix()?;
        if !last {
            return Ok(prefix);
        }
        let State::Gathering(gathering) = std::mem::take(&mut self.state) else { return Ok(None) };
        let back_limit = self.out_of_band.as_ref().and_then(OutOfBand::back_limit).unwrap_or(usize::MAX);
        let limit = match gathering.to {
            // Who reads the body holds its own limit against the prefix, before anything is fetched.
            To::Body => usize::MAX,
            To::Past => back_limit,
            To::PastAsObject => back_limit.max(OBJECT_LEN_MAX),
        };
        match map(sharing, gathering.pieces.freeze(), gathering.claim, limit)? {
            Mapped::Here(segmented) => self.give(segmented, gathering.to, sharing)?,
            Mapped::Fetching(fetching) => self.state = State::Fetching(fetching, gathering.to),
        }
        Ok(prefix)
    }
}

impl std::fmt::Debug for Inflow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = match &self.state {
            State::Plain => "plain",
            State::Gathering(_) => "gathering",
            State::Joining(_) => "joining",
            State::Waiting(_) => "waiting",
            State::Fetching(..) => "fetching",
            State::Giving(_) => "giving",
        };
        f.debug_tuple("Inflow").field(&state).finish()
    }
}
