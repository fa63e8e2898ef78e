//! What a member counts, and who has what it has.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Events of one member of a pool since it joined.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) copied_bytes: AtomicU64,
    pub(crate) forbidden_refs: AtomicU64,
    pub(crate) stale_refs: AtomicU64,
    pub(crate) full_holds: AtomicU64,
    pub(crate) exhausted: AtomicU64,
}

impl Counters {
    #[inline]
    pub(crate) fn copied(&self, byte_count: usize) {
        self.copied_bytes.fetch_add(byte_count as u64, Ordering::Relaxed);
    }

    pub(crate) fn one(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Counts {
        Counts {
            copied_bytes: self.copied_bytes.load(Ordering::Relaxed),
            forbidden_refs: self.forbidden_refs.load(Ordering::Relaxed),
            stale_refs: self.stale_refs.load(Ordering::Relaxed),
            full_holds: self.full_holds.load(Ordering::Relaxed),
            exhausted: self.exhausted.load(Ordering::Relaxed),
        }
    }
}

/// What a member has counted since it joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes that the library copied: into buffers, for writers, and for readers that asked for copies.
    pub copied_bytes: u64,
    /// Refs refused because they were forged, malformed or another pool's.
    pub forbidden_refs: u64,
    /// Refs refused because their block or extent was given up.
    pub stale_refs: u64,
    /// Holds refused because their count was at its limit.
    pub full_holds: u64,
    /// Times that memory was asked for and not had.
    pub exhausted: u64,
}

/// What a member has now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of its own extents.
    pub total_bytes: u64,
    /// Of these, bytes in no block.
    pub free_bytes: u64,
    /// Own blocks that no ref here names any more, and that others held when they were last looked at.
    pub limbo_count: usize,
    /// Own extents.
    pub extent_count: usize,
    /// Rows of readers of these.
    pub row_count: usize,
    /// Extents of others that are mapped here.
    pub import_count: usize,
}

/// A process that holds blocks of this member's own.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Its number in the pool.
    pub member: u32,
    /// Its process, as it says itself; `None` where it doesn't.
    pub process: Option<u32>,
    /// Bytes of the blocks that it holds.
    pub bytes: u64,
    /// How many blocks those are.
    pub block_count: usize,
}

/// What a member may have, what of it is in use, and by whom. A block that several hold is each one's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Room {
    /// Bytes that it may have.
    pub quota: u64,
    /// Of these, bytes in blocks that somebody holds.
    pub used: u64,
    /// By whom, who has most first.
    pub holders: Vec<Holder>,
}

/// Holders that are named in words.
const NAMED_COUNT: usize = 3;

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} are in use", Amount(self.used), Amount(self.quota))?;
        for (idx, holder) in self.holders.iter().take(NAMED_COUNT).enumerate() {
            let before = if idx == 0 { ": " } else { ", " };
            match holder.process {
                Some(process) => write!(f, "{before}{} held by process {process}", Amount(holder.bytes))?,
                None => write!(f, "{before}{} held by member {}", Amount(holder.bytes), holder.member)?,
            }
        }
        match self.holders.len() {
            0..=NAMED_COUNT => Ok(()),
            all => write!(f, ", and {} more", all - NAMED_COUNT),
        }
    }
}

/// Bytes, for people.
pub(crate) struct Amount(pub(crate) u64);

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
        let power = self.0.checked_ilog2().unwrap_or(0) / 10;
        match power.checked_sub(1).map(|unit| (unit as usize).min(UNITS.len() - 1)) {
            None => write!(f, "{} bytes", self.0),
            Some(unit) => {
                let tenths = (u128::from(self.0) * 10) >> (10 * (unit + 1));
                match tenths % 10 {
                    0 => write!(f, "{} {}", tenths / 10, UNITS[unit]),
                    tenth => write!(f, "{}.{tenth} {}", tenths / 10, UNITS[unit]),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_told_in_words_that_name_who_has_most() {
        let amounts: Vec<_> =
            [0, 1023, 4096, 1_300_000_000, 2 << 30, u64::MAX].map(|bytes| Amount(bytes).to_string()).into();
        assert_eq!(amounts, ["0 bytes", "1023 bytes", "4 KiB", "1.2 GiB", "2 GiB", "16777215.9 TiB"]);
        let holder = |member, process, bytes| Holder { member, process, bytes, block_count: 1 };
        let holders = vec![holder(2, Some(123), 1_300_000_000), holder(3, None, 4096)];
        let mut room = Room { quota: 2 << 30, used: 1_300_004_096, holders };
        assert_eq!(
            room.to_string(),
            "1.2 GiB of 2 GiB are in use: 1.2 GiB held by process 123, 4 KiB held by member 3"
        );
        room.holders.extend((4..6).map(|member| holder(member, None, 1)));
        assert!(room.to_string().ends_with("1 bytes held by member 4, and 1 more"));
    }
}
