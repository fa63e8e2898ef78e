//! The two processes of a row: one calls, the other has attached and echoes.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tollfree::Server;
use tollfree::gateway::{Accepted, Attached, BackendListener, Batch, DoorbellMode, Limits, Registers, Spin};

use super::{DeviceCase, Driven, Part, Role, SIZE};
use crate::BenchError;
use crate::latency::Latencies;
use crate::load::{self, EchoCall, body_of, check_echo};
use crate::order::{self, Load, Serving};
use crate::peer::Starter;
use crate::plan::Case;
use crate::side::tollfree_direct::{self, Caller};

/// From one change of a register to the next.
const CHANGE_EVERY: Duration = Duration::from_millis(2);
/// Calls that are later than this are not made up for.
const LATE: Duration = Duration::from_millis(200);

/// Carries out a process's part.
pub(crate) fn act(part: &Part, starter: &Starter) -> Result<(), BenchError> {
    let name = "device";
    let failed = |what: String| BenchError::Side { side: name, what };
    let runtime = order::runtime(part.case.echo().runtime)?;
    match &part.role {
        Role::Work { address } => order::block_on(&runtime, work(part.case, address)).map_err(failed),
        Role::Drive { dir, warm_up, measure } => {
            let address = format!("shm://{}", dir.join("device.sock").display());
            let driven = async {
                let mut listener = BackendListener::bind(address.clone(), Limits::default()).await;
                let listener = listener.as_mut().map_err(|error| error.to_string())?;
                starter.say(Serving { address });
                drive(part.case, listener, *warm_up, *measure).await
            };
            starter.say(runtime.block_on(driven).map_err(failed)?);
            Ok(())
        }
    }
}

/// Serves until the process ends.
async fn work(case: DeviceCase, address: &str) -> Result<(), String> {
    let server = Server::builder().add_service(tollfree_direct::service(case.echo()));
    let attaching = server.attach(address).backend_connections(case.threads as u32);
    attaching.await.map_err(|error| format!("cannot attach: {error}"))
}

async fn drive(
    case: DeviceCase,
    listener: &mut BackendListener,
    warm_up: Duration,
    measure: Duration,
) -> Result<Driven, String> {
    let mut registers = Registers::default();
    registers.batch = case.batch.0;
    registers.doorbell = case.mode.map_or_else(Default::default, |mode| mode.0);
    let mut workers = Vec::new();
    while workers.len() < case.threads {
        match listener.accept().await {
            Some(Accepted::Attached(attached)) => workers.push(attached),
            Some(_) => {}
            None => return Err("the listener was closed".to_owned()),
        }
    }
    let mut callers = Vec::new();
    for attached in &workers {
        callers.push(tollfree_direct::caller_of(attached.channel(), case.echo())?);
        check_echo(callers[callers.len() - 1].clone(), SIZE).await?;
        // As a gateway changes them: in the session as it runs.
        attached.set_registers(&registers);
    }
    let before = announced(&workers);
    let measured = async {
        match case.rate {
            None => closed_loop(case, callers, warm_up, measure).await,
            Some(rate) => at_rate(case, callers, f64::from(rate), warm_up, measure).await,
        }
    };
    let (latencies, elapsed_ns) = match case.changing {
        false => measured.await?,
        true => tokio::select! {
            measured = measured => measured?,
            never = keep_changing(&workers) => match never {},
        },
    };
    let after = announced(&workers);
    Ok(Driven {
        latencies,
        elapsed_ns,
        publications: after.0 - before.0,
        sends: after.1 - before.1,
        rings: after.2 - before.2,
    })
}

/// Changes each register of all sessions, one after the other.
async fn keep_changing(workers: &[Attached]) -> Infallible {
    let modes = [
        DoorbellMode::Inline,
        DoorbellMode::Doorbell,
        DoorbellMode::DoorbellBatch(11),
        DoorbellMode::Coherent(4),
    ];
    let batches = [Batch::Fixed(1), Batch::Fixed(4), Batch::Fixed(64), Batch::Auto];
    let (mut every, mut registers) = (tokio::time::interval(CHANGE_EVERY), Registers::default());
    let mut nth = 0;
    loop {
        match nth % 4 {
            0 => registers.doorbell = modes[nth / 4 % modes.len()],
            1 => registers.batch = batches[nth / 16 % batches.len()],
            2 => registers.spin = [Spin::Auto, Spin::Micros(0), Spin::Micros(50)][nth / 4 % 3],
            _ => registers.poll_load = [0, 1000, 1_000_000][nth / 4 % 3],
        }
        every.tick().await;
        for attached in workers {
            attached.set_registers(&registers);
        }
        nth += 1;
    }
}

/// Publications, what was published, and rings.
fn announced(workers: &[Attached]) -> (u64, u64, u64) {
    workers
        .iter()
        .map(Attached::announced)
        .fold((0, 0, 0), |sum, each| (sum.0 + each.publications, sum.1 + each.sends, sum.2 + each.rings))
}

/// A number of calls in flight, spread evenly over the workers.
async fn closed_loop(
    case: DeviceCase,
    callers: Vec<Caller>,
    warm_up: Duration,
    measure: Duration,
) -> Result<(Latencies, u64), String> {
    let mut loops = JoinSet::new();
    let count = callers.len();
    for (nth, caller) in callers.into_iter().enumerate() {
        let inflight = (case.inflight + count - 1 - nth) / count;
        if inflight == 0 {
            continue;
        }
        let load = Load::new(Case { inflight, ..case.echo() }, String::new(), warm_up, measure);
        loops.spawn(async move { load::run(caller, &load).await });
    }
    let (mut latencies, mut elapsed_ns) = (Latencies::default(), 0);
    while let Some(ended) = loops.join_next().await {
        let measured = ended.map_err(|error| format!("a loop came to grief: {error}"))??;
        latencies.merge(&measured.latencies);
        elapsed_ns = elapsed_ns.max(measured.elapsed_ns);
    }
    Ok((latencies, elapsed_ns))
}

/// Calls that are due at a rate, each in a task of its own, and timed from when they were due.
async fn at_rate(
    case: DeviceCase,
    callers: Vec<Caller>,
    rate: f64,
    warm_up: Duration,
    measure: Duration,
) -> Result<(Latencies, u64), String> {
    let mut calls: JoinSet<Result<(Instant, Duration), String>> = JoinSet::new();
    let begin = Instant::now();
    let (from, until) = (begin + warm_up, begin + warm_up + measure);
    let mut latencies = Latencies::default();
    let mut count: u64 = 0;
    let due_at = |nth: u64| begin + Duration::from_secs_f64(nth as f64 / rate);
    loop {
        let now = Instant::now();
        while let Some(ended) = calls.try_join_next() {
            let (ended, latency) = ended.map_err(|error| format!("a call came to grief: {error}"))??;
            if ended >= from && ended < until {
                latencies.record(latency);
            }
        }
        if now >= until {
            break;
        }
        while due_at(count) <= now && calls.len() < case.inflight {
            let (due, mut caller) = (due_at(count), callers[count as usize % callers.len()].clone());
            calls.spawn(async move {
                caller.call(body_of(SIZE)).await?;
                let ended = Instant::now();
                Ok((ended, ended - due))
            });
            count += 1;
        }
        if now.saturating_duration_since(due_at(count)) > LATE {
            // More than can be had: those that are due by now are left out, and the rate that was had shows it.
            count = ((now - begin).as_secs_f64() * rate) as u64;
        }
        Turn(false).await;
    }
    Ok((latencies, measure.as_nanos().try_into().unwrap_or(u64::MAX)))
}

/// Lets the runtime's other tasks have their turn, without a look at what it sleeps on each time.
struct Turn(bool);

impl Future for Turn {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
