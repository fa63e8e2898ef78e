//! The two processes of a row: one serves, the other calls whenever a call is due.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ::tollfree::{Channel, ChannelBuilder, Server, WaitPolicy};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::quota::throttled_ns;
use super::{Paced, PacedCase, Part, Role, SIZE, wake};
use crate::BenchError;
use crate::latency::Latencies;
use crate::load::{EchoCall, body_of, check_echo, over};
use crate::order::{self, Serving};
use crate::peer::Starter;
use crate::plan::{Case, PacedSide, Side, Wait};
use crate::process::run_time_ns;
use crate::side::program::{Program, ns};
use crate::side::stub::{self, Stub};
use crate::side::{tollfree, tollfree_blocking, tollfree_direct, tonic_unix};

/// Carries out a process's part.
pub(crate) fn act(part: &Part, starter: &Starter) -> Result<(), BenchError> {
    let failed = |what: String| BenchError::Side { side: part.case.side.name(), what };
    match &part.role {
        Role::Serve { dir } => serve(part.case, dir, |serving: Serving| starter.say(serving)).map_err(failed),
        Role::Call { address, server, warm_up, measure, account } => {
            let window = Window {
                case: part.case,
                server: *server,
                account: account.clone(),
                warm_up: *warm_up,
                measure: *measure,
            };
            starter.say(call(address, window).map_err(failed)?);
            Ok(())
        }
    }
}

/// The case as sides know it: a body, one call at a time.
fn echo_case(case: PacedCase) -> Case {
    Case::probe(Side::Tollfree, SIZE, 1, case.runtime)
}

/// Server and channel that wait as a row says.
fn builders(wait: Wait, address: &str) -> (Server, ChannelBuilder) {
    let (server, channel) = (Server::builder(), Channel::builder(address));
    let policy = match wait {
        Wait::Default => return (server, channel),
        Wait::LowLatency => WaitPolicy::LowLatency,
        Wait::Park => WaitPolicy::Park,
    };
    (server.wait(policy), channel.wait(policy))
}

fn serve(case: PacedCase, dir: &Path, ready: impl FnOnce(Serving)) -> Result<(), String> {
    let echo = echo_case(case);
    let (server, _) = builders(case.wait, "");
    let runtime = || order::runtime(case.runtime).map_err(|error| error.to_string());
    match case.side {
        PacedSide::Wake => wake::serve(echo, dir, ready),
        PacedSide::TonicUnix => {
            let router = tonic::transport::Server::builder().add_service(stub::server(echo));
            order::block_on(&runtime()?, tonic_unix::serve(router, dir, ready))
        }
        PacedSide::Tollfree => {
            let server = server.add_service(stub::server(echo));
            order::block_on(&runtime()?, tollfree::serve(server, dir, ready))
        }
        PacedSide::TollfreeDirect => {
            let server = server.add_service(tollfree_direct::service(echo));
            order::block_on(&runtime()?, tollfree::serve(server, dir, ready))
        }
        PacedSide::TollfreeBlocking => tollfree_blocking::serve_with(server, echo, dir, ready),
        PacedSide::Go | PacedSide::GrpcGo => serve_by(Program::Go, case, dir, ready),
        PacedSide::Python | PacedSide::PythonInline | PacedSide::Grpcio => {
            serve_by(Program::Python, case, dir, ready)
        }
    }
}

fn serve_by(
    program: Program,
    case: PacedCase,
    dir: &Path,
    ready: impl FnOnce(Serving),
) -> Result<(), String> {
    program.serve("serve", case.side.name(), dir, &[("-size", SIZE.to_string())], ready)
}

fn call_by(program: Program, address: &str, window: &Window) -> Result<Paced, String> {
    program.measure(
        "paced-call",
        window.case.side.name(),
        &[
            ("-address", address.to_owned()),
            ("-size", SIZE.to_string()),
            ("-rate", window.case.rate.to_string()),
            ("-warm-up", ns(window.warm_up)),
            ("-measure", ns(window.measure)),
        ],
    )
}

/// When to measure, and whom.
struct Window {
    case: PacedCase,
    server: u32,
    account: Option<PathBuf>,
    warm_up: Duration,
    measure: Duration,
}

fn call(address: &str, window: Window) -> Result<Paced, String> {
    let echo = echo_case(window.case);
    let (_, channel) = builders(window.case.wait, address);
    let connect = async move || {
        let channel = channel.connect().await;
        channel.map_err(|error| format!("cannot connect: {error}"))
    };
    match window.case.side {
        PacedSide::Wake => {
            let mut ends = wake::Caller::connect(Path::new(address), echo)?;
            on_thread(window, || ends.call())
        }
        PacedSide::TollfreeBlocking => {
            let (_, channel) = builders(window.case.wait, address);
            let mut caller = tollfree_blocking::connect(channel, echo)?;
            over(check_echo(caller.clone(), SIZE))?;
            let mut body = body_of(SIZE);
            on_thread(window, || {
                body = over(caller.call(std::mem::take(&mut body)))?;
                Ok(())
            })
        }
        PacedSide::TonicUnix => {
            in_runtime(async { Ok(Stub::new(tonic_unix::connect(address).await?, echo)) }, window)
        }
        PacedSide::Tollfree => in_runtime(async { Ok(Stub::new(connect().await?, echo)) }, window),
        PacedSide::Go | PacedSide::GrpcGo => call_by(Program::Go, address, &window),
        PacedSide::Python | PacedSide::PythonInline | PacedSide::Grpcio => {
            call_by(Program::Python, address, &window)
        }
        PacedSide::TollfreeDirect => {
            let (_, channel) = builders(window.case.wait, address);
            in_runtime(tollfree_direct::caller(channel, echo), window)
        }
    }
}

/// Calls from a task of the runtime's, as an application does.
fn in_runtime<C: EchoCall>(
    connect: impl Future<Output = Result<C, String>>,
    window: Window,
) -> Result<Paced, String> {
    let runtime = order::runtime(window.case.runtime).map_err(|error| error.to_string())?;
    order::block_on(&runtime, async {
        let caller = connect.await?;
        check_echo(caller.clone(), SIZE).await?;
        let calling = tokio::spawn(in_task(caller, window));
        calling.await.map_err(|error| format!("the calling task came to grief: {error}"))?
    })
}

async fn in_task<C: EchoCall>(mut caller: C, window: Window) -> Result<Paced, String> {
    let trouble = |error: std::io::Error| format!("cannot wait for a timer: {error}");
    // As the transport does: a pipe's end is what a runtime watches for reading alone.
    let mut clock = pipe::Receiver::from_owned_fd_unchecked(timer(window.case.rate)?).map_err(trouble)?;
    let mut body: C::Body = body_of(SIZE).into();
    let mut count = Count::begin(window);
    loop {
        let mut due = [0; 8];
        clock.read_exact(&mut due).await.map_err(trouble)?;
        let due = u64::from_ne_bytes(due);
        let began = Instant::now();
        body = caller.call(body).await?;
        if let Some(measured) = count.called(due, began, Instant::now())? {
            return Ok(measured);
        }
    }
}

/// Calls from a thread that sleeps until a call is due.
fn on_thread(window: Window, mut call: impl FnMut() -> Result<(), String>) -> Result<Paced, String> {
    let clock = timer(window.case.rate)?;
    rustix::io::ioctl_fionbio(&clock, false).map_err(|error| format!("cannot wait for a timer: {error}"))?;
    let mut count = Count::begin(window);
    loop {
        let due = read(&clock).map_err(|error| format!("cannot wait for a timer: {error}"))?;
        let began = Instant::now();
        call()?;
        if let Some(measured) = count.called(due, began, Instant::now())? {
            return Ok(measured);
        }
    }
}

/// A clock that says how many calls have become due. A runtime's own timers count in milliseconds.
fn timer(rate: u32) -> Result<OwnedFd, String> {
    let trouble = |error| format!("cannot make a timer: {error}");
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let clock = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags).map_err(trouble)?;
    let ns = 1_000_000_000 / u64::from(rate);
    let pause = Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ };
    let periodic = Itimerspec { it_interval: pause, it_value: pause };
    rustix::time::timerfd_settime(&clock, TimerfdTimerFlags::empty(), &periodic).map_err(trouble)?;
    Ok(clock)
}

fn read(clock: &OwnedFd) -> std::io::Result<u64> {
    let mut count = [0; 8];
    rustix::io::read(clock, &mut count)?;
    Ok(u64::from_ne_bytes(count))
}

/// What both ends have used so far.
struct Used {
    client_ns: u64,
    server_ns: u64,
    throttled_ns: Option<u64>,
}

/// Counts calls and what they cost.
struct Count {
    window: Window,
    from: Instant,
    before: Option<Used>,
    latencies: Latencies,
    missed: u64,
}

impl Count {
    fn begin(window: Window) -> Count {
        let from = Instant::now() + window.warm_up;
        Count { window, from, before: None, latencies: Latencies::default(), missed: 0 }
    }

    fn used(&self) -> Result<Used, String> {
        let own = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let throttled = self.window.account.as_deref().map(throttled_ns).transpose()?;
        Ok(Used {
            client_ns: own.tv_sec as u64 * 1_000_000_000 + own.tv_nsec as u64,
            server_ns: run_time_ns(self.window.server).map_err(|error| error.to_string())?,
            throttled_ns: throttled,
        })
    }

    /// A call is over, of `due` that were due. What was measured, when that was the last one.
    fn called(&mut self, due: u64, began: Instant, ended: Instant) -> Result<Option<Paced>, String> {
        let Some(before) = &self.before else {
            if ended >= self.from {
                self.before = Some(self.used()?);
                self.from = Instant::now();
            }
            return Ok(None);
        };
        self.latencies.record(ended - began);
        // The first may have become due while the counts were read.
        self.missed += if self.latencies.count() > 1 { due - 1 } else { 0 };
        if ended < self.from + self.window.measure {
            return Ok(None);
        }
        let after = self.used()?;
        let throttled_ns =
            after.throttled_ns.zip(before.throttled_ns).map(|(after, before)| after.saturating_sub(before));
        Ok(Some(Paced {
            client_cpu_ns: after.client_ns - before.client_ns,
            server_cpu_ns: after.server_ns.saturating_sub(before.server_ns),
            throttled_ns,
            missed: self.missed,
            latencies: std::mem::take(&mut self.latencies),
        }))
    }
}
