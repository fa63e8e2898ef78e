//! Runs a plan: starts the processes of each case anew for each round, measures, and ends them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tollfree_bench::cores::Cores;
use tollfree_bench::peer::{Peer, PeerError};
use tollfree_bench::plan::Malloc;
use tollfree_bench::workdir::Workdir;
use tollfree_bench::{BenchError, Machine, certificates, rounds};
use tollfree_pool::{Capacity, Coordinator};

use crate::load::{LoadOrder, Measured, Run};
use crate::plan::{Case, Plan, Pressure, Shape};
use crate::process::{Ask, Order, Ready, Serving, What};
use crate::report::{LOAD, Report, Round, Row};
use crate::scene;
use crate::seat::SeatOrder;
use crate::services::Work;
use crate::side::Side;
use crate::tally::Tally;

/// The hidden command that starts a process of a workload.
const PEER: &str = "workload-peer";
/// The name of the process that services attach to.
const SHEPHERD: &str = "shepherd";
/// Time that a process may take to start and connect.
const START: Duration = Duration::from_secs(30);
/// Time that an answer may take beyond the time that is measured.
const PATIENCE: Duration = Duration::from_secs(60);
/// Memory of the pool: bounds that no workload should meet.
const POOL_BYTES: u64 = 8 << 30;
const MEMBER_BYTES: u64 = 2 << 30;
const BATCH_BYTES_MIN: u64 = 8 << 20;

/// One measurement that just ended.
pub type Step<'a> = rounds::Step<'a, Case, Round>;

/// Measures everything the plan asks for; `progress` hears of each measurement.
///
/// A case that fails is a row that says so, and the others go on.
///
/// # Errors
/// [`BenchError::Refused`] for a plan that cannot be carried out, [`BenchError::System`].
pub async fn run(plan: &Plan, progress: impl FnMut(&Step<'_>)) -> Result<Report, BenchError> {
    plan.check()?;
    let cores = Cores::choose()?;
    let malloc = Malloc::Keep.settings();
    let machine = Machine::look(&cores, &malloc);
    let kept = Workdir::create()?;
    let take = async |case: Case| measure(plan, case, &cores, &malloc, kept.path()).await;
    let tried = rounds::interleave(plan.cases(), plan.rounds, take, progress).await;
    Ok(Report::new(machine, plan, tried.into_iter().map(Row::of).collect()))
}

/// The image files of a case: the user's, or ones that are made once for the whole run.
fn images(plan: &Plan, shape: Shape, dir: &Path) -> Result<Vec<PathBuf>, BenchError> {
    match (shape, &plan.images) {
        (Shape::Images { work: Work::Codec, .. }, Some(images)) => scene::list(images),
        (Shape::Images { work: Work::Codec, size }, None) => {
            let dir = dir.join(format!("images-{size}"));
            if dir.is_dir() {
                return scene::list(&dir);
            }
            std::fs::create_dir(&dir).map_err(|source| BenchError::Write { path: dir.clone(), source })?;
            scene::write(&dir, size)
        }
        _ => Ok(Vec::new()),
    }
}

async fn measure(
    plan: &Plan,
    case: Case,
    cores: &Cores,
    malloc: &[(&str, &str)],
    kept: &Path,
) -> Result<Round, BenchError> {
    let images = images(plan, case.shape, kept)?;
    let dir = Workdir::create()?;
    let pool = case.side.has_pool().then(|| coordinate(case, dir.path())).transpose()?;
    if case.side == Side::ShepherdStream {
        certificates::write(dir.path()).map_err(BenchError::Refused)?;
    }
    let order = |name: String, idx: usize, shepherd: Option<&String>, what: What| Order {
        seat: SeatOrder {
            side: case.side,
            name,
            dir: dir.path().to_owned(),
            pool: pool.as_ref().map(|(address, _)| address.clone()),
            shepherd: shepherd.cloned(),
            ref_threshold: plan.ref_threshold,
            park: plan.park,
            message_len_max: case.shape.message_len_max(),
        },
        // A shepherd has threads of its own, for any core.
        core: (!matches!(what, What::Shepherd)).then(|| cores.nth(idx)),
        what,
    };
    let mut services = Vec::new();
    let mut addresses: Vec<String> = Vec::new();
    let (mut front, mut shepherd) = (None, None);
    if case.side.has_shepherd() {
        let order = order(SHEPHERD.to_owned(), 0, None, What::Shepherd);
        let mut peer = Peer::start(SHEPHERD, &[PEER], malloc, &order).await?;
        let Serving { address, meeting_place } = peer.hear(START).await?;
        (front, shepherd) = (Some(address), meeting_place);
        services.push(Process { name: SHEPHERD.to_owned(), is_mover: true, peer });
    }
    for (idx, service) in case.shape.services().into_iter().enumerate() {
        let to = service.calls.iter().map(|called| addresses[*called].clone()).collect();
        let name = format!("{}-{idx}", service.part.name());
        let order = order(name.clone(), idx, shepherd.as_ref(), What::Serve { part: service.part, to });
        let mut peer = Peer::start(service.part.name(), &[PEER], malloc, &order).await?;
        let Serving { address, .. } = peer.hear(START).await?;
        addresses.push(address);
        services.push(Process { name, is_mover: service.part.is_mover(), peer });
    }
    let entry = front.or(addresses.pop()).unwrap_or_default();
    let load = What::Load(LoadOrder { shape: case.shape, entry, images });
    let order = order(LOAD.to_owned(), services.len(), None, load);
    let mut load = Peer::start(LOAD, &[PEER], malloc, &order).await?;
    let Ready {} = load.hear(START).await?;
    let mut round = take(plan, case.pressure, &mut services, &mut load).await?;
    for (process, told) in services.iter_mut().zip(&mut round.processes) {
        process.peer.say(&Ask::Sizes).await?;
        told.sizes = process.peer.hear(PATIENCE).await?;
    }
    load.stop().await;
    for process in services {
        process.peer.stop().await;
    }
    if let Some((_, coordinator)) = pool {
        coordinator.stop();
    }
    Ok(round)
}

/// Starts a pool's coordinator in this process.
fn coordinate(case: Case, dir: &Path) -> Result<(String, Coordinator), BenchError> {
    let failed = |what: String| BenchError::Side { side: case.side.name(), what };
    let address = format!("shm://{}", dir.join("pool.sock").display());
    let at = address.parse().map_err(|error| failed(format!("{address} is no address: {error}")))?;
    let batch = (case.shape.size() as u64).next_power_of_two().saturating_mul(4).max(BATCH_BYTES_MIN);
    let capacity = Capacity { total: POOL_BYTES, member_quota: MEMBER_BYTES, batch };
    let coordinator = Coordinator::start(&at, capacity).map_err(|error| failed(error.to_string()))?;
    Ok((address, coordinator))
}

/// A service's process.
struct Process {
    name: String,
    is_mover: bool,
    peer: Peer,
}

/// Warms up, measures, and asks all processes what they counted meanwhile.
async fn take(
    plan: &Plan,
    pressure: Pressure,
    services: &mut [Process],
    load: &mut Peer,
) -> Result<Round, BenchError> {
    make_calls(load, pressure, plan.warm_up()).await?;
    let before = tally(services, load).await?;
    let measured = make_calls(load, pressure, plan.measure()).await?;
    let after = tally(services, load).await?;
    let names = services.iter().map(|process| (process.name.clone(), process.is_mover));
    let processes = names
        .chain([(LOAD.to_owned(), false)])
        .zip(before.into_iter().zip(after))
        .map(|((name, is_mover), (before, after))| (name, is_mover, after.since(before)))
        .collect();
    Ok(Round::new(measured, processes))
}

async fn make_calls(load: &mut Peer, pressure: Pressure, time: Duration) -> Result<Measured, PeerError> {
    load.say(&Ask::Run(Run { pressure, time })).await?;
    load.hear(time + PATIENCE).await
}

/// Of the services, and of the load generator last.
async fn tally(services: &mut [Process], load: &mut Peer) -> Result<Vec<Tally>, PeerError> {
    let mut all = Vec::with_capacity(services.len() + 1);
    for process in services.iter_mut().map(|process| &mut process.peer).chain([load]) {
        process.say(&Ask::Tally).await?;
        all.push(process.hear(PATIENCE).await?);
    }
    Ok(all)
}
