//! DmRPC's figures, as plans.

use tollfree_bench::harness::Lasting;

use crate::plan::{Plan, Pressure, Shape};
use crate::services::Work;

/// A figure of the paper that is made of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// An array of 4 KiB through chains of 1 to 7 calls.
    Fig5,
    /// A balancer that forwards 4 to 32 KiB.
    Fig6,
    /// The image pipeline, 4 to 512 KiB, transfer-bound.
    Fig10,
    /// The social network, latency over load.
    Fig11,
}

/// The paper passes 4 KiB by ref already.
const PAGE_LEN: usize = 4096;
/// Calls in flight where the rate is asked for.
const BUSY: Pressure = Pressure::Inflight(16);
/// The same where a request goes through ten messages.
const FULL: Pressure = Pressure::Inflight(64);
const SINGLE: Pressure = Pressure::Inflight(1);

impl Figure {
    /// The plan that the paper's text describes, of rounds and times that suit a small machine.
    #[must_use]
    pub fn plan(self) -> Plan {
        let doubling = |from: usize, count: u32| (0..count).map(move |step| from << step);
        let (title, shapes, pressures): (_, Vec<Shape>, _) = match self {
            Self::Fig5 => (
                "Figure 5: 4 KiB through nested calls",
                (1..=7).map(|length| Shape::Chain { length, size: PAGE_LEN, whole: true }).collect(),
                vec![SINGLE, BUSY],
            ),
            Self::Fig6 => (
                "Figure 6: a balancer before three workers",
                doubling(PAGE_LEN, 4).map(|size| Shape::Balancer { workers: 3, size }).collect(),
                vec![BUSY],
            ),
            Self::Fig10 => (
                "Figure 10: image processing in seven tiers, transfer-bound",
                doubling(PAGE_LEN, 8).map(|size| Shape::Images { work: Work::Touch, size }).collect(),
                vec![SINGLE, FULL],
            ),
            Self::Fig11 => (
                "Figure 11: a social network, 60/30/10",
                vec![Shape::Social { media: 2 * PAGE_LEN }],
                [100.0, 200.0, 400.0, 800.0, 1600.0, 3200.0].map(Pressure::Rate).to_vec(),
            ),
        };
        let sides = shapes[0].sides().to_vec();
        Plan {
            title: title.to_owned(),
            figure: None,
            shapes,
            pressures,
            sides,
            lasting: Lasting { seconds: if self == Self::Fig11 { 2.0 } else { 0.25 }, rounds: 5 },
            ref_threshold: Some(PAGE_LEN),
            park: false,
            images: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_possible_and_have_the_papers_settings() {
        let count = |figure: Figure| {
            let plan = figure.plan();
            plan.check().unwrap();
            plan.cases().len()
        };
        assert_eq!(count(Figure::Fig5), 7 * 2 * 4);
        assert_eq!(count(Figure::Fig6), 4 * 4);
        assert_eq!(count(Figure::Fig10), 8 * 2 * 4);
        assert_eq!(count(Figure::Fig11), 6 * 4);
        let sizes = |figure: Figure| {
            let plan = figure.plan();
            (plan.shapes[0].size() >> 10, plan.shapes.last().unwrap().size() >> 10)
        };
        assert_eq!((sizes(Figure::Fig6), sizes(Figure::Fig10)), ((4, 32), (4, 512)));
    }
}
