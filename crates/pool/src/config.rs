//! What a pool and its members can be told to do differently.

use std::time::Duration;

use tollfree_layout::limits::PAGE_LEN;
use tollfree_layout::pool::{EXTENT_PAGE_COUNT_MAX, EXTENT_PAGE_COUNT_MIN, ExtentShape};

/// How much a pool has, and how it is dealt out. All in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// All members together; extents whose owner died count for as long as somebody reads them.
    pub total: u64,
    /// One member.
    pub member_quota: u64,
    /// Dealt out at once, as one extent, unless a longer block needs more: a multiple of 4 KiB from 64 KiB to 1 GiB. A member
    /// begins with extents of 64 KiB, and each further one is as long as all before it together, up to a batch.
    pub batch: u64,
}

impl Default for Capacity {
    /// 1 GiB; 256 MiB a member; in batches of up to 8 MiB.
    fn default() -> Capacity {
        Capacity { total: 1 << 30, member_quota: 256 << 20, batch: 8 << 20 }
    }
}

impl Capacity {
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        const LEAST: u64 = (EXTENT_PAGE_COUNT_MIN * PAGE_LEN) as u64;
        const MOST: u64 = (EXTENT_PAGE_COUNT_MAX * PAGE_LEN) as u64;
        if ExtentShape::of_data(self.batch).is_none() {
            const { assert!(LEAST == 64 << 10 && MOST == 1 << 30, "the words below") }
            return Err("a batch is a multiple of 4 KiB from 64 KiB to 1 GiB");
        }
        if self.member_quota < self.batch || self.total < self.batch {
            return Err("quota and total are at least one batch");
        }
        Ok(())
    }
}

/// What a member does when it needs more than it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenShort {
    /// Keep trying for so long: for the coordinator's answer, for others to let go, for a coordinator to come back.
    Wait(Duration),
    /// Say so at once; more is asked for, and may be there the next time.
    Fail,
}

/// Settings of a member. The defaults suit most.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// What to do when more is needed than there is.
    pub when_short: WhenShort,
    /// With fewer bytes free than this, another extent is asked for before it is needed, from the start. 0: never,
    /// for members that only read.
    pub low_watermark: u64,
    /// With more bytes free than this, and a batch besides, extents that nothing is in are given back.
    pub high_watermark: u64,
    /// Most bytes of this member's own that another process may hold: what is sent to one that holds more goes inline, as
    /// [`Pool::may_share_with`](crate::Pool::may_share_with) says. `None`: half of the quota.
    pub reader_limit: Option<u64>,
    /// Longest to wait for a coordinator's answer, or an owner's.
    pub patience: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            when_short: WhenShort::Wait(Duration::from_secs(1)),
            low_watermark: 2 << 20,
            high_watermark: 32 << 20,
            reader_limit: None,
            patience: Duration::from_secs(5),
        }
    }
}
