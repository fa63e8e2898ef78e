//! Large messages and flat messages past tonic, where calls go as HTTP requests between our own stubs.
//!
//! tonic encodes messages into one buffer and decodes them out of another: a copy each, whatever their length, and no place for
//! what is not encoded. So where a generated client or server is at one end of tonic's layers and a session at the other, a
//! large message takes a [`Queue`] beside them, and so does an object where both ends of the session have the same types. An
//! empty message passes through tonic in its place. Both ends of a queue count messages, so that each is taken for the one that
//! it is.
//!
//! Nothing is put into a queue unless who takes out of it has said so beforehand: a call whose extensions were lost on the way,
//! or whose body somebody else reads, goes through tonic as a whole.
//!
//! Where a gateway hands a call from one session to another, there are two such queues and no stub between them: what comes out of
//! the one session as an object is put on the way out to the other ([`Half`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use http::Extensions;
use parking_lot::Mutex;
use tollfree_driver_tokio::{OutgoingMessage, PeerPool};
use tollfree_layout::limits::OBJECT_LEN_MAX;
use tollfree_pool::SegmentedMessage;
use tollfree_processor::Trust;
use tonic::Status;

use crate::message::aside::Turns;
use crate::message::batching::Row;
use crate::message::converter::{Converter, Which};
use crate::message::form::unasked;
use crate::message::holdings::{Held, Holdings};
use crate::message::payloads::{Outlet, Sharing};
use crate::message::relay::{Offer, Relayed};
use crate::status::about_content;

/// A message on its way to a session.
pub(crate) trait Large: Send + Sync {
    /// Makes it ready for a session.
    ///
    /// # Errors
    /// As [`Sharing::encode`]; INTERNAL for an object from elsewhere that is not sound.
    fn encode(
        self: Arc<Self>,
        sharing: &Sharing,
        peer: PeerPool,
        outlet: &dyn Outlet,
        takes: Takes<'_>,
    ) -> Result<OutgoingMessage, Status>;

    /// Appends it to others, where it goes as a short object and has to be made ready in no other way. `false`: it goes by itself.
    fn append_object(&self, _row: &mut Row<'_>, _takes: Takes<'_>) -> bool {
        false
    }

    /// The object that it is, where it came by another session.
    fn relayed(self: Arc<Self>) -> Option<Arc<Relayed>> {
        None
    }
}

/// What a session's other end takes of a call.
#[derive(Clone, Copy)]
pub(crate) enum Takes<'t> {
    /// Messages that are encoded.
    Bytes,
    /// Objects of the types that this end's are of, too.
    Objects,
    /// Objects of the types that it has sent tables of.
    ObjectsOf(&'t Arc<dyn Converter>),
}

/// A message that came by a session, for a stub that takes it past tonic.
pub(crate) enum Past {
    SegmentedMessage(SegmentedMessage),
    /// A flat message, without any prefix.
    Object(Bytes),
}

/// What passes beside tonic, each with its length and its place among the messages of its direction.
struct Queue<T> {
    waiting: Mutex<VecDeque<(u64, usize, T)>>,
    /// From which length on messages take it; none while nobody takes them out.
    from: AtomicUsize,
}

impl<T> Queue<T> {
    fn put(&self, number: u64, len: usize, message: T) {
        self.waiting.lock().push_back((number, len, message));
    }

    /// The length of the message of that number, while it waits.
    fn len_of(&self, number: u64) -> Option<usize> {
        let waiting = self.waiting.lock();
        let idx = waiting.binary_search_by_key(&number, |(number, ..)| *number).ok()?;
        Some(waiting[idx].1)
    }

    /// The message of that number. Those before it are not asked for any more.
    fn take(&self, number: u64) -> Option<T> {
        let mut waiting = self.waiting.lock();
        while let Some((first, ..)) = waiting.front()
            && *first <= number
        {
            let (first, _, message) = waiting.pop_front()?;
            if first == number {
                return Some(message);
            }
        }
        None
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue { waiting: Mutex::default(), from: AtomicUsize::new(usize::MAX) }
    }
}

#[derive(Default)]
struct Queues {
    /// To the session.
    out: Queue<Arc<dyn Large>>,
    /// Messages of the way out may be asked for again, from the first on.
    keeps: AtomicBool,
    /// Bytes that were put there, as encoded.
    out_len: AtomicUsize,
    /// From the session. Its `from` is the receiver's limit.
    back: Queue<Past>,
    /// The fingerprint of the method's types, where its stubs take objects.
    types: Option<u64>,
    /// The session's other end takes objects of this call.
    takes_objects: AtomicBool,
    /// Whether the other end sends any says whether it takes them.
    answers: bool,
    /// Objects of the other end need not be verified.
    trust: Option<Trust>,
    /// Objects may be put on the way out before it is known whether they are wanted.
    holds: AtomicBool,
}

impl Queues {
    fn put_out(&self, number: u64, message: Arc<dyn Large>, len: usize) {
        self.out_len.fetch_add(len, Ordering::Relaxed);
        self.out.put(number, len, message);
    }
}

/// Both queues of one call. Clones are of the same call.
#[derive(Clone, Default)]
pub(crate) struct OutOfBand {
    queues: Arc<Queues>,
    /// There is no stub: what comes as an object is encoded, and what goes out is made one where that is taken.
    converter: Option<Arc<dyn Converter>>,
    /// Nor is what comes encoded, where the call came from another session that takes it as it is.
    half: Option<Half>,
    /// Counts objects that are put together, or wait to be verified.
    holdings: Option<Arc<dyn Holdings>>,
}

/// One half of a call that is handed from one session to another.
#[derive(Clone)]
struct Half {
    /// The queues of the other half.
    other: Arc<Queues>,
    offer: Arc<Offer>,
    /// What comes by this half's session.
    comes: Which,
}

/// The out-of-band queues of a call that a generated client makes, in its request's extensions.
#[derive(Clone)]
pub(crate) struct OfClient(pub(crate) OutOfBand);

impl OfClient {
    /// The out-of-band queues in these extensions.
    pub(crate) fn of(extensions: &Extensions) -> Option<OutOfBand> {
        extensions.get().map(|OfClient(out_of_band)| out_of_band.clone())
    }
}

/// The out-of-band queues of a call that a generated server is to answer, in its request's extensions.
#[derive(Clone)]
pub(crate) struct OfServer(pub(crate) OutOfBand);

impl OutOfBand {
    /// The out-of-band queues of a call that a generated client makes, of a method whose types have this fingerprint where its stubs take
    /// objects.
    pub(crate) fn of_client(types: Option<u64>) -> OutOfBand {
        OutOfBand { queues: Arc::new(Queues { types, ..Queues::default() }), ..OutOfBand::default() }
    }

    /// The same of a call that a generated server answers: objects are taken from the first on that comes.
    pub(crate) fn of_server(types: Option<u64>, trust: Option<Trust>) -> OutOfBand {
        let queues = Arc::new(Queues { types, answers: true, trust, ..Queues::default() });
        OutOfBand { queues, ..OutOfBand::default() }
    }

    /// That of a call that is failed over in another form than it came in.
    pub(crate) fn of_converter(converter: Arc<dyn Converter>) -> OutOfBand {
        OutOfBand { converter: Some(converter), ..OutOfBand::default() }.without_stub()
    }

    /// That of a call that came by a session and is to be failed over to another: the half by which it came.
    pub(crate) fn of_relay(offer: Arc<Offer>) -> OutOfBand {
        let half = Half { other: Arc::default(), offer, comes: Which::Request };
        OutOfBand { half: Some(half), ..OutOfBand::default() }.without_stub()
    }

    fn without_stub(self) -> OutOfBand {
        self.take_back_up_to(OBJECT_LEN_MAX);
        self
    }

    /// The half by which such a call is failed over.
    pub(crate) fn onward(&self) -> Option<OutOfBand> {
        let Half { other, offer, comes: Which::Request } = self.half.as_ref()? else { return None };
        let half = Half { other: self.queues.clone(), offer: offer.clone(), comes: Which::Reply };
        let onward = OutOfBand { queues: other.clone(), half: Some(half), ..OutOfBand::default() };
        onward.take_back_up_to(self.back_limit().unwrap_or(OBJECT_LEN_MAX));
        Some(onward)
    }

    /// Whether it is the half by which such a call came.
    pub(crate) fn is_relay(&self) -> bool {
        self.half.as_ref().is_some_and(|half| half.comes == Which::Request)
    }

    /// The half by which a call came: longer objects are encoded before they are failed over, in both directions. To be said before
    /// the call is failed over.
    pub(crate) fn relay_up_to(&self, len_max: usize) {
        self.take_back_up_to(len_max.min(OBJECT_LEN_MAX));
    }

    /// The half by which a call came: its objects wait on their way out until it is known whether they are wanted. To be said only of a
    /// call that is failed over by a session.
    pub(crate) fn hold(&self) {
        self.half.iter().for_each(|half| half.other.holds.store(true, Ordering::Relaxed));
    }

    /// The half by which a call came: the length of the message of that number, while it waits to be failed over.
    pub(crate) fn relayed_len(&self, which: Which, number: u64) -> Option<usize> {
        match which {
            Which::Request => self.half.as_ref()?.other.out.len_of(number),
            Which::Reply => self.queues.out.len_of(number),
        }
    }

    /// The same half, by which the call is handed to a backend connection with this converter. From the caller's next call of the method on,
    /// objects of those types are taken.
    pub(crate) fn handed_to(self, converter: Option<Arc<dyn Converter>>) -> Option<OutOfBand> {
        let half = self.half.as_ref()?;
        if let Some(converter) = &converter {
            half.offer.say(converter);
        }
        Some(OutOfBand { converter, ..self })
    }

    /// The same, of which it is counted what is held of objects that come.
    pub(crate) fn counted(self, holdings: Option<Arc<dyn Holdings>>) -> OutOfBand {
        OutOfBand { holdings, ..self }
    }

    /// Counts an object of `len` bytes that comes, until what is returned is dropped.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where there is no room for it.
    pub(crate) fn count(&self, len: usize) -> Result<Held, Status> {
        let mut held = Held::nothing(self.holdings.as_ref());
        held.add(len).map_err(|reason| about_content(Status::resource_exhausted(reason)))?;
        Ok(held)
    }

    /// How messages are to be changed on their way.
    pub(crate) fn converter(&self) -> Option<&Arc<dyn Converter>> {
        self.converter.as_ref()
    }

    /// Whether objects that come need not be verified.
    pub(crate) fn trust(&self) -> Option<Trust> {
        self.queues.trust
    }

    /// The fingerprint of the method's types, where its stubs take objects, or its backend connection does.
    pub(crate) fn types(&self) -> Option<u64> {
        self.converter().map(|converter| converter.types()).or(self.queues.types)
    }

    /// Whether objects that come are kept apart from what is encoded.
    pub(crate) fn is_for_objects(&self) -> bool {
        self.types().is_some() || self.half.is_some()
    }

    /// The session's end: whether objects will be taken out, of any length.
    pub(crate) fn take_objects(&self, takes: bool) {
        self.queues.takes_objects.store(takes, Ordering::Release);
    }

    /// Whether objects are taken out.
    pub(crate) fn takes_objects(&self) -> bool {
        self.is_open() && self.queues.takes_objects.load(Ordering::Acquire)
    }

    /// The session's end: messages of at least `threshold` bytes will be taken out.
    pub(crate) fn take_from(&self, threshold: usize) {
        self.queues.out.from.store(threshold, Ordering::Release);
    }

    /// The stub's end: whether anything is taken.
    pub(crate) fn is_open(&self) -> bool {
        self.queues.out.from.load(Ordering::Acquire) != usize::MAX
    }

    /// The stub's end: whether a message of this length is taken.
    pub(crate) fn takes(&self, len: usize) -> bool {
        len >= self.queues.out.from.load(Ordering::Acquire) && len != usize::MAX
    }

    /// The stub's end: the message of that number, from 0, goes to the session.
    pub(crate) fn put_out(&self, number: u64, message: Arc<dyn Large>, len: usize) {
        self.queues.put_out(number, message, len);
    }

    /// The session's end: the message of that number, if it was put here.
    pub(crate) fn take_out(&self, number: u64) -> Option<Arc<dyn Large>> {
        if !self.queues.keeps.load(Ordering::Relaxed) {
            return self.queues.out.take(number);
        }
        let waiting = self.queues.out.waiting.lock();
        let idx = waiting.binary_search_by_key(&number, |(number, ..)| *number).ok()?;
        Some(waiting[idx].2.clone())
    }

    /// The session's end: takes messages out to a row, from that number on and at most `count_max`, up to the first that goes by itself.
    /// Says how many.
    pub(crate) fn take_out_to(
        &self,
        row: &mut Row<'_>,
        number: u64,
        count_max: usize,
        takes: Takes<'_>,
    ) -> usize {
        let mut waiting = self.queues.out.waiting.lock();
        let at = waiting.partition_point(|(other, ..)| *other < number);
        let mut count = 0;
        for ((other, len, message), expected) in waiting.range(at..).take(count_max).zip(number..) {
            if count == 0 && row.takes(*len) {
                row.reserve(count_max, *len);
            }
            if *other != expected || row.is_full() || !message.append_object(row, takes) {
                break;
            }
            count += 1;
        }
        if !self.queues.keeps.load(Ordering::Relaxed) {
            waiting.drain(..at + count);
        }
        count
    }

    /// The session's end: how many messages from that number on go as they are in the body.
    pub(crate) fn out_distance(&self, number: u64) -> usize {
        let waiting = self.queues.out.waiting.lock();
        let at = waiting.partition_point(|(other, ..)| *other < number);
        waiting
            .get(at)
            .map_or(usize::MAX, |(other, ..)| usize::try_from(other - number).unwrap_or(usize::MAX))
    }

    /// The length of the message of that number on its way out, for an empty one that passes through tonic in its place.
    #[cfg(any(test, feature = "metrics"))]
    pub(crate) fn out_len_of(&self, number: u64) -> Option<usize> {
        self.queues.out.len_of(number)
    }

    /// The same on its way from the session.
    pub(crate) fn back_len_of(&self, number: u64) -> Option<usize> {
        self.queues.back.len_of(number)
    }

    /// Whether what goes out is kept, to be asked for again.
    pub(crate) fn keep(&self, keeps: bool) {
        self.queues.keeps.store(keeps, Ordering::Relaxed);
    }

    /// Bytes put on the way out so far.
    pub(crate) fn out_len(&self) -> usize {
        self.queues.out_len.load(Ordering::Relaxed)
    }

    /// The stub's end: segmented messages of messages of at most `limit` bytes will be taken out, and objects where it takes those.
    pub(crate) fn take_back_up_to(&self, limit: usize) {
        self.queues.back.from.store(limit.min(usize::MAX - 1), Ordering::Release);
    }

    /// The session's end: the stub's limit for messages, once it takes any.
    pub(crate) fn back_limit(&self) -> Option<usize> {
        Some(self.queues.back.from.load(Ordering::Acquire)).filter(|limit| *limit != usize::MAX)
    }

    /// The session's end: the turns in which an object of `len` bytes that comes is verified, where that is done before it goes on.
    pub(crate) fn turns_of(&self, len: usize) -> Option<&Turns> {
        let converter = match &self.half {
            Some(Half { offer, comes: Which::Request, .. }) => offer.said().filter(|_| !self.is_short(len)),
            _ => self.converter(),
        };
        converter.map(|converter| converter.turns())
    }

    /// Whether an object of `len` bytes may be failed over as it is.
    fn is_short(&self, len: usize) -> bool {
        self.back_limit().is_none_or(|limit| len <= limit)
    }

    /// The session's end: the message of that number, from 0, came as an object. Its encoding, for one who reads a body; without
    /// one it goes past, and an empty message is to stand in for it.
    ///
    /// # Errors
    /// INTERNAL for one that is not sound, or that nobody has asked for.
    pub(crate) fn give_object(&self, number: u64, object: Bytes) -> Result<Option<Bytes>, Status> {
        let Some(Half { other, offer, comes }) = &self.half else {
            if let Some(converter) = &self.converter {
                return converter.encoded(Which::Reply, &object).map(Some);
            }
            self.put_back(number, object.len(), Past::Object(object));
            return Ok(None);
        };
        let len = object.len();
        let is_short = self.is_short(len);
        let relayed = match comes {
            Which::Request => {
                self.take_objects(true);
                match offer.said() {
                    None if !(is_short && other.holds.load(Ordering::Relaxed)) => return Err(unasked()),
                    Some(converter) if !is_short => {
                        return converter.encoded(Which::Request, &object).map(Some);
                    }
                    // It is verified when it is known whose tables it is to suit.
                    _ => Relayed::request(object, offer.clone()),
                }
            }
            Which::Reply => {
                let converter = self.converter.as_ref().ok_or_else(unasked)?;
                let is_taken = is_short
                    && other.takes_objects.load(Ordering::Acquire)
                    && offer.said().is_some_and(|said| said.types() == converter.types());
                if !is_taken {
                    return converter.encoded(Which::Reply, &object).map(Some);
                }
                converter.check(Which::Reply, &object)?;
                converter.passed(Which::Reply);
                Relayed::answer(object, converter.clone())
            }
        };
        other.put_out(number, relayed, len);
        Ok(None)
    }

    /// The session's end: the message of that number, from 0, is this one of `len` bytes.
    pub(crate) fn put_back(&self, number: u64, len: usize, message: Past) {
        if let (Past::Object(_), true) = (&message, self.queues.answers) {
            self.take_objects(true);
        }
        self.queues.back.put(number, len, message);
    }

    /// The stub's end: the message of that number, if it came past tonic.
    pub(crate) fn take_back(&self, number: u64) -> Option<Past> {
        self.queues.back.take(number)
    }
}

impl std::fmt::Debug for OutOfBand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutOfBand").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::codec::Prost;
    use crate::message::deferred::Deferred;

    fn put(out_of_band: &OutOfBand, number: u64) {
        out_of_band.put_out(number, Deferred::<Prost, _>::new(number, None, None), 10);
    }

    #[test]
    fn messages_are_taken_by_their_numbers_once_or_again_while_they_are_kept() {
        let out_of_band = OutOfBand::default();
        out_of_band.keep(true);
        [1, 2, 5].into_iter().for_each(|number| put(&out_of_band, number));
        for _ in 0..2 {
            let taken: Vec<u64> = (0..7).filter(|number| out_of_band.take_out(*number).is_some()).collect();
            assert_eq!(taken, [1, 2, 5]);
        }
        out_of_band.keep(false);
        assert!(out_of_band.take_out(2).is_some() && out_of_band.take_out(2).is_none());
        assert!(out_of_band.take_out(1).is_none(), "the ones before are gone");
        assert!(out_of_band.take_out(5).is_some());
        assert_eq!(out_of_band.out_len(), 30);
    }

    #[test]
    fn a_length_is_known_while_its_message_waits() {
        let out_of_band = OutOfBand::of_client(Some(7));
        put(&out_of_band, 3);
        out_of_band.put_back(0, 9, Past::Object(Bytes::from_static(b"an object")));
        assert_eq!(
            [out_of_band.out_len_of(3), out_of_band.out_len_of(2), out_of_band.back_len_of(0)],
            [Some(10), None, Some(9)]
        );
        assert!(matches!(out_of_band.take_back(0), Some(Past::Object(object)) if object == "an object"));
        assert!(out_of_band.take_out(3).is_some() && out_of_band.types() == Some(7));
        assert_eq!([out_of_band.out_len_of(3), out_of_band.back_len_of(0)], [None; 2]);
    }

    #[test]
    fn objects_are_taken_where_the_session_takes_messages_and_its_other_end_objects() {
        let out_of_band = OutOfBand::of_client(Some(7));
        out_of_band.take_objects(true);
        assert!(!out_of_band.takes_objects(), "no session is there");
        out_of_band.take_from(100);
        assert!(out_of_band.takes_objects());
        out_of_band.take_objects(false);
        assert!(!out_of_band.takes_objects());
        for (out_of_band, expected) in
            [(OutOfBand::of_client(Some(7)), false), (OutOfBand::of_server(Some(7), None), true)]
        {
            out_of_band.take_from(100);
            assert!(!out_of_band.takes_objects());
            out_of_band.put_back(0, 0, Past::Object(Bytes::new()));
            assert_eq!(out_of_band.takes_objects(), expected, "an answer to an object may be one");
        }
    }

    #[test]
    fn nothing_is_taken_before_somebody_says_so() {
        let out_of_band = OutOfBand::default();
        assert!(
            !out_of_band.is_open()
                && !out_of_band.takes(usize::MAX - 1)
                && out_of_band.back_limit().is_none()
        );
        out_of_band.take_from(100);
        out_of_band.take_back_up_to(usize::MAX);
        assert!(out_of_band.is_open() && out_of_band.takes(100) && !out_of_band.takes(99));
        assert_eq!(out_of_band.back_limit(), Some(usize::MAX - 1));
    }
}
