//! Keeps a number of calls in flight and measures each.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::latency::Latencies;
use crate::message::delimited;
use crate::order::{Load, Measured, Used};
use crate::plan::Message;
use crate::process::run_time_ns;

/// Samples that a caller keeps to itself before it takes the common histogram's lock.
const BATCH: usize = 256;

/// One caller's way to make echo calls; cheap to clone, a clone for each call in flight.
pub(crate) trait EchoCall: Clone + Send + 'static {
    /// A body as this side's users hold it.
    type Body: From<Vec<u8>> + AsRef<[u8]> + Send + 'static;

    /// Sends a body and returns the reply's. The error is in words.
    fn call(&mut self, body: Self::Body) -> impl Future<Output = Result<Self::Body, String>> + Send;

    /// Sends these messages by turns from now on, in place of bodies, and reads every field of the replies; bodies that are given to
    /// `call` come back as they are.
    fn take(&mut self, message: Message, samples: &[Vec<u8>]) -> Result<(), String> {
        let _ = samples;
        Err(format!("this side has no calls that carry {message}"))
    }

    /// Waits until the next call is due.
    fn rest(&self, until: Instant) -> impl Future<Output = ()> + Send {
        tokio::time::sleep_until(until.into())
    }
}

/// When samples count.
#[derive(Clone, Copy)]
struct Window {
    from: Instant,
    until: Instant,
    /// Samples of each caller, where it is they that are given and not the time.
    calls: Option<u64>,
    /// Time from one call to the next.
    every: Option<Duration>,
}

impl Window {
    fn new(load: &Load) -> Window {
        let from = Instant::now() + load.warm_up;
        let calls = load.calls.map(|calls| calls.div_ceil(load.case.inflight as u64));
        Window { from, until: from + load.measure, calls, every: load.every }
    }

    /// Whether a caller that has so many samples goes on.
    fn is_open(&self, now: Instant, counted: u64) -> bool {
        self.calls.map_or(now < self.until, |calls| counted < calls)
    }
}

/// A caller's last call, which ended after the window.
#[derive(Debug)]
struct LateCall {
    latency: Duration,
    ended: Instant,
    /// All calls of the caller.
    calls: u64,
}

/// Measures with `load.case.inflight` tasks, each calling in a loop, on the runtime that this runs on.
pub(crate) async fn run<C: EchoCall>(mut caller: C, load: &Load) -> Result<Measured, String> {
    prepare(&mut caller, load)?;
    check_echo(caller.clone(), load.case.size).await?;
    let before = Account::of(load);
    let window = Window::new(load);
    let common = Arc::new(Mutex::new(Latencies::default()));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..load.case.inflight {
        let body = body_of(load.case.size).into();
        tasks.spawn(call_on(caller.clone(), body, window, Arc::clone(&common)));
    }
    let mut late = Vec::with_capacity(load.case.inflight);
    while let Some(ended) = tasks.join_next().await {
        late.push(ended.map_err(|error| format!("a calling task came to grief: {error}"))??);
    }
    Ok(measured(&common, window, &late, before))
}

/// Measures callers that block, each on a thread of its own: their calls are over when they are first polled.
pub(crate) fn run_on_threads<C: EchoCall>(
    connect: impl Fn() -> Result<C, String>,
    load: &Load,
) -> Result<Measured, String> {
    let mut callers = (0..load.case.inflight).map(|_| connect()).collect::<Result<Vec<C>, String>>()?;
    callers.iter_mut().try_for_each(|caller| prepare(caller, load))?;
    over(check_echo(callers[0].clone(), load.case.size))?;
    let before = Account::of(load);
    let window = Window::new(load);
    let common = Arc::new(Mutex::new(Latencies::default()));
    let threads: Vec<_> = callers
        .into_iter()
        .map(|caller| {
            let (body, common) = (body_of(load.case.size).into(), common.clone());
            std::thread::spawn(move || over(call_on(caller, body, window, common)))
        })
        .collect();
    let mut late = Vec::with_capacity(load.case.inflight);
    for thread in threads {
        late.push(thread.join().map_err(|_| "a calling thread panicked".to_owned())??);
    }
    Ok(measured(&common, window, &late, before))
}

/// Gives a caller the messages that it is to send, if there are any.
fn prepare<C: EchoCall>(caller: &mut C, load: &Load) -> Result<(), String> {
    let Some(file) = &load.samples else { return Ok(()) };
    let bytes = std::fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let samples = delimited(&bytes).map_err(|error| format!("no messages in {}: {error}", file.display()))?;
    let samples: Vec<Vec<u8>> = samples.into_iter().map(<[u8]>::to_vec).collect();
    caller.take(load.case.message, &samples)
}

/// Processor time that the processes of a measurement have used so far.
pub(crate) struct Account {
    servers: Vec<u32>,
    client_ns: u64,
    server_ns: Option<u64>,
}

impl Account {
    fn of(load: &Load) -> Account {
        Account::now(load.server.as_slice())
    }

    /// Of this process, which is the client, and of those that serve it.
    pub(crate) fn now(servers: &[u32]) -> Account {
        let own = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let client_ns = own.tv_sec as u64 * 1_000_000_000 + own.tv_nsec as u64;
        let each: Option<Vec<u64>> = servers.iter().map(|pid| run_time_ns(*pid).ok()).collect();
        let server_ns = each.filter(|each| !each.is_empty()).map(|each| each.iter().sum());
        Account { servers: servers.to_vec(), client_ns, server_ns }
    }

    /// What they have used since, in nanoseconds; nothing is known of servers of which the kernel keeps no account.
    pub(crate) fn since(&self) -> (u64, Option<u64>) {
        let now = Account::now(&self.servers);
        let server_ns = now.server_ns.zip(self.server_ns);
        (now.client_ns - self.client_ns, server_ns.map(|(after, before)| after.saturating_sub(before)))
    }

    /// What each of so many calls has used since.
    fn each_of(&self, calls: u64) -> Used {
        let ((client_ns, server_ns), calls) = (self.since(), calls.max(1));
        Used { client_ns: client_ns / calls, server_ns: server_ns.map(|ns| ns / calls) }
    }
}

/// The outcome of calls that never wait for a runtime.
pub(crate) fn over<T>(calls: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let mut calls = std::pin::pin!(calls);
    match calls.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => Err("a call that should block its thread did not".to_owned()),
    }
}

/// A window in which no call ended is stretched to the end of every caller's first call after it: a slow side gets a
/// slow row instead of none.
fn measured(common: &Mutex<Latencies>, window: Window, late: &[LateCall], before: Account) -> Measured {
    let used = Some(before.each_of(late.iter().map(|call| call.calls).sum()));
    let mut latencies = std::mem::take(&mut *common.lock().unwrap_or_else(PoisonError::into_inner));
    let mut until = window.until;
    if window.calls.is_some() {
        until = late.iter().map(|call| call.ended).max().unwrap_or(until);
    } else if latencies.count() == 0 {
        for call in late {
            latencies.record(call.latency);
            until = until.max(call.ended);
        }
    }
    let elapsed_ns = (until - window.from).as_nanos().try_into().unwrap_or(u64::MAX);
    Measured { latencies, elapsed_ns, used }
}

/// The bytes that travel: not all alike, so that a misplaced piece shows.
pub(crate) fn body_of(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

/// Calls once and compares every byte; the measured calls check lengths only.
pub(crate) async fn check_echo<C: EchoCall>(mut caller: C, size: usize) -> Result<(), String> {
    let reply = caller.call(body_of(size).into()).await?;
    if reply.as_ref() == body_of(size) { Ok(()) } else { Err("the reply is not what was sent".to_owned()) }
}

async fn call_on<C: EchoCall>(
    mut caller: C,
    mut body: C::Body,
    window: Window,
    common: Arc<Mutex<Latencies>>,
) -> Result<LateCall, String> {
    let size = body.as_ref().len();
    let mut batch: Vec<Duration> = Vec::with_capacity(BATCH);
    let mut began = Instant::now();
    let (mut counted, mut calls) = (0, 0);
    loop {
        body = caller.call(body).await?;
        calls += 1;
        let ended = Instant::now();
        let reply_len = body.as_ref().len();
        if reply_len != size {
            return Err(format!("sent {size} bytes, {reply_len} came back"));
        }
        if !window.is_open(ended, counted) {
            count(&mut batch, &common);
            return Ok(LateCall { latency: ended - began, ended, calls });
        }
        if ended >= window.from {
            batch.push(ended - began);
            counted += 1;
        }
        let is_full = batch.len() == BATCH;
        if is_full {
            count(&mut batch, &common);
        }
        if let Some(every) = window.every {
            caller.rest(began + every).await;
        }
        began = if is_full || window.every.is_some() { Instant::now() } else { ended };
    }
}

fn count(batch: &mut Vec<Duration>, common: &Mutex<Latencies>) {
    let mut common = common.lock().unwrap_or_else(PoisonError::into_inner);
    for latency in batch.drain(..) {
        common.record(latency);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Case, RuntimeKind, Side};

    #[derive(Clone)]
    enum Fake {
        Honest,
        Shortens,
        Garbles,
        Sleeps(Duration),
    }

    impl EchoCall for Fake {
        type Body = Vec<u8>;

        async fn call(&mut self, mut body: Vec<u8>) -> Result<Vec<u8>, String> {
            tokio::task::yield_now().await;
            match self {
                Self::Honest => {}
                Self::Shortens => drop(body.pop()),
                Self::Garbles => body[3] ^= 1,
                Self::Sleeps(time) => tokio::time::sleep(*time).await,
            }
            Ok(body)
        }
    }

    fn load(inflight: usize) -> Load {
        let case = Case::probe(Side::TonicUnix, 300, inflight, RuntimeKind::Current);
        let (warm_up, measure) = (Duration::from_millis(20), Duration::from_millis(100));
        Load { server: Some(std::process::id()), ..Load::new(case, String::new(), warm_up, measure) }
    }

    #[tokio::test]
    async fn counts_what_ended_inside_the_window() {
        let nap = Duration::from_millis(10);
        let measured = run(Fake::Sleeps(nap), &load(4)).await.unwrap();
        // Ten naps fit at most, for each of four callers; a loaded machine may fit fewer.
        assert!((1..=40).contains(&measured.latencies.count()), "{}", measured.latencies.count());
        assert!(measured.latencies.quantile_ns(0.0) >= 9_900_000);
        assert_eq!(measured.elapsed_ns, 100_000_000);
    }

    #[tokio::test]
    async fn full_batches_reach_the_histogram() {
        // As many as it takes, however slow the machine is.
        let enough = Load { calls: Some(2 * BATCH as u64 + 2), ..load(2) };
        let measured = run(Fake::Honest, &enough).await.unwrap();
        assert!(measured.latencies.count() as usize > 2 * BATCH, "{}", measured.latencies.count());
        let used = measured.used.unwrap();
        assert!(used.client_ns > 0 && used.server_ns.is_none_or(|ns| ns > 0), "{used:?}");
    }

    #[tokio::test]
    async fn wrong_replies_end_the_measurement() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"\x02ab\x00").unwrap();
        let messages = Load { samples: Some(file.path().to_owned()), ..load(1) };
        let error = run(Fake::Honest, &messages).await.unwrap_err();
        assert!(error.contains("no calls that carry"), "{error}");
        let error = run(Fake::Garbles, &load(1)).await.unwrap_err();
        assert!(error.contains("not what was sent"), "{error}");
        let window = Window::new(&load(1));
        let error = call_on(Fake::Shortens, body_of(5), window, Arc::default()).await.unwrap_err();
        assert_eq!(error, "sent 5 bytes, 4 came back");
    }

    #[tokio::test]
    async fn as_many_calls_are_counted_as_were_asked_for() {
        let counted = Load { calls: Some(30), ..load(3) };
        let measured = run(Fake::Sleeps(Duration::from_millis(2)), &counted).await.unwrap();
        assert_eq!(measured.latencies.count(), 30);
        // Ten calls of each caller, one after the other.
        assert!(measured.elapsed_ns >= 18_000_000, "{}", measured.elapsed_ns);
    }

    #[tokio::test]
    async fn calls_that_come_at_a_rate_are_no_more_than_that() {
        let paced = Load { every: Some(Duration::from_millis(20)), ..load(2) };
        let measured = run(Fake::Honest, &paced).await.unwrap();
        assert!((1..=2 * 6).contains(&measured.latencies.count()), "{}", measured.latencies.count());
    }

    #[tokio::test]
    async fn a_window_that_is_too_short_is_stretched_to_the_first_calls() {
        let nap = Duration::from_millis(300);
        let measured = run(Fake::Sleeps(nap), &load(3)).await.unwrap();
        assert_eq!(measured.latencies.count(), 3);
        // From the end of the warm-up to the end of the calls, which began with it.
        assert!(measured.elapsed_ns >= 279_000_000, "{}", measured.elapsed_ns);
    }
}
