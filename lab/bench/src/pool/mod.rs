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
mod plot;
mod ray;
pub mod report;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use act::{Did, Role, Task};
pub(crate) use act::{Part, act};
use hop::{Carrier, End, with_warm_up};
pub(crate) use hop::{HopPart, act as act_hop};
pub use report::{PoolReport, Row};

use crate::cores::{CoreIdx, Cores};
use crate::order::Order;
use crate::peer::Peer;
use crate::plan::Placement;
use crate::workdir::Workdir;
use crate::{BenchError, Machine};

/// How long a process may take for one batch.
const PATIENCE: Duration = Duration::from_secs(60);
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
/// The side of that figure that is not ours.
const ICEORYX2: &str = "iceoryx2";
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

/// How a value gets to the other process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Side {
    /// By ref; a writer copies the pages that it touches.
    CopyOnWrite,
    /// The same, and a writer has plain memory, of which the kernel copies the pages that are touched.
    Transparent,
    /// By ref to a copy of all of it, made beforehand.
    Copy,
    /// Through an object store: copied in by who has it, copied out by who wants it.
    Store,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Side::CopyOnWrite => "copy-on-write",
            Side::Transparent => "transparent",
            Side::Copy => "copy",
            Side::Store => "object store",
        }
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
        if !(1..=1000).contains(&self.rounds) {
            return Err(BenchError::Refused("between 1 and 1000 rounds are possible".to_owned()));
        }
        if !(1..=4096).contains(&self.count) {
            return Err(BenchError::Refused("between 1 and 4096 operations a round are possible".to_owned()));
        }
        Ok(())
    }

    fn cases(&self) -> Vec<(Side, usize)> {
        let sizes = (0..8).map(|step| 4096 << step);
        let shares = SHARES.into_iter();
        match self.figure {
            Figure::Fig7 => cross(&[Side::CopyOnWrite, Side::Copy], sizes),
            Figure::Fig8 => cross(&[Side::CopyOnWrite, Side::Transparent, Side::Copy, Side::Store], shares),
            Figure::Hop | Figure::Micro => Vec::new(),
        }
    }
}

fn cross(sides: &[Side], settings: impl Iterator<Item = usize>) -> Vec<(Side, usize)> {
    settings.flat_map(|setting| sides.iter().map(move |side| (*side, setting))).collect()
}

/// Measures all rows of a figure.
///
/// # Errors
/// [`BenchError::Refused`] if the plan is not possible, others where a process fails.
pub async fn run(plan: &PoolPlan, mut progress: impl FnMut(usize, usize)) -> Result<PoolReport, BenchError> {
    plan.check()?;
    let cores = Cores::choose()?;
    if plan.figure == Figure::Hop {
        return hops(plan, &cores, progress).await;
    }
    let seats = cores.seats(Placement::Split).or_else(|_| cores.seats(Placement::SameCore))?;
    let directory =
        tempfile::tempdir().map_err(BenchError::system("cannot make a directory for the socket"))?;
    let address = format!("shm://{}/pool.sock", directory.path().display());
    let mut owner = start("owner", Role::Owner, &address, seats.server).await?;
    let mut reader = start("reader", Role::Reader, &address, seats.client).await?;
    let mut rows = if plan.figure == Figure::Micro {
        micro_rows(plan, &mut owner, &mut reader).await?
    } else {
        plan.cases()
            .into_iter()
            .flat_map(|(side, setting)| report::empty(plan.figure, side, setting))
            .collect()
    };
    let cases = plan.cases();
    let rounds = if cases.is_empty() { 0 } else { WARM_ROUND_COUNT + plan.rounds };
    for round in 0..rounds {
        for (side, setting) in &cases {
            let took = match plan.figure {
                Figure::Fig7 => create_ref(&mut owner, &mut reader, *side, *setting, plan.count).await?,
                _ => remote_write(&mut owner, &mut reader, *side, *setting, plan.count).await?,
            };
            if round >= WARM_ROUND_COUNT {
                report::record(&mut rows, *side, *setting, &took);
            }
        }
        progress(round + 1, rounds);
    }
    owner.stop().await;
    reader.stop().await;
    let mut not_run = Vec::new();
    if plan.figure == Figure::Fig8 {
        // Afterwards, as its processes never rest.
        match ray::run(plan, &SHARES).await {
            Ok(said) => said.iter().for_each(|said| report::record_ray(&mut rows, said.percent, said.ns)),
            Err(why) => not_run.push(("Ray", why)),
        }
    }
    Ok(PoolReport::new(plan, Machine::look(&cores, &[]), rows, not_run))
}

fn trouble(error: impl std::fmt::Display) -> BenchError {
    BenchError::Side { side: "pool", what: error.to_string() }
}

/// One way, each carrier and size by a pair of processes of its own: all but the pair whose turn it is sleep.
async fn hops(
    plan: &PoolPlan,
    cores: &Cores,
    mut progress: impl FnMut(usize, usize),
) -> Result<PoolReport, BenchError> {
    // Both ends spin, which two processes on one core can't.
    let seats = cores.seats(Placement::Split)?;
    let mut not_run = Vec::new();
    let mut carriers = vec![Carrier::Tollfree];
    match cfg!(feature = "iceoryx2") {
        true => carriers.push(Carrier::Iceoryx2),
        false => {
            not_run.push((ICEORYX2, "not in this build: `make bench-peers` makes one that has it".to_owned()))
        }
    }
    let mut pairs = Vec::new();
    for size in HOP_SIZES {
        for carrier in &carriers {
            pairs.push(HopPair::start(*carrier, size, seats.server, seats.client).await?);
        }
    }
    let mut rows = Vec::new();
    for round in 0..plan.rounds {
        for pair in &mut pairs {
            report::record_hop(&mut rows, pair.carrier.name(), pair.size, pair.round(plan.count).await?);
        }
        progress(round + 1, plan.rounds);
    }
    for pair in pairs {
        pair.stop().await?;
    }
    Ok(PoolReport::new(plan, Machine::look(cores, &[]), rows, not_run))
}

/// Two processes between which payloads go one way.
struct HopPair {
    carrier: Carrier,
    size: usize,
    dir: Workdir,
    receiver: Peer,
    sender: Peer,
}

impl HopPair {
    async fn start(
        carrier: Carrier,
        size: usize,
        receiver: Option<CoreIdx>,
        sender: Option<CoreIdx>,
    ) -> Result<HopPair, BenchError> {
        let dir = Workdir::create()?;
        let end = async |name, end, core| {
            let order = Order::Hop(HopPart { end, carrier, core, dir: dir.path().to_owned(), size });
            let mut peer = Peer::start(name, &["bench-peer"], &[], &order).await?;
            peer.hear::<()>(PATIENCE).await?;
            Ok::<Peer, BenchError>(peer)
        };
        let receiver = end("receiver", End::Receiver, receiver).await?;
        let sender = end("sender", End::Sender, sender).await?;
        Ok(HopPair { carrier, size, dir, receiver, sender })
    }

    /// The median of so many hops, in nanoseconds.
    async fn round(&mut self, count: usize) -> Result<f64, BenchError> {
        self.receiver.say(&count).await?;
        self.sender.say(&count).await?;
        let mut ages: Vec<u64> = self.receiver.hear(PATIENCE).await?;
        self.sender.hear::<()>(PATIENCE).await?;
        let counted = &mut ages[with_warm_up(0)..];
        counted.sort_unstable();
        Ok(counted[counted.len() / 2] as f64)
    }

    async fn stop(self) -> Result<(), BenchError> {
        self.sender.stop().await;
        self.receiver.stop().await;
        match self.carrier {
            Carrier::Iceoryx2 => crate::side::iceoryx2::sweep(self.dir.path()).map_err(trouble),
            Carrier::Tollfree => Ok(()),
        }
    }
}

async fn start(
    name: &'static str,
    role: Role,
    address: &str,
    core: Option<CoreIdx>,
) -> Result<Peer, BenchError> {
    let order = Order::Pool(Part { role, address: address.to_owned(), core });
    let mut peer = Peer::start(name, &["bench-peer"], &[], &order).await?;
    peer.hear::<()>(PATIENCE).await?;
    Ok(peer)
}

async fn ask(peer: &mut Peer, task: &Task) -> Result<Did, BenchError> {
    peer.say(task).await?;
    Ok(peer.hear(PATIENCE).await?)
}

/// What one batch took: name of the operation, nanoseconds and copied bytes for each.
pub(crate) type Took = Vec<(&'static str, f64, f64)>;

/// Figure 7: the owner makes refs, the reader takes hold of them and lets go.
async fn create_ref(
    owner: &mut Peer,
    reader: &mut Peer,
    side: Side,
    size: usize,
    count: usize,
) -> Result<Took, BenchError> {
    let count = count.min(BATCH_BYTES_MAX / size).max(1);
    let shared = ask(owner, &Task::Share { side, size, count }).await?;
    let taken = ask(reader, &Task::Take { refs: shared.refs.clone() }).await?;
    ask(owner, &Task::Forget).await?;
    Ok(vec![
        ("create_ref", shared.each_ns(count), shared.each_copied(count)),
        ("map and drop", taken.each_ns(count), taken.each_copied(count)),
    ])
}

/// Figure 8: the owner shares a block, the reader writes a part of it and shares the result, the owner takes that.
async fn remote_write(
    owner: &mut Peer,
    reader: &mut Peer,
    side: Side,
    percent: usize,
    count: usize,
) -> Result<Took, BenchError> {
    let count = count.min(BATCH_BYTES_MAX / BLOCK_LEN);
    let shared = ask(owner, &Task::Share { side, size: BLOCK_LEN, count }).await?;
    let written = ask(reader, &Task::Write { side, percent, refs: shared.refs.clone() }).await?;
    let taken = ask(owner, &Task::Collect { side, refs: written.refs.clone() }).await?;
    ask(reader, &Task::Forget).await?;
    ask(owner, &Task::Forget).await?;
    let steps = [&shared, &written, &taken];
    let ns = steps.iter().map(|did| did.each_ns(count)).sum();
    let copied = steps.iter().map(|did| did.each_copied(count)).sum();
    Ok(vec![("share, write, return", ns, copied)])
}

async fn micro_rows(plan: &PoolPlan, owner: &mut Peer, reader: &mut Peer) -> Result<Vec<Row>, BenchError> {
    let mut rows: Vec<Row> = Vec::new();
    for _ in 0..plan.rounds {
        let mut took = Vec::new();
        let shared = ask(owner, &Task::Share { side: Side::CopyOnWrite, size: 64 << 10, count: 1 }).await?;
        took.extend(ask(owner, &Task::OwnerMicro { count: plan.count }).await?.operations);
        let refs = shared.refs.clone();
        took.extend(ask(reader, &Task::ReaderMicro { count: plan.count, refs }).await?.operations);
        ask(owner, &Task::Forget).await?;
        for (operation, ns) in took {
            report::record_operation(&mut rows, &operation, ns);
        }
    }
    Ok(rows)
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
