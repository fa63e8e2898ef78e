//! A loop's membership in a pool: what goes by ref, what came so, and the counts of both.

use std::sync::atomic::{AtomicU64, Ordering};

use tollfree_pool::{Composed, Pool, REF_THRESHOLD_DEFAULT, REF_THRESHOLD_ENCODED_DEFAULT, RefError};
use tollfree_session::{Keep, OutgoingMessage};

use crate::Message;

/// What became of the long messages of a loop with a pool: those of at least [`REF_THRESHOLD_DEFAULT`] bytes in several pieces, or
/// [`REF_THRESHOLD_ENCODED_DEFAULT`] in one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PayloadCounts {
    /// Messages sent with one ref or more.
    pub sent_by_ref: u64,
    /// Long messages sent without.
    pub sent_inline: u64,
    /// Messages for whose bytes the pool had no room, so that they went inline.
    pub pool_full: u64,
    /// Messages received with one ref or more.
    pub received_by_ref: u64,
    /// Messages with refs that could not be had, so that their sender was asked for the bytes.
    pub asked_for: u64,
    /// Messages refused because a ref in them was forged, stale, of another pool, or not to be had.
    pub refused_refs: u64,
    /// Bytes that were copied into the pool to be sent by ref.
    pub copied_bytes: u64,
}

#[derive(Debug, Default)]
struct Counters {
    sent_by_ref: AtomicU64,
    sent_inline: AtomicU64,
    pool_full: AtomicU64,
    received_by_ref: AtomicU64,
    asked_for: AtomicU64,
    refused_refs: AtomicU64,
    copied_bytes: AtomicU64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    pool: Option<Pool>,
    counters: Counters,
}

/// The process that a message goes to.
pub(crate) struct Recipient<L> {
    pub(crate) process: u32,
    /// Both ends are members of the loop's pool.
    pub(crate) is_member: bool,
    /// Messages with refs that it has not taken.
    pub(crate) in_flight: usize,
    /// Looks whether it has taken some meanwhile.
    pub(crate) look_for_taken: L,
}

impl Sharing {
    pub(crate) fn new(pool: Option<Pool>) -> Sharing {
        Sharing { pool, counters: Counters::default() }
    }

    /// The pool to agree on with peers. A child of `fork` is no member of its parent's.
    pub(crate) fn pool_id(&self) -> Option<[u8; 16]> {
        self.pool.as_ref().filter(|pool| !pool.is_inherited()).map(Pool::id)
    }

    pub(crate) fn pool(&self) -> Option<&Pool> {
        self.pool.as_ref()
    }

    pub(crate) fn counts(&self) -> PayloadCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        PayloadCounts {
            sent_by_ref: read(&counters.sent_by_ref),
            sent_inline: read(&counters.sent_inline),
            pool_full: read(&counters.pool_full),
            received_by_ref: read(&counters.received_by_ref),
            asked_for: read(&counters.asked_for),
            refused_refs: read(&counters.refused_refs),
            copied_bytes: read(&counters.copied_bytes),
        }
    }

    /// A message as it goes to a process: by ref, if it is long and both are members. What the pool has no room for goes inline.
    pub(crate) fn outgoing(
        &self,
        message: Message,
        mut recipient: Recipient<impl FnMut() -> bool>,
    ) -> OutgoingMessage {
        let is_encoded = message.more.is_empty();
        let threshold = if is_encoded { REF_THRESHOLD_ENCODED_DEFAULT } else { REF_THRESHOLD_DEFAULT };
        let (Some(pool), len) = (&self.pool, message.len()) else { return message.into_inline() };
        if len < threshold {
            return message.into_inline();
        }
        let Recipient { process, is_member, in_flight, ref mut look_for_taken } = recipient;
        let composed = match is_member && pool.may_send(process, in_flight, &mut *look_for_taken) {
            false => None,
            true => {
                let compose = || {
                    let mut composer = pool.compose(len, threshold);
                    message.pieces().for_each(|piece| bytes::BufMut::put_slice(&mut composer, piece));
                    composer.finish()
                };
                let is_short = |composed: &Result<Composed, RefError>| {
                    composed.as_ref().is_ok_and(|composed| composed.shortage.is_some())
                };
                Composed::with_room(compose, is_short, look_for_taken).ok()
            }
        };
        if composed.as_ref().is_some_and(|composed| composed.shortage.is_some()) {
            add(&self.counters.pool_full, 1);
        }
        match composed {
            Some(composed) if !composed.refs.is_empty() => {
                add(&self.counters.sent_by_ref, 1);
                add(&self.counters.copied_bytes, composed.copied);
                OutgoingMessage::segmented(composed.bytes, message.compressed, Keep::each(composed.refs))
            }
            _ => {
                add(&self.counters.sent_inline, 1);
                message.into_inline()
            }
        }
    }

    pub(crate) fn received_by_ref(&self) {
        add(&self.counters.received_by_ref, 1);
    }

    pub(crate) fn asked_for(&self) {
        add(&self.counters.asked_for, 1);
    }

    pub(crate) fn refused(&self) {
        add(&self.counters.refused_refs, 1);
    }
}

fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Ordering::Relaxed);
}
