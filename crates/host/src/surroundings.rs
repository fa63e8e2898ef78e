//! Who else wants the processors of this process's threads: what a wait asks for before it spins.
//!
//! Each thread keeps what it has learnt by offering its processor; good neighbors among this process's sessions go by what any of them has
//! learnt, for their tasks go from thread to thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use tollfree_connection::{Contention, Surroundings, ThreadTime};
use tollfree_os::rustix;
use tollfree_os::rustix::time::{ClockId, clock_gettime};

use crate::cpu_quota;
use tollfree_os::clock::now_ns;

/// Until when some thread's processor is wanted, on the monotonic clock in nanoseconds; 0: none is.
static ANY_WANTED_UNTIL_NS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static CONTENTION: Cell<Contention> = const { Cell::new(Contention::NONE) };
}

/// This thread, and the process that it belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Here;

impl Surroundings for Here {
    #[inline]
    fn want_this_processor(&self, now_ns: u64) -> bool {
        CONTENTION.get().is_met(now_ns)
    }

    /// Without a look at the clock where nobody has taken a processor lately.
    #[inline]
    fn want_any_processor(&self) -> bool {
        let until_ns = ANY_WANTED_UNTIL_NS.load(Ordering::Relaxed);
        if until_ns == 0 {
            return false;
        }
        let is_wanted = now_ns() < until_ns;
        if !is_wanted {
            ANY_WANTED_UNTIL_NS.store(0, Ordering::Relaxed);
        }
        is_wanted
    }

    fn is_quota_tight(&self, now_ns: u64) -> bool {
        cpu_quota::is_tight(now_ns)
    }
}

impl Here {
    /// Whether a good neighbor is to offer this processor before a wait.
    #[inline]
    pub fn is_offer_due() -> bool {
        let mut contention = CONTENTION.get();
        let is_due = contention.is_offer_due();
        CONTENTION.set(contention);
        is_due
    }

    /// Offers this processor. If that takes longer than `taken_ns`, others want it.
    pub fn offer(taken_ns: u64) {
        let now = now_ns();
        rustix::thread::sched_yield();
        Here::offered(now, now_ns().saturating_sub(now), taken_ns, true);
    }

    /// This processor was offered at `now_ns`, and came back after `away_ns`. Beyond `taken_ns` others want it; `tells_all`: good
    /// neighbors in other threads are to go by that.
    pub fn offered(now_ns: u64, away_ns: u64, taken_ns: u64, tells_all: bool) {
        let mut contention = CONTENTION.get();
        if contention.offered(now_ns, away_ns, taken_ns) {
            CONTENTION.set(contention);
            if tells_all {
                ANY_WANTED_UNTIL_NS.fetch_max(contention.until_ns(), Ordering::Relaxed);
            }
        }
    }

    /// Processor time that this thread has taken.
    pub fn thread_time() -> ThreadTime {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        ThreadTime {
            thread: rustix::thread::gettid().as_raw_nonzero().get() as u64,
            taken_ns: time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64,
        }
    }
}
