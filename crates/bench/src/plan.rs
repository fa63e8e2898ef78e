//! What to measure: the axes of `tollfree bench echo` and the cases they span.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::BenchError;

/// Largest body that may be asked for, in bytes: what the project tests as its largest message.
pub const SIZE_MAX: usize = 256 << 20;

/// Most calls in flight that may be asked for.
pub const INFLIGHT_MAX: usize = 4096;

/// Declares an axis: an enum whose values have one spelling, on the command line, in JSON and in tables.
macro_rules! axis {
    ($(#[$doc:meta])* $name:ident, $what:literal, { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $text)] $variant,)+
        }

        impl $name {
            /// All values, in the order in which they are measured and shown.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The one spelling of this value.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                Self::ALL.iter().copied().find(|value| value.name() == text).ok_or_else(|| {
                    let known: Vec<_> = Self::ALL.iter().map(|value| value.name()).collect();
                    format!(concat!("no such ", $what, "; there are {}"), known.join(", "))
                })
            }
        }
    };
}

axis! {
    /// What carries the calls.
    Side, "side", {
        /// Two bare rings, one process spinning on each end: what no transport can undercut.
        Floor = "floor",
        /// A session carrying bytes, without tonic.
        Session = "session",
        /// Tollfree's own stubs, from typed message to session.
        TollfreeDirect = "tollfree-direct",
        /// The same, bodies by ref through a pool: copied into it where they are sent, out of it where they are received.
        TollfreeRef = "tollfree-ref",
        /// Tollfree's own stubs, blocking: a thread that calls and a thread that serves.
        TollfreeBlocking = "tollfree-blocking",
        /// Unmodified tonic stubs over Tollfree.
        Tollfree = "tollfree",
        /// The same, neither end ever spinning: for cores that must not.
        TollfreePark = "tollfree-park",
        /// The same, on a channel to TCP that has left it for Tollfree.
        TollfreeUpgrade = "tollfree-upgrade",
        /// Stock tonic over a Unix socket: what the others are compared with.
        TonicUnix = "tonic-unix",
        /// Stock tonic over TCP on the loopback interface.
        TonicTcp = "tonic-tcp",
    }
}

axis! {
    /// Where the two processes run.
    Placement, "placement", {
        /// Each on a core of its own.
        Split = "split",
        /// Both on one core.
        SameCore = "same-core",
        /// Wherever the kernel puts them.
        Unpinned = "unpinned",
    }
}

axis! {
    /// The tokio runtime in both processes.
    RuntimeKind, "runtime", {
        /// One thread.
        Current = "current",
        /// Work stealing among two workers.
        Multi = "multi",
    }
}

axis! {
    /// What malloc does with memory that is free again, in both processes of every side.
    Malloc, "malloc setting", {
        /// Up to 64 MiB stay with the process, as services that carry large messages set their allocator.
        Keep = "keep",
        /// As it is: glibc gives much of it back in each call of a large message, and the kernel zeroes it again.
        System = "system",
    }
}

impl Malloc {
    /// Environment variables that tell glibc's malloc. Those of the user's own stand above them.
    pub fn settings(self) -> Vec<(&'static str, &'static str)> {
        let all = match self {
            Malloc::Keep => {
                &[("MALLOC_TRIM_THRESHOLD_", "67108864"), ("MALLOC_MMAP_THRESHOLD_", "33554432")][..]
            }
            Malloc::System => &[],
        };
        all.iter().copied().filter(|(name, _)| std::env::var_os(name).is_none()).collect()
    }
}

/// One row of the result: one combination of all axes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Case {
    /// What carries the calls.
    pub side: Side,
    /// Bytes in the request's and the reply's body.
    pub size: usize,
    /// Calls outstanding at any time.
    pub inflight: usize,
    /// Where the two processes run.
    pub placement: Placement,
    /// The tokio runtime in both processes.
    pub runtime: RuntimeKind,
}

impl Case {
    /// The same case on another side: what this one is compared with.
    pub fn on(self, side: Side) -> Self {
        Self { side, ..self }
    }

    /// The case without its side, in words.
    pub fn setting(&self) -> String {
        let runtime = match self.runtime {
            RuntimeKind::Current => "current-thread runtime",
            RuntimeKind::Multi => "multi-thread runtime, 2 workers",
        };
        format!("{}, {} in flight, {}, {runtime}", bytes_in_words(self.size), self.inflight, self.placement)
    }
}

/// A whole benchmark: the axes, and how long to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Body sizes in bytes, each at most [`SIZE_MAX`].
    pub sizes: Vec<usize>,
    /// Calls outstanding, each at least 1 and at most [`INFLIGHT_MAX`].
    pub inflights: Vec<usize>,
    /// Placements.
    pub placements: Vec<Placement>,
    /// Sides.
    pub sides: Vec<Side>,
    /// Runtimes.
    pub runtimes: Vec<RuntimeKind>,
    /// Measured time per row and round; a warm-up comes before it.
    pub seconds: f64,
    /// Calls per row and round, whatever time they take: instead of `seconds`.
    pub calls: Option<u64>,
    /// Rounds per row.
    pub rounds: usize,
    /// What malloc keeps, on all sides alike.
    pub malloc: Malloc,
}

impl Plan {
    /// Checks what the command line's own types cannot.
    ///
    /// # Errors
    /// [`BenchError::Refused`], naming the value and what is allowed.
    pub fn check(&self) -> Result<(), BenchError> {
        let refuse = |what: String| Err(BenchError::Refused(what));
        if let Some(size) = self.sizes.iter().find(|size| **size > SIZE_MAX) {
            return refuse(format!("size {size} is too large: at most {SIZE_MAX} bytes"));
        }
        if let Some(count) = self.inflights.iter().find(|count| !(1..=INFLIGHT_MAX).contains(*count)) {
            return refuse(format!("{count} calls in flight: must be 1 to {INFLIGHT_MAX}"));
        }
        if !(self.seconds >= 0.001 && self.seconds <= 3600.0) {
            return refuse(format!("{} seconds per row and round: must be 0.001 to 3600", self.seconds));
        }
        if self.calls == Some(0) {
            return refuse("0 calls per row and round: must be 1 or more".to_owned());
        }
        if self.calls.is_some() && self.sides.contains(&Side::Floor) {
            return refuse("the floor is measured by time: it can't be told a number of calls".to_owned());
        }
        if !(1..=1000).contains(&self.rounds) {
            return refuse(format!("{} rounds: must be 1 to 1000", self.rounds));
        }
        let empty = self.sizes.is_empty()
            || self.inflights.is_empty()
            || self.placements.is_empty()
            || self.sides.is_empty()
            || self.runtimes.is_empty();
        if empty {
            return refuse("nothing to measure: an axis has no value".to_owned());
        }
        Ok(())
    }

    /// Every case, those that are compared with each other next to each other, each case once.
    pub fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for &runtime in &self.runtimes {
            for &placement in &self.placements {
                for &inflight in &self.inflights {
                    for &size in &self.sizes {
                        for &side in &self.sides {
                            let case = Case { side, size, inflight, placement, runtime };
                            if !cases.contains(&case) {
                                cases.push(case);
                            }
                        }
                    }
                }
            }
        }
        cases
    }

    /// Measured time per row and round.
    pub fn measure(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// Time that each round runs before it counts: long enough for page faults and learnt spin budgets.
    pub fn warm_up(&self) -> Duration {
        (self.measure() / 4).clamp(Duration::from_millis(20), Duration::from_millis(500))
    }
}

/// A size as people write it: `64 B`, `4 KiB`, `1 MiB`.
pub fn bytes_in_words(size: usize) -> String {
    match size {
        0 => "0 B".to_owned(),
        _ if size.is_multiple_of(1 << 20) => format!("{} MiB", size >> 20),
        _ if size.is_multiple_of(1 << 10) => format!("{} KiB", size >> 10),
        _ => format!("{size} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            sizes: vec![64, 4096],
            inflights: vec![1, 64],
            placements: vec![Placement::Split],
            sides: vec![Side::TonicTcp, Side::TonicUnix],
            runtimes: vec![RuntimeKind::Current],
            seconds: 0.5,
            calls: None,
            rounds: 3,
            malloc: Malloc::Keep,
        }
    }

    #[test]
    fn cases_span_all_axes_once_and_keep_rivals_together() {
        let mut doubled = plan();
        doubled.sizes.push(64);
        let cases = doubled.cases();
        assert_eq!(cases.len(), 8);
        for pair in cases.chunks(2) {
            assert_eq!(pair[0].on(Side::TonicUnix), pair[1]);
        }
    }

    #[test]
    fn impossible_plans_are_refused_in_words() {
        plan().check().unwrap();
        type Spoil = fn(&mut Plan);
        let spoil: [(&str, Spoil); 9] = [
            ("0 calls per row", |p| p.calls = Some(0)),
            ("by time", |p| (p.calls, p.sides) = (Some(9), vec![Side::Floor])),
            ("too large", |p| p.sizes.push(SIZE_MAX + 1)),
            ("0 calls in flight", |p| p.inflights.push(0)),
            ("5000 calls in flight", |p| p.inflights.push(5000)),
            ("seconds", |p| p.seconds = f64::NAN),
            ("seconds", |p| p.seconds = 0.0),
            ("rounds", |p| p.rounds = 0),
            ("no value", |p| p.sides.clear()),
        ];
        for (words, spoil) in spoil {
            let mut plan = plan();
            spoil(&mut plan);
            let error = plan.check().unwrap_err().to_string();
            assert!(error.contains(words), "{error:?} lacks {words:?}");
        }
    }

    #[test]
    fn names_parse_back_and_unknown_ones_are_answered_with_the_known() {
        for &side in Side::ALL {
            assert_eq!(side.name().parse(), Ok(side));
            assert_eq!(serde_json::to_value(side).unwrap(), side.name());
        }
        let error = "pigeon".parse::<Side>().unwrap_err();
        assert!(error.contains("tonic-unix"), "{error}");
    }

    #[test]
    fn sizes_in_words() {
        assert_eq!(bytes_in_words(0), "0 B");
        assert_eq!(bytes_in_words(64), "64 B");
        assert_eq!(bytes_in_words(4096), "4 KiB");
        assert_eq!(bytes_in_words(1 << 20), "1 MiB");
        assert_eq!(bytes_in_words(1025), "1025 B");
    }
}
