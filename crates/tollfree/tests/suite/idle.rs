//! What sessions cost that have carried a call and then nothing: no wake-up, and little memory, however many they are.
//!
//! `IDLE_SESSIONS=3000` counts so many too.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tollfree::{Channel, Server};
use tollfree_stubs::greeter::greeter_client::GreeterClient;
use tollfree_stubs::greeter::greeter_server::{Greeter, GreeterServer};
use tollfree_stubs::greeter::{HelloReply, HelloRequest};
use tollfree_testkit::{Process, Role};
use tonic::{Request, Response, Status};

/// A machine under load may take this long until all is calm.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the processes are looked at.
const WINDOW: Duration = Duration::from_secs(1);
/// What threads may be woken for meanwhile that is not the sessions': the test harness looks at its clock now and then.
const WAKE_UPS_MAX: u64 = 3;
/// Of both processes, for each session more, shared pages counted once.
const EACH_KIB_MAX: u64 = 96;

#[derive(Debug)]
struct Echo;

#[tonic::async_trait]
impl Greeter for Echo {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        Ok(Response::new(HelloReply { text: request.into_inner().name }))
    }
}

/// Not a test: a process that another test has started.
#[tokio::test]
#[ignore = "run by other tests, as a process to be looked at"]
async fn as_child() {
    let Some(role) = Role::of_this_process() else { return };
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let uri = format!("shm://{}", role.socket.display());
    match role.name.as_str() {
        "server" => {
            let server = Server::builder().sessions_per_process(10_000).sessions_per_user(10_000);
            let server = server.add_service(GreeterServer::new(Echo).max_decoding_message_size(usize::MAX));
            let serving = tokio::spawn(async move { server.serve(&uri).await });
            while !role.socket.exists() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            role.ready();
            serving.await.unwrap().unwrap();
        }
        "client" => {
            let (count, len) = role.detail.split_once(' ').unwrap();
            let (count, len): (usize, usize) = (count.parse().unwrap(), len.parse().unwrap());
            let mut channels = Vec::new();
            for _ in 0..count {
                let channel = Channel::connect(&*uri).await.unwrap();
                let mut client = GreeterClient::new(channel.clone()).max_decoding_message_size(usize::MAX);
                let reply = client.hello(HelloRequest { name: "x".repeat(len) }).await.unwrap();
                assert_eq!(reply.into_inner().text.len(), len);
                channels.push(channel);
            }
            role.ready();
            std::future::pending::<()>().await;
        }
        other => panic!("no role {other}"),
    }
}

/// A server and a client whose sessions have had their calls.
struct Pair([Process; 2]);

impl Pair {
    fn start(socket: &Path, count: usize, len: usize) -> Pair {
        let server = Process::start_ready("idle::server", socket, "");
        let client = Process::start_ready("idle::client", socket, &format!("{count} {len}"));
        Pair([server, client])
    }

    fn pids(&self) -> [i32; 2] {
        self.0.each_ref().map(|process| process.pid().as_raw_nonzero().get())
    }

    /// How often their threads have begun to run after they had waited, and how long they ran in all.
    fn ran(&self) -> (u64, Duration) {
        let mut ran = (0, Duration::ZERO);
        for pid in self.pids() {
            for thread in fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
                let Ok(status) = fs::read_to_string(thread.path().join("status")) else { continue };
                ran.0 += number(&status, "voluntary_ctxt_switches:");
                let times = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
                let ns = times.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
                ran.1 += Duration::from_nanos(ns);
            }
        }
        assert!(ran.0 > 0 && ran.1 > Duration::ZERO, "the system doesn't say how often processes run");
        ran
    }

    /// Waits until they do nothing, for the length of a window.
    fn rest(&self, what: &str) {
        let begun = Instant::now();
        loop {
            let before = self.ran();
            std::thread::sleep(WINDOW);
            let after = self.ran();
            let (woken, ran) = (after.0 - before.0, after.1 - before.1);
            if woken <= WAKE_UPS_MAX && ran < WINDOW / 1000 {
                println!("{what}: woken {woken} times in {WINDOW:?}, ran {ran:?}");
                return;
            }
            let waited = begun.elapsed();
            assert!(
                waited < PATIENCE,
                "{what}: after {waited:?} woken {woken} times in {WINDOW:?}, ran {ran:?}"
            );
        }
    }

    /// Resident memory of both in KiB, shared pages counted once.
    fn memory_kib(&self) -> u64 {
        let of = |pid| {
            let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
            // Programs' own pages are shared by all that run them: what sessions add is anonymous, or in regions.
            number(&rollup, "Pss_Anon:") + number(&rollup, "Pss_Shmem:")
        };
        self.pids().into_iter().map(of).sum()
    }
}

fn number(text: &str, name: &str) -> u64 {
    let line =
        text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name} in {text}"));
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// So many sessions, and the memory of their processes in KiB once they rest.
fn rested(directory: &Path, count: usize, len: usize) -> (usize, u64) {
    let pair = Pair::start(&directory.join(format!("{count}-{len}")), count, len);
    pair.rest(&format!("{count} sessions after a call of {len} bytes each"));
    (count, pair.memory_kib())
}

#[test]
fn sessions_that_nobody_uses_wake_nobody_and_keep_little() {
    let more = std::env::var("IDLE_SESSIONS").ok().map(|count| count.parse().unwrap());
    let counts: Vec<usize> = [30, 300].into_iter().chain(more).collect();
    let directory = tempfile::tempdir().unwrap();
    let check = |len| {
        let rested: Vec<_> = counts.iter().map(|&count| rested(directory.path(), count, len)).collect();
        for pair in rested.windows(2) {
            let [(few, few_kib), (many, many_kib)] = [pair[0], pair[1]];
            let each_kib = many_kib.saturating_sub(few_kib) / (many - few) as u64;
            println!("{few} to {many} sessions after a call of {len} bytes each: {each_kib} KiB each");
            assert!(each_kib <= EACH_KIB_MAX, "{each_kib} KiB for each session after a call of {len} bytes");
        }
    };
    // Each looks at its own processes only.
    std::thread::scope(|scope| {
        scope.spawn(|| check(64));
        check(1 << 20);
    });
}
