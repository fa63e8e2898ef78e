//! What to measure: the axes of `tollfree-lab bench echo` and the cases they span.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use tollfree_measure::axis;
pub use tollfree_measure::axis::Placement;

use crate::BenchError;
use crate::harness::words::bytes_in_words;
use crate::harness::{Lasting, each_once, refuse, some, within};
pub use crate::message::Message;

/// Largest body that may be asked for, in bytes: what the project tests as its largest message.
pub const SIZE_MAX: usize = 256 << 20;

/// Most calls in flight that may be asked for.
pub const INFLIGHT_MAX: usize = 4096;

/// Most metadata pairs each way that may be asked for: HTTP/2 peers take no more than 16 KiB of headers.
pub const METADATA_MAX: usize = 100;

axis! {
    /// What carries the calls.
    Side, "side", {
        /// Two bare rings, one process spinning on each end: what no transport can undercut.
        Floor = "floor",
        /// iceoryx2's request-response, both ends polling: a peer through shared memory, without RPC semantics.
        Iceoryx2 = "iceoryx2",
        /// A session carrying bytes, without tonic.
        Session = "session",
        /// Tollfree's own stubs, from typed message to session.
        TollfreeDirect = "tollfree-direct",
        /// The same, stubs that take objects: messages are read and built in place, and travel as they are.
        TollfreeView = "tollfree-view",
        /// The same with a pool, in which large objects go by ref and are read where they lie.
        TollfreeViewPool = "tollfree-view-pool",
        /// Own stubs, bodies by ref through a pool: copied into it where they are sent, out of it where they are received.
        TollfreeRef = "tollfree-ref",
        /// Tollfree's own stubs, blocking: a thread that calls and a thread that serves.
        TollfreeBlocking = "tollfree-blocking",
        /// Unmodified tonic stubs over Tollfree.
        Tollfree = "tollfree",
        /// The same, neither end ever spinning: for cores that must not.
        TollfreePark = "tollfree-park",
        /// The same, on a channel to TCP that has left it for Tollfree.
        TollfreeUpgrade = "tollfree-upgrade",
        /// The same, by way of a shepherd that has led the client to the server.
        TollfreeShortcut = "tollfree-shortcut",
        /// Stock tonic over a Unix socket: what the others are compared with.
        TonicUnix = "tonic-unix",
        /// Stock tonic over TCP on the loopback interface.
        TonicTcp = "tonic-tcp",
    }
}

impl Side {
    /// Whether calls can have metadata: the others carry bytes and nothing else.
    #[must_use]
    pub const fn carries_metadata(self) -> bool {
        !matches!(self, Side::Floor | Side::Iceoryx2 | Side::Session)
    }

    /// Whether calls can carry messages of many fields: the others carry bytes and nothing else.
    #[must_use]
    pub const fn carries_messages(self) -> bool {
        self.carries_metadata()
    }

    /// Why this build can't run a side, if it can't: a row that is not run for this is no failure.
    #[must_use]
    pub const fn missing(self) -> Option<&'static str> {
        match self {
            Side::Iceoryx2 if !cfg!(feature = "iceoryx2") => {
                Some("this build has no iceoryx2; `make bench-peers` builds one that has")
            }
            _ => None,
        }
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
    /// What carries the calls of `tollfree-lab bench paced`.
    PacedSide, "side", {
        /// Two bare rings and a thread that sleeps at each end: what being woken twice costs.
        Wake = "wake",
        /// Stock tonic over a Unix socket.
        TonicUnix = "tonic-unix",
        /// Unmodified tonic stubs over Tollfree.
        Tollfree = "tollfree",
        /// Tollfree's own stubs.
        TollfreeDirect = "tollfree-direct",
        /// Tollfree's own stubs, blocking.
        TollfreeBlocking = "tollfree-blocking",
    }
}

axis! {
    /// How both ends of a Tollfree session wait.
    Wait, "way to wait", {
        /// As they do unless told otherwise.
        Default = "default",
        /// For the lowest latency.
        LowLatency = "low-latency",
        /// Never spinning.
        Park = "park",
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
    /// What a call carries.
    pub message: Message,
    /// Bytes in the request's and the reply's body; of another message than the probe, bytes that it has as protobuf's, on average.
    pub size: usize,
    /// Metadata pairs in the request, and as many in the reply.
    pub metadata: usize,
    /// Calls outstanding at any time.
    pub inflight: usize,
    /// Where the two processes run.
    pub placement: Placement,
    /// The tokio runtime in both processes.
    pub runtime: RuntimeKind,
}

impl fmt::Display for Case {
    /// As those hear of it who wait.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { side, metadata, inflight, placement, runtime, .. } = self;
        let pairs = if *metadata == 0 { String::new() } else { format!(" + {metadata} pairs") };
        write!(f, "{side} · {}{pairs}, {inflight} in flight, {placement}, {runtime}", self.payload())
    }
}

impl Case {
    /// Bytes in one field, wherever the kernel puts the processes.
    pub(crate) fn probe(side: Side, size: usize, inflight: usize, runtime: RuntimeKind) -> Case {
        let (message, metadata, placement) = (Message::Probe, 0, Placement::Unpinned);
        Case { side, message, size, metadata, inflight, placement, runtime }
    }

    /// What it carries, in words.
    #[must_use]
    pub fn payload(&self) -> String {
        match self.message {
            Message::Probe => bytes_in_words(self.size),
            message => format!("{message} ({})", bytes_in_words(self.size)),
        }
    }

    /// The same case on another side: what this one is compared with.
    pub fn on(self, side: Side) -> Self {
        Self { side, ..self }
    }

    /// The same case without metadata: what those cost is the difference.
    pub fn bare(self) -> Self {
        Self { metadata: 0, ..self }
    }

    /// Why it can't be run, if it can't: a row that is not run for this is no failure.
    #[must_use]
    pub fn missing(&self) -> Option<&'static str> {
        let carried = self.message == Message::Probe || self.side.carries_messages();
        self.side
            .missing()
            .or_else(|| (!carried).then_some("this side carries bytes: it has no messages with fields"))
    }

    /// The case without its side, in words.
    pub fn setting(&self) -> String {
        let runtime = match self.runtime {
            RuntimeKind::Current => "current-thread runtime",
            RuntimeKind::Multi => "multi-thread runtime, 2 workers",
        };
        let metadata = match self.metadata {
            0 => String::new(),
            1 => " and a metadata pair each way".to_owned(),
            count => format!(" and {count} metadata pairs each way"),
        };
        let size = self.payload();
        format!("{size}{metadata}, {} in flight, {}, {runtime}", self.inflight, self.placement)
    }
}

/// A whole benchmark: the axes, and how long to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What calls carry.
    pub messages: Vec<Message>,
    /// Directory of the corpora that messages are of; without it, kept and generated ones.
    pub corpus: Option<PathBuf>,
    /// Body sizes of the probe in bytes, each at most [`SIZE_MAX`].
    pub sizes: Vec<usize>,
    /// Metadata pairs each way, each at most [`METADATA_MAX`].
    pub metadata: Vec<usize>,
    /// Calls outstanding, each at least 1 and at most [`INFLIGHT_MAX`].
    pub inflights: Vec<usize>,
    /// Placements.
    pub placements: Vec<Placement>,
    /// Sides.
    pub sides: Vec<Side>,
    /// Runtimes.
    pub runtimes: Vec<RuntimeKind>,
    /// How long and how often.
    pub lasting: Lasting,
    /// Calls per row and round, whatever time they take: instead of a measured time.
    pub calls: Option<u64>,
    /// What malloc keeps, on all sides alike.
    pub malloc: Malloc,
}

impl Plan {
    /// Checks what the command line's own types cannot.
    ///
    /// # Errors
    /// [`BenchError::Refused`], naming the value and what is allowed.
    pub fn check(&self) -> Result<(), BenchError> {
        within(&self.sizes, 0..=SIZE_MAX, "bytes")?;
        within(&self.metadata, 0..=METADATA_MAX, "metadata pairs")?;
        within(&self.inflights, 1..=INFLIGHT_MAX, "calls in flight")?;
        self.lasting.check()?;
        if self.calls == Some(0) {
            return refuse("0 calls per row and round: must be 1 or more");
        }
        if let Some(side) = self.sides.iter().find(|side| matches!(side, Side::Floor | Side::Iceoryx2))
            && self.calls.is_some()
        {
            return refuse(format!("{side} is measured by time: it can't be told a number of calls"));
        }
        let no_side = "nothing to measure: an axis has no value, or no side can have metadata";
        some(&self.cases()).or_else(|_| refuse(no_side))
    }

    /// Every case, those that are compared with each other next to each other, each case once. Sides that carry no
    /// metadata are left out where there are some. Of other messages than the probe the size is not known yet, and metadata are left out.
    pub fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for &runtime in &self.runtimes {
            for &placement in &self.placements {
                for &inflight in &self.inflights {
                    for (message, size, metadata) in self.loads() {
                        for &side in &self.sides {
                            if metadata == 0 || side.carries_metadata() {
                                cases.push(Case {
                                    side,
                                    message,
                                    size,
                                    metadata,
                                    inflight,
                                    placement,
                                    runtime,
                                });
                            }
                        }
                    }
                }
            }
        }
        each_once(cases)
    }

    /// What a call carries: message, size and metadata pairs.
    fn loads(&self) -> Vec<(Message, usize, usize)> {
        let probes =
            self.sizes.iter().flat_map(|size| self.metadata.iter().map(move |pairs| (*size, *pairs)));
        let of = |message: Message| match message {
            Message::Probe => probes.clone().map(|(size, pairs)| (message, size, pairs)).collect(),
            _ => vec![(message, 0, 0)],
        };
        self.messages.iter().flat_map(|message| of(*message)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            messages: vec![Message::Probe],
            corpus: None,
            sizes: vec![64, 4096],
            metadata: vec![0],
            inflights: vec![1, 64],
            placements: vec![Placement::Split],
            sides: vec![Side::TonicTcp, Side::TonicUnix],
            runtimes: vec![RuntimeKind::Current],
            lasting: Lasting { seconds: 0.5, rounds: 3 },
            calls: None,
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
    fn sides_that_carry_no_metadata_have_no_cases_with_any() {
        let mut pairs = plan();
        pairs.metadata = vec![0, 5];
        pairs.sides = vec![Side::Floor, Side::Session, Side::TollfreeDirect];
        let with: Vec<_> = pairs.cases().into_iter().filter(|case| case.metadata == 5).collect();
        assert_eq!(with.len(), 4);
        assert!(with.iter().all(|case| case.side == Side::TollfreeDirect && case.bare().metadata == 0));
    }

    #[test]
    fn messages_have_a_case_for_each_side_whatever_the_sizes_are() {
        let mut fields = plan();
        (fields.metadata, fields.messages) = (vec![0, 5], vec![Message::M3, Message::Fds]);
        fields.sides = vec![Side::Session, Side::TollfreeView];
        let cases = fields.cases();
        assert_eq!(cases.len(), 2 * 2 * 2);
        for case in cases {
            assert_eq!(case.missing().is_some(), case.side == Side::Session, "{case:?}");
            assert_eq!((case.metadata, case.on(Side::Floor).payload().is_empty()), (0, false));
        }
    }

    #[test]
    fn impossible_plans_are_refused_in_words() {
        plan().check().unwrap();
        type Spoil = fn(&mut Plan);
        let spoil: [(&str, Spoil); 9] = [
            ("0 calls per row", |p| p.calls = Some(0)),
            ("by time", |p| (p.calls, p.sides) = (Some(9), vec![Side::Floor])),
            ("bytes: must be", |p| p.sizes.push(SIZE_MAX + 1)),
            ("metadata pairs: must be", |p| p.metadata.push(METADATA_MAX + 1)),
            ("can have metadata", |p| (p.metadata, p.sides) = (vec![1], vec![Side::Floor])),
            ("0 calls in flight", |p| p.inflights.push(0)),
            ("5000 calls in flight", |p| p.inflights.push(5000)),
            ("rounds", |p| p.lasting.rounds = 0),
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
}
