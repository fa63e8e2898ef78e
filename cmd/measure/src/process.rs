//! What the kernel counts for a process.

use std::fs;
use std::time::Duration;

use crate::BenchError;

/// Memory of a process in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Memory {
    /// All pages that it has in memory.
    pub rss_bytes: u64,
    /// The same, a page shared with others counted by its share: what may be added up over processes.
    pub pss_bytes: u64,
}

/// Reads a process's memory.
///
/// # Errors
/// [`BenchError::System`] when the process is gone or not ours.
pub fn memory(pid: u32) -> Result<Memory, BenchError> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
        .map_err(BenchError::system("cannot read the memory of a process"))?;
    Ok(Memory { rss_bytes: kib(&text, "Rss:") << 10, pss_bytes: kib(&text, "Pss:") << 10 })
}

/// Processor time of a process, all its threads together. The kernel counts in ticks, mostly of 10 ms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In its own code.
    pub user: Duration,
    /// In the kernel's, on its behalf.
    pub system: Duration,
}

impl CpuTime {
    /// Both.
    #[must_use]
    pub fn total(self) -> Duration {
        self.user + self.system
    }
}

impl std::ops::Add for CpuTime {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { user: self.user + other.user, system: self.system + other.system }
    }
}

impl std::ops::Sub for CpuTime {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }
}

/// Reads how much processor time a process has used.
///
/// # Errors
/// [`BenchError::System`] when the process is gone.
pub fn cpu_time(pid: u32) -> Result<CpuTime, BenchError> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))
        .map_err(BenchError::system("cannot read the processor time of a process"))?;
    let (user, system) = ticks(&text).ok_or_else(|| BenchError::System {
        what: "cannot read the processor time of a process",
        source: std::io::Error::other("its stat file has an unknown form"),
    })?;
    let time =
        |ticks: u64| Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64);
    Ok(CpuTime { user: time(user), system: time(system) })
}

/// User and system time from a `stat` line: fields 14 and 15, counted from behind the name, which may hold anything.
fn ticks(stat: &str) -> Option<(u64, u64)> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user, system))
}

/// Processor time of a process in nanoseconds, as its living threads were given it: finer than [`cpu_time`], which counts ticks.
///
/// # Errors
/// [`BenchError::System`] when the process is gone, or the kernel keeps no such account.
pub fn run_time_ns(pid: u32) -> Result<u64, BenchError> {
    let trouble = "cannot read the processor time of a process's threads";
    let threads = fs::read_dir(format!("/proc/{pid}/task")).map_err(BenchError::system(trouble))?;
    let mut sum = 0;
    for thread in threads {
        let path = thread.map_err(BenchError::system(trouble))?.path().join("schedstat");
        // A thread may end in between.
        let Ok(text) = fs::read_to_string(path) else { continue };
        sum += text.split(' ').next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    }
    match sum {
        0 => Err(BenchError::Refused(format!(
            "the kernel keeps no account of what threads of process {pid} took"
        ))),
        sum => Ok(sum),
    }
}

fn kib(text: &str, key: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// Lets this process open as many files as the system allows it.
///
/// # Errors
/// [`BenchError::System`] when the kernel refuses.
pub fn raise_file_limit() -> Result<(), BenchError> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum })
        .map_err(BenchError::system("cannot raise the limit of open files"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_behind_any_name() {
        let stat = "17 (a) b (c)) S 1 17 17 0 -1 4194560 100 0 0 0 40 2 9 9 20 0 1 0 5 0 0";
        assert_eq!(ticks(stat), Some((40, 2)));
        assert_eq!(ticks("17 (cut"), None);
    }

    #[test]
    fn own_figures_are_plausible() {
        let pid = std::process::id();
        let before = memory(pid).unwrap();
        let block = vec![1_u8; 32 << 20];
        let after = memory(pid).unwrap();
        assert!(after.rss_bytes - before.rss_bytes >= 30 << 20, "{before:?} {after:?}");
        drop(std::hint::black_box(block));
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_millis(60) {
            std::hint::spin_loop();
        }
        assert!(cpu_time(pid).unwrap().total() >= Duration::from_millis(10));
        assert!(run_time_ns(pid).unwrap() >= 1_000_000);
    }

    #[test]
    fn a_dead_process_is_an_error() {
        assert!(memory(u32::MAX).is_err());
        assert!(cpu_time(u32::MAX).is_err());
        assert!(run_time_ns(u32::MAX).is_err());
    }
}
