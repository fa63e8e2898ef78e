//! What a process counts of itself: processor time, bytes copied, bytes into sockets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tollfree::Payloads;

use crate::sizes::SizeCounters;

/// Figures of one process since it began; those of two moments are subtracted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Processor time of all threads, in nanoseconds.
    pub cpu_ns: u64,
    /// Of this, in the image library.
    pub codec_ns: u64,
    /// Bytes that Tollfree says it copied for large messages, and those that a process copied because its side is to.
    pub copied_bytes: u64,
    /// Bytes that system calls wrote, as the kernel counts them: copied on their way in, and by who reads them on their way
    /// out.
    pub sent_bytes: u64,
    /// Payload bytes that were sent as refs.
    pub ref_bytes: u64,
    /// Messages that came as flat messages.
    pub objects: u64,
    /// Requests that services worked on.
    pub requests: u64,
    /// Of these, the ones of which it was measured how long the handler itself worked on them.
    pub measured: u64,
    /// Processor time of the handlers for those, without the calls that they made, in nanoseconds.
    pub useful_ns: u64,
    /// Time that passed for those while no call of theirs was under way, in nanoseconds.
    pub own_ns: u64,
}

impl Tally {
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            codec_ns: self.codec_ns.saturating_sub(before.codec_ns),
            copied_bytes: self.copied_bytes.saturating_sub(before.copied_bytes),
            sent_bytes: self.sent_bytes.saturating_sub(before.sent_bytes),
            ref_bytes: self.ref_bytes.saturating_sub(before.ref_bytes),
            objects: self.objects.saturating_sub(before.objects),
            requests: self.requests.saturating_sub(before.requests),
            measured: self.measured.saturating_sub(before.measured),
            useful_ns: self.useful_ns.saturating_sub(before.useful_ns),
            own_ns: self.own_ns.saturating_sub(before.own_ns),
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.cpu_ns += other.cpu_ns;
        self.codec_ns += other.codec_ns;
        self.copied_bytes += other.copied_bytes;
        self.sent_bytes += other.sent_bytes;
        self.ref_bytes += other.ref_bytes;
        self.objects += other.objects;
        self.requests += other.requests;
        self.measured += other.measured;
        self.useful_ns += other.useful_ns;
        self.own_ns += other.own_ns;
    }

    /// Processor time of the handlers for all requests, by those of which it was measured.
    pub(crate) fn useful_ns_of_all(&self) -> f64 {
        self.of_all(self.useful_ns)
    }

    /// Time of the handlers for all requests while no call of theirs was under way, likewise.
    pub(crate) fn own_ns_of_all(&self) -> f64 {
        self.of_all(self.own_ns)
    }

    fn of_all(&self, of_measured: u64) -> f64 {
        match self.measured {
            0 => 0.0,
            measured => of_measured as f64 * self.requests as f64 / measured as f64,
        }
    }
}

/// Counts as it goes.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    codec_ns: AtomicU64,
    requests: AtomicU64,
    measured: AtomicU64,
    useful_ns: AtomicU64,
    own_ns: AtomicU64,
    pub(crate) sizes: SizeCounters,
    copied_bytes: AtomicU64,
    /// Of each channel and server.
    payloads: Mutex<Vec<Payloads>>,
}

impl Counters {
    pub(crate) fn also_count(&self, payloads: Payloads) {
        self.payloads.lock().push(payloads);
    }

    /// A service works on a request. Returns how many there were before.
    pub(crate) fn request(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed)
    }

    /// A handler has worked on a request for so long: by its processor's clock, and by the one on the wall.
    pub(crate) fn worked(&self, useful_ns: u64, own_ns: u64) {
        self.own_ns.fetch_add(own_ns, Ordering::Relaxed);
        self.measured.fetch_add(1, Ordering::Relaxed);
        self.useful_ns.fetch_add(useful_ns, Ordering::Relaxed);
    }

    /// A payload was copied by this program, not by the library.
    pub(crate) fn copied(&self, byte_count: usize) {
        self.copied_bytes.fetch_add(byte_count as u64, Ordering::Relaxed);
    }

    /// Does something with the image library, on this thread.
    pub(crate) fn codec<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = cpu_time(ClockId::ThreadCPUTime);
        let done = work();
        let took = cpu_time(ClockId::ThreadCPUTime).saturating_sub(before);
        self.codec_ns.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        done
    }

    pub(crate) fn read(&self) -> Tally {
        let payloads: Vec<_> = self.payloads.lock().iter().map(Payloads::counts).collect();
        let copied_by_calls: u64 = payloads.iter().map(|counts| counts.copied_bytes).sum();
        Tally {
            cpu_ns: cpu_time(ClockId::ProcessCPUTime).as_nanos() as u64,
            codec_ns: self.codec_ns.load(Ordering::Relaxed),
            copied_bytes: self.copied_bytes.load(Ordering::Relaxed) + copied_by_calls,
            sent_bytes: sent_bytes(),
            ref_bytes: payloads.iter().map(|counts| counts.sent_by_ref_bytes).sum(),
            objects: payloads.iter().map(|counts| counts.received_objects).sum(),
            requests: self.requests.load(Ordering::Relaxed),
            measured: self.measured.load(Ordering::Relaxed),
            useful_ns: self.useful_ns.load(Ordering::Relaxed),
            own_ns: self.own_ns.load(Ordering::Relaxed),
        }
    }
}

fn cpu_time(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.max(0) as u32)
}

/// What `write` and `writev` carried, by which hyper writes to its sockets; to files, too, but nothing here writes files while
/// it is measured.
fn sent_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("wchar:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn bytes_into_sockets_are_counted_by_the_kernel() {
        let counters = Counters::default();
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let before = counters.read();
        // As hyper writes.
        let written = one.write_vectored(&[IoSlice::new(&[1; 30_000]), IoSlice::new(&[2; 20_000])]).unwrap();
        other.read_exact(&mut vec![0; written]).unwrap();
        let sent = counters.read().since(before).sent_bytes;
        // Other tests of this process send some, too.
        assert!(written > 30_000 && sent >= written as u64, "{written} {sent}");
    }

    #[test]
    fn time_in_the_codec_is_part_of_the_processor_time() {
        let counters = Counters::default();
        let before = counters.read();
        let spun = counters.codec(|| (0..3_000_000_u64).fold(1, |all, n| std::hint::black_box(all ^ n)));
        let tally = counters.read().since(before);
        assert!(spun > 0 && tally.codec_ns > 0 && tally.codec_ns <= tally.cpu_ns, "{tally:?}");
    }
}
