//! What a process holds and uses, by the kernel's count.

use std::fs;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Descriptors and mappings of sessions that this process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Census {
    /// Open descriptors.
    pub fd_count: usize,
    /// Mapped regions and payload areas.
    pub map_count: usize,
}

impl Census {
    /// Counts now.
    pub fn take() -> Census {
        let fds = fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count());
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let map_count = maps.lines().filter(|line| line.contains("/memfd:tollfree")).count();
        Census { fd_count: fds, map_count }
    }

    /// Whether it is no more than at another count.
    pub fn is_within(&self, other: &Census) -> bool {
        self.fd_count <= other.fd_count && self.map_count <= other.map_count
    }

    /// Waits until the process holds no more than at this count.
    ///
    /// # Panics
    /// When it still does after thirty seconds.
    pub fn assert_back(self) {
        let began = Instant::now();
        loop {
            let now = Census::take();
            if now.is_within(&self) {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(30), "leaked: {self:?} before, {now:?} now");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Processor time that this process has used, all threads together.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Memory of this process that is in use now, in KiB.
pub fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").trim().parse().unwrap_or(0)
}
