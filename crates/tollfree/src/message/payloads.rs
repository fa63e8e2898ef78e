//! Large payloads: whether they go by ref, and what came of it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tollfree_driver_tokio::{Attachment, DeferredEncoding, Encoded, Keep, OutgoingMessage, PeerPool, Stream};
use tollfree_layout::limits::OBJECT_LEN_MAX;
use tollfree_pool::{AllocError, Composed, Pool};
pub use tollfree_pool::{REF_THRESHOLD_DEFAULT, REF_THRESHOLD_ENCODED_DEFAULT};
use tonic::Status;

use crate::message::encoding::{check_len, encode};
use crate::message::form::Ready;
use crate::status;

/// Messages from this length on are encoded into shared memory, in bytes; shorter ones into a buffer that is copied there.
const DEFERRED_LEN_MIN: usize = 32 * 1024;
/// From this length on, in bytes, objects of a gateway's go by ref to a backend connection that reads them where they lie.
const PLACED_LEN_MIN: usize = 8 * 1024;

/// What happens to a payload that should go by ref when the pool has no room for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenPoolFull {
    /// It goes inline, as without a pool.
    #[default]
    Inline,
    /// The call ends RESOURCE_EXHAUSTED: for who would rather know than go slower. A pool that has room and needs a moment
    /// to hand it out is not full; the payload goes inline then.
    Refuse,
}

/// Longer messages go in frames of their own, from where they lie.
pub(crate) const BATCHED_LEN_MAX: usize = 8 * 1024;

/// What became of the large messages of a channel, or of a server: those of at least the threshold. Clones count the same.
#[derive(Clone, Default)]
pub struct Payloads {
    counters: Arc<Counters>,
}

#[derive(Default)]
struct Counters {
    sent_by_ref: AtomicU64,
    sent_by_ref_bytes: AtomicU64,
    sent_inline: AtomicU64,
    sent_inline_bytes: AtomicU64,
    received_by_ref: AtomicU64,
    received_by_ref_bytes: AtomicU64,
    received_inline: AtomicU64,
    received_inline_bytes: AtomicU64,
    pool_full: AtomicU64,
    refused_refs: AtomicU64,
    copied_bytes: AtomicU64,
    sent_objects: AtomicU64,
    received_objects: AtomicU64,
    other_schema: AtomicU64,
}

/// What [`Payloads`] have counted. Shorter messages are not counted at all, but for those of services and clients that take
/// objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PayloadCounts {
    /// Messages sent with one ref or more.
    pub sent_by_ref: u64,
    /// Bytes of these that were in refs.
    pub sent_by_ref_bytes: u64,
    /// Large messages sent without.
    pub sent_inline: u64,
    /// Bytes of these.
    pub sent_inline_bytes: u64,
    /// Messages received with one ref or more.
    pub received_by_ref: u64,
    /// Bytes of these that were in refs.
    pub received_by_ref_bytes: u64,
    /// Large messages received without, or with refs that could not be had, so that the bytes were asked for.
    pub received_inline: u64,
    /// Bytes of these.
    pub received_inline_bytes: u64,
    /// Messages for whose payloads the pool had no room.
    pub pool_full: u64,
    /// Messages refused because a ref in them was forged, stale, of another pool, or not to be had.
    pub refused_refs: u64,
    /// Bytes that were copied for all these messages, here: into encoded messages, into the pool, into shared memory and
    /// out of it. A message that is encoded into shared memory counts once, whatever of it had to be encoded elsewhere after all. Not
    /// what tonic copies (level 1) or HTTP/2's libraries, nor fields that are decoded into a `Vec` or `String` of their own.
    pub copied_bytes: u64,
    /// Messages sent as flat messages, of any length, with nothing encoded.
    pub sent_objects: u64,
    /// Messages that came so.
    pub received_objects: u64,
    /// A client's: objects that were encoded to be sent, since the server has another schema of the method's types.
    pub other_schema: u64,
}

impl Payloads {
    /// What was counted so far.
    pub fn counts(&self) -> PayloadCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &*self.counters;
        PayloadCounts {
            sent_by_ref: read(&counters.sent_by_ref),
            sent_by_ref_bytes: read(&counters.sent_by_ref_bytes),
            sent_inline: read(&counters.sent_inline),
            sent_inline_bytes: read(&counters.sent_inline_bytes),
            received_by_ref: read(&counters.received_by_ref),
            received_by_ref_bytes: read(&counters.received_by_ref_bytes),
            received_inline: read(&counters.received_inline),
            received_inline_bytes: read(&counters.received_inline_bytes),
            pool_full: read(&counters.pool_full),
            refused_refs: read(&counters.refused_refs),
            copied_bytes: read(&counters.copied_bytes),
            sent_objects: read(&counters.sent_objects),
            received_objects: read(&counters.received_objects),
            other_schema: read(&counters.other_schema),
        }
    }

    /// So many short objects were sent.
    pub(crate) fn sent_objects(&self, count: usize) {
        add(&self.counters.sent_objects, count);
    }

    fn sent_inline(&self, len: usize, copied: usize) {
        add(&self.counters.sent_inline, 1);
        add(&self.counters.sent_inline_bytes, len);
        add(&self.counters.copied_bytes, copied);
    }

    fn sent_by_ref(&self, composed: &Composed) {
        add(&self.counters.sent_by_ref, 1);
        add(&self.counters.sent_by_ref_bytes, composed.ref_bytes);
        add(&self.counters.copied_bytes, composed.copied + composed.bytes.len());
    }

    /// A large message came without refs; `copied` counts each time that a byte of it was.
    pub(crate) fn received_inline(&self, len: usize, copied: usize) {
        add(&self.counters.received_inline, 1);
        add(&self.counters.received_inline_bytes, len);
        add(&self.counters.copied_bytes, copied);
    }

    /// A message came with refs to `ref_bytes` bytes.
    pub(crate) fn received_by_ref(&self, ref_bytes: usize, copied: usize) {
        add(&self.counters.received_by_ref, 1);
        add(&self.counters.received_by_ref_bytes, ref_bytes);
        add(&self.counters.copied_bytes, copied);
    }

    /// An object was to be sent, and the other end takes them of another schema.
    pub(crate) fn met_other_schema(&self) {
        add(&self.counters.other_schema, 1);
    }

    /// A message came as a flat message.
    pub(crate) fn received_object(&self) {
        add(&self.counters.received_objects, 1);
    }

    pub(crate) fn refused(&self) {
        add(&self.counters.refused_refs, 1);
    }
}

fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Ordering::Relaxed);
}

impl fmt::Debug for Payloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counts().fmt(f)
    }
}

/// What a channel or a server was told about large payloads.
#[derive(Clone, Debug)]
pub(crate) struct Sharing {
    pub(crate) pool: Option<Pool>,
    pub(crate) threshold: usize,
    /// The same for a message that is encoded already.
    threshold_encoded: usize,
    pub(crate) when_full: WhenPoolFull,
    pub(crate) payloads: Payloads,
    /// A gateway's, of one backend connection: the pool in which its objects are placed, once the backend connection is a member of it.
    pub(crate) places_in: Arc<OnceLock<Pool>>,
    /// A backend connection's, of one session: the pool in which its gateway places objects, once this process is a member. It sends nothing from
    /// there.
    pub(crate) reads_in: Arc<OnceLock<Pool>>,
}

impl Default for Sharing {
    fn default() -> Sharing {
        Sharing {
            pool: None,
            threshold: REF_THRESHOLD_DEFAULT,
            threshold_encoded: REF_THRESHOLD_ENCODED_DEFAULT,
            when_full: WhenPoolFull::default(),
            payloads: Payloads::default(),
            places_in: Arc::default(),
            reads_in: Arc::default(),
        }
    }
}

/// Where segmented messages go: knows how many the peer has not taken yet.
pub trait Outlet {
    fn segmented_messages_in_flight(&self) -> usize;
    /// Whether the peer has taken some meanwhile.
    fn look_for_taken(&self) -> bool;
    /// The peer's process.
    fn process(&self) -> u32;
}

impl Outlet for Attachment {
    fn segmented_messages_in_flight(&self) -> usize {
        Attachment::segmented_messages_in_flight(self)
    }

    fn look_for_taken(&self) -> bool {
        Attachment::look_for_taken(self)
    }

    fn process(&self) -> u32 {
        u32::try_from(self.peer().pid).unwrap_or(0)
    }
}

impl Outlet for Stream {
    fn segmented_messages_in_flight(&self) -> usize {
        Stream::segmented_messages_in_flight(self)
    }

    fn look_for_taken(&self) -> bool {
        Stream::look_for_taken(self)
    }

    fn process(&self) -> u32 {
        u32::try_from(self.peer().pid).unwrap_or(0)
    }
}

impl Sharing {
    /// From which length on something goes by ref, at both levels.
    pub(crate) fn set_threshold(&mut self, len: usize) {
        self.threshold = len.max(1);
        self.threshold_encoded = self.threshold;
    }

    /// The pool to agree on with peers. A child of `fork` is no member of its parent's.
    pub(crate) fn pool_id(&self) -> Option<[u8; 16]> {
        self.pool.as_ref().filter(|pool| !pool.is_inherited()).map(Pool::id)
    }

    /// Whether the pool's coordinator is there.
    pub(crate) fn is_attached(&self) -> bool {
        self.pool.as_ref().is_some_and(Pool::is_attached)
    }

    /// Whether messages of this length are counted, and may go by ref.
    #[inline]
    pub(crate) fn is_large(&self, len: usize) -> bool {
        len >= self.threshold
    }

    /// The longest message that goes in a batch with others.
    pub(crate) fn batched_len_max(&self) -> usize {
        BATCHED_LEN_MAX.min(self.threshold.saturating_sub(1))
    }

    /// The longest object that goes in a batch with others: longer ones may be placed in a backend connection's pool.
    pub(crate) fn batched_object_len_max(&self) -> usize {
        let is_placed = self.places_in.get().is_some();
        self.batched_len_max().min(if is_placed { PLACED_LEN_MIN - 1 } else { usize::MAX })
    }

    /// A message went by HTTP/2, whose libraries copy it as they like.
    pub(crate) fn sent_by_http2(&self, len: usize) {
        if self.is_large(len) {
            self.payloads.sent_inline(len, 0);
        }
    }

    /// A message came through shared memory: copied out of it, and `joined` bytes of it once more.
    #[inline]
    pub(crate) fn received_inline(&self, len: usize, joined: usize) {
        if self.is_large(len) {
            self.payloads.received_inline(len, len + joined);
        }
    }

    /// A message came by HTTP/2.
    pub(crate) fn received_by_http2(&self, len: usize) {
        if self.is_large(len) {
            self.payloads.received_inline(len, 0);
        }
    }

    /// The pool, if messages to that peer may be segmented messages now.
    fn pool_for(&self, peer: PeerPool, outlet: &(impl Outlet + ?Sized)) -> Option<&Pool> {
        let pool = self.pool.as_ref().filter(|_| peer == PeerPool::Same)?;
        self.may_send_from(pool, outlet).then_some(pool)
    }

    /// The pool in which an object of this length is placed for the backend connection at the other end.
    fn place_for(&self, len: usize, outlet: &(impl Outlet + ?Sized)) -> Option<&Pool> {
        let pool = self.places_in.get().filter(|_| len >= PLACED_LEN_MIN)?;
        let may = self.may_send_from(pool, outlet);
        if !may {
            add(&self.payloads.counters.pool_full, 1);
        }
        may.then_some(pool)
    }

    fn may_send_from(&self, pool: &Pool, outlet: &(impl Outlet + ?Sized)) -> bool {
        pool.may_send(outlet.process(), outlet.segmented_messages_in_flight(), || outlet.look_for_taken())
    }

    /// A message of level 3 as it lies in memory, for a peer that takes it so: a large one by ref, where that can be. `None`: it
    /// is to be encoded, which lets it be shorter.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED as [`WhenPoolFull::Refuse`] says.
    pub(crate) fn object(
        &self,
        object: Encoded,
        len_max: Option<usize>,
        peer: PeerPool,
        outlet: &(impl Outlet + ?Sized),
    ) -> Result<Option<OutgoingMessage>, Status> {
        let len = object.len();
        if len > OBJECT_LEN_MAX.min(len_max.unwrap_or(usize::MAX)) {
            return Ok(None);
        }
        add(&self.payloads.counters.sent_objects, 1);
        let place = self.place_for(len, outlet);
        if place.is_some() || self.is_large(len) {
            let pool = place.or_else(|| self.pool_for(peer, outlet));
            if let Some(composed) = self.whole(&object, pool, outlet)? {
                self.payloads.sent_by_ref(&composed);
                return Ok(Some(OutgoingMessage::object_segmented(
                    composed.bytes,
                    Keep::each(composed.refs),
                )));
            }
            self.payloads.sent_inline(len, len);
        }
        Ok(Some(OutgoingMessage::object(object)))
    }

    /// Encodes a message of level 2: its large fields go by ref, and long runs of others. One that doesn't, and that is `deferred` to the
    /// session, is encoded when it is sent.
    ///
    /// # Errors
    /// A message longer than its sender allows; RESOURCE_EXHAUSTED as [`WhenPoolFull::Refuse`] says.
    #[inline]
    pub(crate) fn encode(
        &self,
        message: impl Ready,
        len_max: Option<usize>,
        peer: PeerPool,
        outlet: &(impl Outlet + ?Sized),
        deferred: Option<Arc<dyn DeferredEncoding>>,
    ) -> Result<OutgoingMessage, Status> {
        let len = message.encoded_len();
        check_len(len, len_max)?;
        if !self.is_large(len) {
            return Ok(OutgoingMessage::plain(encode(message, len)));
        }
        self.encode_large(message, len, self.pool_for(peer, outlet), outlet, deferred)
    }

    /// Encodes a message of level 2, unless it is large.
    ///
    /// # Errors
    /// A message longer than its sender allows.
    #[inline]
    pub(crate) fn encode_short(
        &self,
        message: impl Ready,
        len_max: Option<usize>,
    ) -> Result<Option<Encoded>, Status> {
        let len = message.encoded_len();
        check_len(len, len_max)?;
        Ok((!self.is_large(len)).then(|| encode(message, len)))
    }

    #[cold]
    fn encode_large(
        &self,
        message: impl Ready,
        len: usize,
        pool: Option<&Pool>,
        outlet: &(impl Outlet + ?Sized),
        deferred: Option<Arc<dyn DeferredEncoding>>,
    ) -> Result<OutgoingMessage, Status> {
        let Some(pool) = pool else {
            if let Some(deferred) = deferred.filter(|_| len >= DEFERRED_LEN_MIN) {
                // Straight into shared memory.
                self.payloads.sent_inline(len, len);
                return Ok(OutgoingMessage::deferred(deferred, len));
            }
            // Into the encoded message, and from there into shared memory.
            self.payloads.sent_inline(len, 2 * len);
            return Ok(OutgoingMessage::plain(encode(message, len)));
        };
        let compose = || {
            let mut composer = pool.compose(len, self.threshold);
            message.write(&mut composer);
            composer.finish()
        };
        let is_short = |composed: &Result<Composed, _>| {
            composed.as_ref().is_ok_and(|composed| composed.shortage.is_some())
        };
        match Composed::with_room(compose, is_short, || outlet.look_for_taken()) {
            Ok(composed) => self.outgoing(composed, false),
            // A child of `fork` is no member.
            Err(_) => {
                self.payloads.sent_inline(len, 2 * len);
                Ok(OutgoingMessage::plain(encode(message, len)))
            }
        }
    }

    /// A message that is encoded already (level 1), by ref as a whole if it is large.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED as [`WhenPoolFull::Refuse`] says.
    #[inline]
    pub(crate) fn wrap(
        &self,
        message: &mut Option<OutgoingMessage>,
        peer: PeerPool,
        outlet: &(impl Outlet + ?Sized),
    ) -> Result<(), Status> {
        match message {
            Some(whole) if self.is_large(whole.len()) && !whole.is_begun() && !whole.is_segmented() => {
                let is_worth_it = whole.len() >= self.threshold_encoded;
                let pool = self.pool_for(peer, outlet).filter(|_| is_worth_it);
                if let Some(wrapped) = self.wrap_large(&whole.to_bytes(), whole.compressed, pool, outlet)? {
                    *message = Some(wrapped);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn wrap_large(
        &self,
        data: &Bytes,
        compressed: bool,
        pool: Option<&Pool>,
        outlet: &(impl Outlet + ?Sized),
    ) -> Result<Option<OutgoingMessage>, Status> {
        match self.whole(data, pool, outlet)? {
            Some(composed) => self.outgoing(composed, compressed).map(Some),
            None => {
                self.payloads.sent_inline(data.len(), data.len());
                Ok(None)
            }
        }
    }

    /// These bytes by a ref, if there is a pool that has room for them.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED as [`WhenPoolFull::Refuse`] says.
    #[cold]
    fn whole(
        &self,
        data: &[u8],
        pool: Option<&Pool>,
        outlet: &(impl Outlet + ?Sized),
    ) -> Result<Option<Composed>, Status> {
        let Some(pool) = pool else { return Ok(None) };
        let is_short = |composed: &Result<_, _>| matches!(composed, Err(AllocError::Exhausted { .. }));
        match Composed::with_room(|| Composed::whole(pool, data), is_short, || outlet.look_for_taken()) {
            Ok(composed) => Ok(Some(composed)),
            Err(shortage) => self.note(&shortage).map(|()| None),
        }
    }

    /// The pool had no room.
    fn note(&self, shortage: &AllocError) -> Result<(), Status> {
        add(&self.payloads.counters.pool_full, 1);
        let refused = self.when_full == WhenPoolFull::Refuse && shortage.is_full();
        if refused { Err(status::pool_full(shortage)) } else { Ok(()) }
    }

    fn outgoing(&self, composed: Composed, compressed: bool) -> Result<OutgoingMessage, Status> {
        if let Some(shortage) = &composed.shortage {
            self.note(shortage)?;
        }
        if composed.refs.is_empty() {
            self.payloads.sent_inline(composed.bytes.len(), composed.copied + composed.bytes.len());
            return Ok(OutgoingMessage::new(composed.bytes, compressed));
        }
        self.payloads.sent_by_ref(&composed);
        Ok(OutgoingMessage::segmented(composed.bytes, compressed, Keep::each(composed.refs)))
    }
}
