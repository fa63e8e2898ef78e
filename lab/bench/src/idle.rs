//! What many idle sessions cost: processor time and memory, both ends together.
//!
//! A server process and a client process; the client opens the sessions one after the other, each carries one call,
//! and then nothing happens. Memory is compared with both processes as they were before the first session. What the
//! kernel keeps for sockets outside the processes is in no process's figures and so not in these.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cores::Cores;
use crate::order::{Order, Serve, Serving};
use crate::peer::{Peer, Starter};
use crate::plan::{Case, Message, Placement, RuntimeKind, SIZE_MAX, Side};
use crate::process::{self, Memory};
use crate::workdir::Workdir;
use crate::{BenchError, Machine, side};

/// Time that a process may take to answer when it has little to do.
const PROMPTLY: Duration = Duration::from_secs(15);

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

/// Measures; `progress` gets a line for each step.
///
/// # Errors
/// Each kind of [`BenchError`] but `Write`.
pub async fn run(plan: &IdlePlan, mut progress: impl FnMut(&str)) -> Result<IdleReport, BenchError> {
    if !(1..=100_000).contains(&plan.sessions) || plan.size > SIZE_MAX {
        return Err(BenchError::Refused(format!(
            "{} sessions with a call of {} bytes each: must be 1 to 100000 sessions and at most {SIZE_MAX} bytes",
            plan.sessions, plan.size
        )));
    }
    if plan.side == Side::Floor {
        return Err(BenchError::Refused("the floor has no sessions that could be idle".to_owned()));
    }
    let machine = Machine::look(&Cores::choose()?, &[]);
    let dir = Workdir::create()?;
    let case = Case {
        side: plan.side,
        message: Message::Probe,
        size: plan.size,
        metadata: 0,
        inflight: 1,
        placement: Placement::Unpinned,
        runtime: RuntimeKind::Current,
    };
    let serve = Serve { case, core: None, dir: dir.path().to_owned() };
    let mut server = Peer::start("server", &["bench-peer"], &[], &Order::Serve(serve)).await?;
    let Serving { address } = server.hear(PROMPTLY).await?;
    let hold = Hold { case, address, sessions: plan.sessions };
    let mut client = Peer::start("client", &["bench-peer"], &[], &Order::Idle(hold)).await?;
    let Ready {} = client.hear(PROMPTLY).await?;
    let (server_pid, client_pid) = (pid_of(&server)?, pid_of(&client)?);

    let (server_before, client_before) = (process::memory(server_pid)?, process::memory(client_pid)?);
    progress(&format!("opening {} sessions of {}", plan.sessions, plan.side));
    client.say(&Go {}).await?;
    let patience = PROMPTLY + Duration::from_millis(100) * plan.sessions as u32;
    let Opened { sessions } = client.hear(patience).await?;

    progress(&format!("all have carried their call; letting them rest for {} s", plan.settle.as_secs_f64()));
    tokio::time::sleep(plan.settle).await;
    progress(&format!("measuring for {} s", plan.measure.as_secs_f64()));
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

fn pid_of(peer: &Peer) -> Result<u32, BenchError> {
    peer.pid().ok_or_else(|| BenchError::Refused("a measured process has ended already".to_owned()))
}

impl IdleReport {
    /// The figures as one JSON object.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report is plain data")
    }

    /// The figures as lines for people.
    pub fn table(&self) -> String {
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
            crate::plan::bytes_in_words(self.size),
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
}
