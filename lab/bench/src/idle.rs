//! What many idle sessions cost: processor time and memory, both ends together.
//!
//! A server process and a client process; the client opens the sessions one after the other, each carries one call,
//! and then nothing happens. Memory is compared with both processes as they were before the first session. What the
//! kernel keeps for sockets outside the processes is in no process's figures and so not in these.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::harness::words::bytes_in_words;
use crate::harness::{self, Crew, Machine, Report, Told, pid_of, refuse, within};
use crate::order::{self, Order, Serve, Serving};
use crate::peer::Starter;
use crate::plan::{Case, Malloc, RuntimeKind, SIZE_MAX, Side};
use crate::process::{self, Memory};
use crate::{BenchError, side};

/// What to measure.
#[derive(Debug, Clone)]
pub struct IdlePlan {
    /// What the sessions are of.
    pub side: Side,
    /// How many, at least 1.
    pub sessions: usize,
    /// Body of the one call that each carries, in bytes.
    pub size: usize,
    /// Time between the last call and the measurement.
    pub settle: Duration,
    /// Measured time.
    pub measure: Duration,
}

/// What was measured. All figures are of both processes together unless they say otherwise.
#[derive(Debug, Clone, Serialize)]
pub struct IdleReport {
    /// Where.
    pub machine: Machine,
    /// What the sessions are of.
    pub side: Side,
    /// How many.
    pub sessions: usize,
    /// Body of the one call that each carried, in bytes.
    pub size: usize,
    /// Measured time in seconds.
    pub seconds: f64,
    /// Processor time used while idle, as a share of one core: 0.01 is one per cent.
    pub core_share: f64,
    /// Resident memory for each session, shared pages counted once.
    pub pss_bytes_per_session: f64,
    /// Resident memory for each session, shared pages counted in both processes.
    pub rss_bytes_per_session: f64,
    /// The server before the first session.
    pub server_before: Memory,
    /// The server with all sessions idle.
    pub server_after: Memory,
    /// The client before the first session.
    pub client_before: Memory,
    /// The client with all sessions idle.
    pub client_after: Memory,
}

/// The client process's order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Hold {
    pub(crate) case: Case,
    pub(crate) address: String,
    pub(crate) sessions: usize,
}

/// The client process is up and has no session yet.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Ready {}

/// The client process may begin.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Go {}

/// All sessions have carried their call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Opened {
    pub(crate) sessions: usize,
}

/// Carries out the client process's order.
pub(crate) fn hold(order: &Hold, starter: &Starter) -> Result<(), BenchError> {
    side::hold(order, starter)
}

/// Waits, with everything but the sessions in place, until the baseline is taken.
pub(crate) fn wait_for_go(starter: &Starter) -> Result<(), BenchError> {
    starter.say(Ready {});
    let Go {} = starter.hear().map_err(BenchError::Refused)?;
    Ok(())
}

/// Measures; `progress` hears of each step.
///
/// # Errors
/// Each kind of [`BenchError`] but `Write`.
pub async fn run(plan: &IdlePlan, mut progress: impl FnMut(&Told)) -> Result<IdleReport, BenchError> {
    within(&[plan.sessions], 1..=100_000, "sessions")?;
    within(&[plan.size], 0..=SIZE_MAX, "bytes in a session's call")?;
    if plan.side == Side::Floor {
        return refuse("the floor has no sessions that could be idle");
    }
    let machine = Machine::look(&harness::seats([])?, &[]);
    // Malloc as it is: what it keeps would count as the sessions'.
    let crew = order::crew(Malloc::System)?;
    let case = Case::probe(plan.side, plan.size, 1, RuntimeKind::Current);
    let serve = Order::Serve(Serve { case, dir: crew.dir().to_owned() });
    let (server, Serving { address }) = crew.ready("server", None, serve).await?;
    let hold = Order::Idle(Hold { case, address, sessions: plan.sessions });
    let (mut client, Ready {}) = crew.ready("client", None, hold).await?;
    let (server_pid, client_pid) = (pid_of(&server)?, pid_of(&client)?);

    let (server_before, client_before) = (process::memory(server_pid)?, process::memory(client_pid)?);
    let mut tell = |line| progress(&Told { line, is_failure: false });
    tell(format!("opening {} sessions of {}", plan.sessions, plan.side));
    client.say(&Go {}).await?;
    let patience = Crew::PATIENCE + Duration::from_millis(100) * plan.sessions as u32;
    let Opened { sessions } = client.hear(patience).await?;

    tell(format!("all have carried their call; letting them rest for {} s", plan.settle.as_secs_f64()));
    tokio::time::sleep(plan.settle).await;
    tell(format!("measuring for {} s", plan.measure.as_secs_f64()));
    let cpu =
        || Ok::<_, BenchError>((process::cpu_time(server_pid)? + process::cpu_time(client_pid)?).total());
    let (cpu_before, began) = (cpu()?, std::time::Instant::now());
    tokio::time::sleep(plan.measure).await;
    let (cpu_used, elapsed) = (cpu()?.saturating_sub(cpu_before), began.elapsed());
    let (server_after, client_after) = (process::memory(server_pid)?, process::memory(client_pid)?);
    client.stop().await;
    server.stop().await;

    let per_session = |of: fn(&Memory) -> u64| {
        let (after, before) =
            (of(&server_after) + of(&client_after), of(&server_before) + of(&client_before));
        (after as f64 - before as f64) / sessions as f64
    };
    Ok(IdleReport {
        machine,
        side: plan.side,
        sessions,
        size: plan.size,
        seconds: elapsed.as_secs_f64(),
        core_share: cpu_used.as_secs_f64() / elapsed.as_secs_f64(),
        pss_bytes_per_session: per_session(|memory| memory.pss_bytes),
        rss_bytes_per_session: per_session(|memory| memory.rss_bytes),
        server_before,
        server_after,
        client_before,
        client_after,
    })
}

impl Report for IdleReport {
    fn table(&self) -> String {
        let kib = |bytes: f64| format!("{:.1} KiB", bytes / 1024.0);
        let mib = |memory: Memory| format!("{:.1} MiB", memory.pss_bytes as f64 / f64::from(1 << 20));
        format!(
            "{} idle sessions of {}, each after one call of {}\n\
             \x20 processor time             {:.2} % of a core, both processes, over {:.1} s\n\
             \x20 resident, each session     {} (shared pages once), {} (shared pages in both processes)\n\
             \x20 server process, shared once  {} before, {} with all\n\
             \x20 client process, shared once  {} before, {} with all\n",
            self.sessions,
            self.side,
            bytes_in_words(self.size),
            self.core_share * 100.0,
            self.seconds,
            kib(self.pss_bytes_per_session),
            kib(self.rss_bytes_per_session),
            mib(self.server_before),
            mib(self.server_after),
            mib(self.client_before),
            mib(self.client_after),
        )
    }
    fn began(&self) -> &str {
        &self.machine.started_at
    }
}
