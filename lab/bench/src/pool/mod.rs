//! `tollfree-lab bench pool`: passing by reference, between two pinned processes.
//!
//! One process makes the pool and shares, the other takes, writes and shares back. Each times what it does itself, on its
//! own clock, in batches: refs travel between them through the starter, and that is not timed, for it is the same on all
//! sides. Memory is warm: every batch before the first that counts uses the blocks that later ones use. All sides run once
//! in each round.

mod act;
mod hop;
mod iceoryx2_hop;
mod micro;
mod ray;
pub mod report;

use std::fmt;

use serde::{Deserialize, Serialize};
use tollfree_measure::axis;

use act::{Did, Role, Task};
pub(crate) use act::{Part, act};
use hop::{Carrier, End, with_warm_up};
pub(crate) use hop::{HopPart, act as act_hop};
pub use report::{PoolReport, Row};

use crate::BenchError;
use crate::cores::{Cores, Seats};
use crate::harness::measured::median_of;
use crate::harness::{self, Crew, Lasting, Machine, Told, Tried, rounds, within};
use crate::order::{self, Order};
use crate::peer::Peer;
use crate::plan::{Malloc, Placement};

/// Most bytes that a batch has in the pool at once.
const BATCH_BYTES_MAX: usize = 64 << 20;
/// Rounds before those that count.
const WARM_ROUND_COUNT: usize = 2;
/// What figure 8 is about.
const BLOCK_LEN: usize = 32 << 10;
/// What is copied at once where somebody writes.
const PAGE_LEN: usize = 4096;
/// Payloads of the one-way figure.
const HOP_SIZES: [usize; 3] = [64 << 10, 256 << 10, 1 << 20];
/// How much of it is written, in percent.
const SHARES: [usize; 5] = [0, 25, 50, 75, 100];

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// DmRPC's figure 7: `create_ref` of 4 to 512 KiB.
    Fig7,
    /// DmRPC's figure 8: a block of 32 KiB, of which the receiver writes 0 to 100 %.
    Fig8,
    /// One hop, one way, of 64 KiB to 1 MiB, beside iceoryx2's publish-subscribe.
    Hop,
    /// Single operations.
    Micro,
}

axis! {
    /// How a value gets to the other process.
    Side, "side", {
        /// By ref; a writer copies the pages that it touches.
        CopyOnWrite = "copy-on-write",
        /// The same, and a writer has plain memory, of which the kernel copies the pages that are touched.
        Transparent = "transparent",
        /// By ref to a copy of all of it, made beforehand.
        Copy = "copy",
        /// Through an object store: copied in by who has it, copied out by who wants it.
        Store = "object store",
    }
}

/// What `tollfree-lab bench pool` is asked to do.
#[derive(Debug, Clone)]
pub struct PoolPlan {
    /// The figure.
    pub figure: Figure,
    /// Rounds that count; every row runs once in each.
    pub rounds: usize,
    /// Operations of a row in a round, at most: fewer where they wouldn't fit into 64 MiB.
    pub count: usize,
    /// A Python that may have Ray, for figure 8.
    pub python: String,
}

impl PoolPlan {
    fn check(&self) -> Result<(), BenchError> {
        // Time is not what ends a round here.
        Lasting { seconds: 1.0, rounds: self.rounds }.check()?;
        within(&[self.count], 1..=4096, "operations a round")
    }

    fn cases(&self) -> Vec<Case> {
        let cross = |figure, sides: &[Side], settings: &[usize]| -> Vec<Case> {
            let of = |&setting| sides.iter().map(move |&side| Case { figure, side, setting });
            settings.iter().flat_map(of).collect()
        };
        let sizes: Vec<usize> = (0..8).map(|step| 4096 << step).collect();
        match self.figure {
            Figure::Fig7 => cross(self.figure, &[Side::CopyOnWrite, Side::Copy], &sizes),
            Figure::Fig8 => cross(self.figure, Side::ALL, &SHARES),
            Figure::Micro => cross(self.figure, &[Side::CopyOnWrite], &[64 << 10]),
            Figure::Hop => Vec::new(),
        }
    }
}

/// What is done at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Case {
    figure: Figure,
    side: Side,
    setting: usize,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.figure {
            Figure::Micro => f.write_str("single operations"),
            figure => write!(f, "{}, {}", self.side, figure.setting(self.setting)),
        }
    }
}

/// Measures all rows of a figure.
///
/// # Errors
/// [`BenchError::Refused`] if the plan is not possible, others where a process fails.
pub async fn run(plan: &PoolPlan, progress: impl FnMut(&Told)) -> Result<PoolReport, BenchError> {
    plan.check()?;
    let cores = harness::seats([])?;
    if plan.figure == Figure::Hop {
        return hops(plan, &cores, progress).await;
    }
    let seats = cores.seats(Placement::Split).or_else(|_| cores.seats(Placement::SameCore))?;
    let mut pair = Pair::start(seats).await?;
    let warm = if plan.figure == Figure::Micro { 0 } else { WARM_ROUND_COUNT };
    let take = async |case: Case| pair.take(case, plan.count).await;
    let outcome =
        |took: &Took| took.first().map_or_else(String::new, |(name, ns, _)| format!("{name} {ns:.0} ns"));
    let tried = rounds::interleave(plan.cases(), warm + plan.rounds, take, outcome, progress).await;
    pair.stop().await;
    let mut report = PoolReport::begin(plan, Machine::look(&cores, &[]));
    for Tried { case, rounds, not_run } in tried {
        rounds.iter().skip(warm).for_each(|took| report.record(case, took));
        report.excuse(case.side.name(), not_run);
    }
    if plan.figure == Figure::Fig8 {
        // Afterwards, as its processes never rest.
        match ray::run(plan, &SHARES).await {
            Ok(said) => said.iter().for_each(|said| report.record_ray(said.percent, said.ns)),
            Err(why) => report.excuse(report::RAY, Some(why)),
        }
    }
    Ok(report.sum_up())
}

fn trouble(error: impl std::fmt::Display) -> BenchError {
    BenchError::Side { side: "pool", what: error.to_string() }
}

/// One way, each carrier and size by a pair of processes of its own: all but the pair whose turn it is sleep.
async fn hops(plan: &PoolPlan, cores: &Cores, progress: impl FnMut(&Told)) -> Result<PoolReport, BenchError> {
    // Both ends spin, which two processes on one core can't.
    let seats = cores.seats(Placement::Split)?;
    let mut report = PoolReport::begin(plan, Machine::look(cores, &[]));
    let mut carriers = vec![Carrier::Tollfree];
    match cfg!(feature = "iceoryx2") {
        true => carriers.push(Carrier::Iceoryx2),
        false => report.excuse(
            Carrier::Iceoryx2.name(),
            Some("not in this build: `make bench-peers` makes one that has it".to_owned()),
        ),
    }
    let mut pairs = Vec::new();
    for size in HOP_SIZES {
        for &carrier in &carriers {
            pairs.push(HopPair::start(HopCase { carrier, size }, seats).await?);
        }
    }
    let cases: Vec<HopCase> = pairs.iter().map(|pair| pair.case).collect();
    let take = async |case: HopCase| {
        let pair = pairs.iter_mut().find(|pair| pair.case == case).expect("each case has its pair");
        pair.round(plan.count).await
    };
    let outcome = |ns: &f64| format!("{ns:.0} ns");
    let tried = rounds::interleave(cases, plan.rounds, take, outcome, progress).await;
    for Tried { case, rounds, not_run } in tried {
        rounds.iter().for_each(|ns| report.record_hop(case.carrier.name(), case.size, *ns));
        report.excuse(case.carrier.name(), not_run);
    }
    for pair in pairs {
        pair.stop().await?;
    }
    Ok(report.sum_up())
}

/// What goes one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HopCase {
    carrier: Carrier,
    size: usize,
}

impl fmt::Display for HopCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.carrier.name(), Figure::Hop.setting(self.size))
    }
}

/// Two processes between which payloads go one way.
struct HopPair {
    case: HopCase,
    crew: Crew,
    receiver: Peer,
    sender: Peer,
}

impl HopPair {
    async fn start(case: HopCase, seats: Seats) -> Result<HopPair, BenchError> {
        let crew = order::crew(Malloc::System)?;
        let HopCase { carrier, size } = case;
        let end = |end| Order::Hop(HopPart { end, carrier, dir: crew.dir().to_owned(), size });
        let (receiver, ()) = crew.ready("receiver", seats.server, end(End::Receiver)).await?;
        let (sender, ()) = crew.ready("sender", seats.client, end(End::Sender)).await?;
        Ok(HopPair { case, crew, receiver, sender })
    }

    /// The median of so many hops, in nanoseconds.
    async fn round(&mut self, count: usize) -> Result<f64, BenchError> {
        self.receiver.say(&count).await?;
        self.sender.say(&count).await?;
        let ages: Vec<u64> = self.receiver.hear(Crew::PATIENCE).await?;
        self.sender.hear::<()>(Crew::PATIENCE).await?;
        Ok(median_of(ages.into_iter().skip(with_warm_up(0))).unwrap_or(0) as f64)
    }

    async fn stop(self) -> Result<(), BenchError> {
        self.sender.stop().await;
        self.receiver.stop().await;
        match self.case.carrier {
            Carrier::Iceoryx2 => crate::side::iceoryx2::sweep(self.crew.dir()).map_err(trouble),
            Carrier::Tollfree => Ok(()),
        }
    }
}

/// What one batch took: name of the operation, nanoseconds and copied bytes for each.
pub(crate) type Took = Vec<(String, f64, f64)>;

/// The two processes that share a pool.
struct Pair {
    owner: Peer,
    reader: Peer,
    /// Has the pool's socket.
    _crew: Crew,
}

async fn ask(peer: &mut Peer, task: &Task) -> Result<Did, BenchError> {
    peer.say(task).await?;
    Ok(peer.hear(Crew::PATIENCE).await?)
}

impl Pair {
    async fn start(seats: Seats) -> Result<Pair, BenchError> {
        let crew = order::crew(Malloc::System)?;
        let address = format!("shm://{}/pool.sock", crew.dir().display());
        let part = |role| Order::Pool(Part { role, address: address.clone() });
        let (owner, ()) = crew.ready("owner", seats.server, part(Role::Owner)).await?;
        let (reader, ()) = crew.ready("reader", seats.client, part(Role::Reader)).await?;
        Ok(Pair { owner, reader, _crew: crew })
    }

    async fn take(&mut self, case: Case, count: usize) -> Result<Took, BenchError> {
        match case.figure {
            Figure::Fig7 => self.create_ref(case.side, case.setting, count).await,
            Figure::Micro => self.operations(case.setting, count).await,
            Figure::Fig8 | Figure::Hop => self.remote_write(case.side, case.setting, count).await,
        }
    }

    /// Figure 7: the owner makes refs, the reader takes hold of them and lets go.
    async fn create_ref(&mut self, side: Side, size: usize, count: usize) -> Result<Took, BenchError> {
        let count = count.min(BATCH_BYTES_MAX / size).max(1);
        let shared = ask(&mut self.owner, &Task::Share { side, size, count }).await?;
        let taken = ask(&mut self.reader, &Task::Take { refs: shared.refs.clone() }).await?;
        ask(&mut self.owner, &Task::Forget).await?;
        Ok(vec![
            ("create_ref".to_owned(), shared.each_ns(count), shared.each_copied(count)),
            ("map and drop".to_owned(), taken.each_ns(count), taken.each_copied(count)),
        ])
    }

    /// Figure 8: the owner shares a block, the reader writes a part of it and shares the result, the owner takes that.
    async fn remote_write(&mut self, side: Side, percent: usize, count: usize) -> Result<Took, BenchError> {
        let count = count.min(BATCH_BYTES_MAX / BLOCK_LEN);
        let shared = ask(&mut self.owner, &Task::Share { side, size: BLOCK_LEN, count }).await?;
        let written =
            ask(&mut self.reader, &Task::Write { side, percent, refs: shared.refs.clone() }).await?;
        let taken = ask(&mut self.owner, &Task::Collect { side, refs: written.refs.clone() }).await?;
        ask(&mut self.reader, &Task::Forget).await?;
        ask(&mut self.owner, &Task::Forget).await?;
        let steps = [&shared, &written, &taken];
        let ns = steps.iter().map(|did| did.each_ns(count)).sum();
        let copied = steps.iter().map(|did| did.each_copied(count)).sum();
        Ok(vec![(report::WRITE.to_owned(), ns, copied)])
    }

    /// Single operations, on a ref of so many bytes.
    async fn operations(&mut self, size: usize, count: usize) -> Result<Took, BenchError> {
        let shared = ask(&mut self.owner, &Task::Share { side: Side::CopyOnWrite, size, count: 1 }).await?;
        let mut did = ask(&mut self.owner, &Task::OwnerMicro { count }).await?.operations;
        let refs = shared.refs.clone();
        did.extend(ask(&mut self.reader, &Task::ReaderMicro { count, refs }).await?.operations);
        ask(&mut self.owner, &Task::Forget).await?;
        Ok(did.into_iter().map(|(operation, ns)| (operation, ns, 0.0)).collect())
    }

    async fn stop(self) {
        self.owner.stop().await;
        self.reader.stop().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_that_cannot_be_are_refused() {
        let plan = PoolPlan { figure: Figure::Fig7, rounds: 3, count: 16, python: String::new() };
        assert_eq!((plan.cases().len(), plan.check().is_ok()), (16, true));
        assert_eq!(PoolPlan { figure: Figure::Fig8, ..plan.clone() }.cases().len(), 20);
        for wrong in [PoolPlan { rounds: 0, ..plan.clone() }, PoolPlan { count: 0, ..plan.clone() }] {
            assert!(matches!(wrong.check(), Err(BenchError::Refused(_))));
        }
    }
}
