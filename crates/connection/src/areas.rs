//! The payload areas of a connection beside the one in use: how long those are that this end makes, what they are charged to, and the peer's.

use std::fmt;

use tollfree_layout::AreaIdx;
use tollfree_region::PeerRegion;

use crate::area::AreasMapped;

/// How much memory a peer may have this side make for payload areas: kept by a driver over many sessions.
pub trait AreaAllowance: fmt::Debug + Send {
    /// An area of so many bytes is to be made. Whether it may.
    fn reserve(&mut self, len: usize) -> bool;
    /// An area that was reserved was not made.
    fn give_back(&mut self, len: usize);
    /// An area was given up here; the peer may keep it for as long as it likes.
    fn gave_up(&mut self, len: usize);
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Areas {
    mapped: AreasMapped,
    /// The length of an area that this end makes, in bytes; 0: it makes none.
    len: usize,
    idle_ns: u64,
    allowance: Option<Box<dyn AreaAllowance>>,
}

impl Areas {
    pub(crate) fn new(len: usize, idle_ns: u64, allowance: Option<Box<dyn AreaAllowance>>) -> Areas {
        Areas { mapped: AreasMapped::default(), len, idle_ns, allowance }
    }

    /// How long an area of this end is; `None` where there are to be none.
    pub(crate) fn len(&self) -> Option<usize> {
        Some(self.len).filter(|len| *len > 0)
    }

    /// After how long without use an area is given up, so many idle times long.
    pub(crate) fn idle_ns(&self, patience: u32) -> u64 {
        self.idle_ns.saturating_mul(patience.into())
    }

    /// An area is to be made. Whether it may.
    pub(crate) fn reserve(&mut self) -> bool {
        let len = self.len;
        self.allowance.as_mut().is_none_or(|allowance| allowance.reserve(len))
    }

    /// The area that was reserved was not made.
    pub(crate) fn give_back(&mut self) {
        if let Some(allowance) = &mut self.allowance {
            allowance.give_back(self.len);
        }
    }

    /// An area is not this end's any more; the peer may still have it.
    pub(crate) fn gave_up(&mut self) {
        if let Some(allowance) = &mut self.allowance {
            allowance.gave_up(self.len);
        }
    }

    /// The peer's areas.
    #[inline]
    pub(crate) fn mapped(&self) -> &AreasMapped {
        &self.mapped
    }

    /// Whether the peer may have one more mapped, of this length.
    pub(crate) fn allows(&self, area: AreaIdx, len: usize) -> bool {
        self.mapped.allows(area, len)
    }

    pub(crate) fn insert(&mut self, area: AreaIdx, region: PeerRegion) {
        self.mapped.insert(area, region);
    }

    pub(crate) fn remove(&mut self, area: AreaIdx) {
        self.mapped.remove(area);
    }
}
