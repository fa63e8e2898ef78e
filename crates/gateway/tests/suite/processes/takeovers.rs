//! Gateways that take each other's place while clients call: nobody passes sockets but they themselves.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tollfree_stubs::probe::Ask;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tollfree_testkit::Process;

use super::load::Load;
use super::places::PATIENCE;

const CLIENTS: usize = 6;

/// A gateway as the command that users start.
struct Program {
    child: Child,
    addresses: BTreeMap<String, String>,
}

impl Program {
    fn command(directory: &Path) -> Command {
        let config = directory.join("gateway.toml");
        let text = format!(
            "[listeners.world]\naddress = \"127.0.0.1:0\"\n[listeners.local]\naddress = \"unix:{}\"\n\
             [backends]\nsocket = \"shm://{}\"\n[metrics]\naddress = \"127.0.0.1:0\"\n",
            directory.join("world.sock").display(),
            directory.join("backends.sock").display()
        );
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollfree-gateway"));
        command.arg("--config").arg(&config).stdin(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// Starts it, and waits until it serves.
    fn start(directory: &Path, arguments: &[&str]) -> Program {
        let mut child = Program::command(directory).args(arguments).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let ready = lines.find_map(|line| {
            let line = line.unwrap();
            let line = serde_json::from_str::<Value>(&line).unwrap_or_else(|_| panic!("{line}"));
            (line["message"] == "ready").then_some(line)
        });
        let ready = ready.expect("it gets ready");
        let addresses = serde_json::from_str(ready["addresses"].as_str().unwrap()).unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        Program { child, addresses }
    }

    fn wait_end(&mut self) -> bool {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.success();
            }
            assert!(began.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Three times: each new gateway has been an heir before it is an ancestor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_take_each_others_place_and_no_call_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let (path, socket) = (directory.path(), directory.path().join("backends.sock"));
    let mut gateway = Program::start(path, &["--take-over"]);
    let addresses = gateway.addresses.clone();
    let _backends = [(); 2].map(|()| Process::start("processes::backends", &socket, "default"));
    let world = addresses["listeners.world"].strip_prefix("http://").unwrap().parse().unwrap();
    let load = Load::start(world, CLIENTS);
    for _ in 0..3 {
        load.until_answered(50).await;
        let next = Program::start(path, &["--take-over"]);
        assert_eq!(next.addresses, addresses, "it has the same sockets");
        assert!(gateway.wait_end(), "the old one ends by itself, and well");
        gateway = next;
        let state = tollfree_control::State::read(&format!("shm://{}", socket.display())).await.unwrap();
        assert_eq!(state.pid, gateway.child.id(), "the control socket is the new one's");
        assert_eq!(state.groups["default"].len(), 2, "its backends have come before the old one has gone");
        tokio::net::UnixStream::connect(path.join("world.sock")).await.unwrap();
        tokio::net::TcpStream::connect(addresses["metrics"].split('/').nth(2).unwrap()).await.unwrap();
    }
    load.until_answered(50).await;
    let failures = load.stop().await;
    assert!(failures.is_empty(), "{failures:?}");
    kill_process(Pid::from_child(&gateway.child), Signal::TERM).unwrap();
    assert!(gateway.wait_end());
    let left: Vec<_> = path.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["gateway.toml"], "the last one removes the sockets that it was given");
}

/// A process of another user gets nothing, even where it reaches the socket, and learns why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_users_gateway_takes_no_place() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOT RUN: only root can start processes of other users");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    let mut gateway = Program::start(path, &[]);
    open(path, 0o777);
    open(&path.join("backends.sock.control"), 0o777);
    let program = path.join("program");
    std::fs::copy(env!("CARGO_BIN_EXE_tollfree-gateway"), &program).unwrap();
    let mut command = Command::new(&program);
    command.arg("--take-over").arg("--config").arg(path.join("gateway.toml")).current_dir("/");
    std::os::unix::process::CommandExt::uid(&mut command, 65_533);
    let refused = command.stdin(Stdio::null()).output().unwrap();
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{words}");
    assert!(words.contains("runs as user 0, and only that user and root may take its place"), "{words}");
    assert!(gateway.child.try_wait().unwrap().is_none(), "the running one goes on");
}

/// Connections that call at fixed times. On a machine that stands still, each has fewer calls under way than `limits.streams`: beyond that, calls
/// wait in the client's HTTP/2, which loses them with its connection.
const PACED: usize = 40;
const RATE: u64 = 2_000;
const SECONDS: u64 = 2;
/// Longer than a takeover holds up a call, however busy the machine is. A quiet one: see the figure that the test prints.
const WORST: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_calls_a_second_lose_nothing_and_wait_for_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (path, socket) = (directory.path(), directory.path().join("backends.sock"));
    let mut gateway = Program::start(path, &[]);
    let _backends = [(); 2].map(|()| Process::start("processes::backends", &socket, "default"));
    let channel = || {
        let channel = tollfree::Channel::builder(gateway.addresses["listeners.world"].clone());
        ProbeClient::new(channel.wait_for_ready(true).connect_lazy().unwrap())
    };
    let mut clients = tokio::task::JoinSet::new();
    let begin = tokio::time::Instant::now() + Duration::from_millis(500);
    for nth in 0..PACED as u64 {
        let client = channel();
        client.clone().unary(Ask::default()).await.unwrap();
        clients.spawn(async move {
            let mut calls = tokio::task::JoinSet::new();
            for number in 0..RATE * SECONDS / PACED as u64 {
                let micros = (number * PACED as u64 + nth) * 1_000_000 / RATE;
                let due = begin + Duration::from_micros(micros);
                tokio::time::sleep_until(due).await;
                let mut client = client.clone();
                calls.spawn(async move {
                    let answered = client.unary(Ask::default()).await;
                    answered.map(|_| due.elapsed())
                });
            }
            calls.join_all().await
        });
    }
    tokio::time::sleep_until(begin + Duration::from_secs(SECONDS / 2)).await;
    let next = tokio::task::block_in_place(|| Program::start(path, &["--take-over"]));
    let outcomes = clients.join_all().await.concat();
    assert_eq!(outcomes.len() as u64, RATE * SECONDS);
    let lost: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    assert!(lost.is_empty(), "{} calls are lost: {:?}", lost.len(), lost[0]);
    let mut times: Vec<Duration> = outcomes.into_iter().filter_map(Result::ok).collect();
    times.sort_unstable();
    let (worst, median) = (times[times.len() - 1], times[times.len() / 2]);
    let late = times.iter().filter(|time| **time > Duration::from_millis(50)).count();
    println!(
        "{RATE} calls a second over a takeover: none lost, median {median:?}, {late} over 50 ms, the worst {worst:?}"
    );
    assert!(worst < WORST, "{worst:?}");
    assert!(gateway.wait_end());
    drop(next);
}
