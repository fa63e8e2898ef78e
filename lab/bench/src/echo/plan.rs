//! The axes of `tollfree-lab bench echo`, and the cases they span.

use std::path::PathBuf;

use crate::BenchError;
use crate::harness::{Lasting, each_once, refuse, some, within};
use crate::plan::{Case, INFLIGHT_MAX, Malloc, Message, Placement, RuntimeKind, SIZE_MAX, Side};

/// Most metadata pairs each way that may be asked for: HTTP/2 peers take no more than 16 KiB of headers.
pub const METADATA_MAX: usize = 100;

/// A whole benchmark: the axes, and how long to measure.
#[derive(Debug, Clone)]
pub struct EchoPlan {
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

impl EchoPlan {
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

    fn plan() -> EchoPlan {
        EchoPlan {
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
        type Spoil = fn(&mut EchoPlan);
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
}
