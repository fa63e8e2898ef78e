//! Runs a plan: starts the processes of each case anew for each round, measures, and ends them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tollfree_bench::cores::Cores;
use tollfree_bench::harness::{self, Crew, Machine, Told, rounds};
use tollfree_bench::peer::{Peer, PeerError};
use tollfree_bench::plan::Malloc;
use tollfree_bench::workdir::Workdir;
use tollfree_bench::{BenchError, certificates};
use tollfree_pool::{Capacity, Coordinator};

use crate::load::{LoadOrder, Measured, Run};
use crate::plan::{Case, Plan, Pressure, Shape};
use crate::process::{Ask, Order, Ready, Serving, What};
use crate::report::{LOAD, Report, Round};
use crate::scene;
use crate::seat::SeatOrder;
use crate::services::Work;
use crate::side::Side;
use crate::tally::Tally;

/// The hidden command that starts a process of a workload.
const PEER: &str = "workload-peer";
/// The name of the process that services attach to.
const GATEWAY: &str = "gateway";
/// Memory of the pool: bounds that no workload should meet.
const POOL_BYTES: u64 = 8 << 30;
const MEMBER_BYTES: u64 = 2 << 30;
const BATCH_BYTES_MIN: u64 = 8 << 20;

/// Measures everything the plan asks for; `progress` hears of each measurement.
///
/// A case that fails is a row that says so, and the others go on.
///
/// # Errors
/// [`BenchError::Refused`] for a plan that cannot be carried out, [`BenchError::System`].
pub async fn run(plan: &Plan, progress: impl FnMut(&Told)) -> Result<Report, BenchError> {
    plan.check()?;
    let cores = harness::seats([])?;
    let machine = Machine::look(&cores, &Malloc::Keep.settings());
    let kept = Workdir::create()?;
    let take = async |case: Case| measure(plan, case, &cores, kept.path()).await;
    let median = |round: &Round| format!("p50 {:.1} us", round.p50_ns as f64 / 1000.0);
    let tried = rounds::interleave(plan.cases(), plan.lasting.rounds, take, median, progress).await;
    Ok(Report::new(machine, plan, tried))
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

async fn measure(plan: &Plan, case: Case, cores: &Cores, kept: &Path) -> Result<Round, BenchError> {
    let images = images(plan, case.shape, kept)?;
    let crew = Crew::gather(PEER, Malloc::Keep.settings())?;
    let pool = case.side.has_pool().then(|| coordinate(case, crew.dir())).transpose()?;
    if case.side == Side::GatewayStream {
        certificates::write(crew.dir()).map_err(BenchError::Refused)?;
    }
    let order = |name: &str, gateway: Option<&String>, what: What| Order {
        seat: SeatOrder {
            side: case.side,
            name: name.to_owned(),
            dir: crew.dir().to_owned(),
            pool: pool.as_ref().map(|(address, _)| address.clone()),
            gateway: gateway.cloned(),
            ref_threshold: plan.ref_threshold,
            park: plan.park,
            message_len_max: case.shape.message_len_max(),
        },
        what,
    };
    let mut services = Vec::new();
    let mut addresses: Vec<String> = Vec::new();
    let (mut front, mut gateway) = (None, None);
    if case.side.has_gateway() {
        // It has threads of its own, for any core.
        let order = order(GATEWAY, None, What::Gateway);
        let (peer, Serving { address, meeting_place }) = crew.ready(GATEWAY, None, order).await?;
        (front, gateway) = (Some(address), meeting_place);
        services.push(Process { name: GATEWAY.to_owned(), is_mover: true, peer });
    }
    for (idx, service) in case.shape.services().into_iter().enumerate() {
        let to = service.calls.iter().map(|called| addresses[*called].clone()).collect();
        let name = format!("{}-{idx}", service.part.name());
        let order = order(&name, gateway.as_ref(), What::Serve { part: service.part, to });
        let (peer, Serving { address, .. }) =
            crew.ready(service.part.name(), Some(cores.nth(idx)), order).await?;
        addresses.push(address);
        services.push(Process { name, is_mover: service.part.is_mover(), peer });
    }
    let entry = front.or(addresses.pop()).unwrap_or_default();
    let load = order(LOAD, None, What::Load(LoadOrder { shape: case.shape, entry, images }));
    let (mut load, Ready {}) = crew.ready(LOAD, Some(cores.nth(services.len())), load).await?;
    let mut round = take(plan, case.pressure, &mut services, &mut load).await?;
    for (process, told) in services.iter_mut().zip(&mut round.processes) {
        process.peer.say(&Ask::Sizes).await?;
        told.saw(process.peer.hear(Crew::PATIENCE).await?);
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
    make_calls(load, pressure, plan.lasting.warm_up()).await?;
    let before = tally(services, load).await?;
    let measured = make_calls(load, pressure, plan.lasting.measure()).await?;
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
    load.hear(time + Crew::PATIENCE).await
}

/// Of the services, and of the load generator last.
async fn tally(services: &mut [Process], load: &mut Peer) -> Result<Vec<Tally>, PeerError> {
    let mut all = Vec::with_capacity(services.len() + 1);
    for process in services.iter_mut().map(|process| &mut process.peer).chain([load]) {
        process.say(&Ask::Tally).await?;
        all.push(process.hear(Crew::PATIENCE).await?);
    }
    Ok(all)
}
