//! Two containers of a pod, as far as a machine without a cluster has them: processes in namespaces of their own, as different users, that share nothing
//! but a directory. `docs/guide/kubernetes.md` describes it.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tollfree_stubs::probe::Ask;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tollfree_testkit::Process;

use super::places::PATIENCE;

const GATEWAY: u32 = 65_532;
const BACKEND: u32 = 65_533;
const STRANGER: u32 = 65_534 - 100;
const GROUP: u32 = 65_532;

/// A process in namespaces of its own, killed with its test: it and `unshare` are a process group.
struct Container(Child);

impl Container {
    fn start(command: &mut Command) -> Container {
        Container(command.process_group(0).spawn().unwrap())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        _ = self.0.wait();
    }
}

/// A program as a user, in pid, mount, IPC and host name namespaces of its own, and `more`.
fn container(user: u32, more: &[&str], program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "--ipc", "--uts"]).args(more);
    command.args(["setpriv", "--reuid", &user.to_string(), "--regid", &GROUP.to_string(), "--clear-groups"]);
    command.arg(program).current_dir("/").stdin(Stdio::null());
    command
}

/// Whether this machine has what a container is made of.
fn can_be_had() -> bool {
    let tried = container(GATEWAY, &["--net"], Path::new("/bin/true")).stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

/// A directory that both see, and programs that both may run.
struct Pod {
    directory: tempfile::TempDir,
}

impl Pod {
    fn new() -> Pod {
        let directory = tempfile::tempdir().unwrap();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(directory.path(), 0o755);
        let pod = Pod { directory };
        std::fs::create_dir(pod.path("sockets")).unwrap();
        chown(pod.path("sockets"), Some(GATEWAY), Some(GROUP)).unwrap();
        mode(&pod.path("sockets"), 0o2770);
        std::fs::copy(env!("CARGO_BIN_EXE_tollfree-gateway"), pod.path("gateway")).unwrap();
        std::fs::copy(std::env::current_exe().unwrap(), pod.path("backend")).unwrap();
        let text = format!(
            "[listeners.world]\naddress = \"127.0.0.1:0\"\n[backends]\nsocket = \"shm://{}\"\nmode = \"0660\"\n\
             [groups.default]\nusers = [{BACKEND}]\n",
            pod.socket().display()
        );
        std::fs::write(pod.path("gateway.toml"), text).unwrap();
        mode(&pod.path("gateway.toml"), 0o644);
        pod
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn socket(&self) -> PathBuf {
        self.path("sockets/gateway.sock")
    }

    /// The gateway's container, and where it serves the world.
    fn gateway(&self) -> (Container, String) {
        let mut command = container(GATEWAY, &[], &self.path("gateway"));
        command.arg("--config").arg(self.path("gateway.toml")).stderr(Stdio::piped());
        let mut container = Container::start(&mut command);
        let mut lines = BufReader::new(container.0.stderr.take().unwrap()).lines();
        let ready = lines.find_map(|line| {
            let line = line.unwrap();
            let line = serde_json::from_str::<Value>(&line).unwrap_or_else(|_| panic!("{line}"));
            (line["message"] == "ready").then_some(line)
        });
        let ready = ready.expect("it gets ready");
        let addresses: Value = serde_json::from_str(ready["addresses"].as_str().unwrap()).unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        (container, addresses["listeners.world"].as_str().unwrap().to_owned())
    }

    /// A backend's container, with a network of its own.
    fn backend(&self, user: u32) -> Container {
        let role = Process::command(&self.path("backend"), "processes::backends", &self.socket(), "default");
        let mut command = container(user, &["--net"], &self.path("backend"));
        command.args(role.get_args());
        command.envs(role.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("TOLLFREE_GATEWAY_USER", GATEWAY.to_string());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Container::start(&mut command)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn containers_of_different_users_call_each_other_by_a_directory_in_common() {
    if !can_be_had() {
        eprintln!("NOT RUN: it takes root, unshare and setpriv to have containers");
        return;
    }
    let pod = Pod::new();
    let (_gateway, world) = pod.gateway();
    let _backend = pod.backend(BACKEND);
    let channel = tollfree::Channel::builder(world).wait_for_ready(true).connect_lazy().unwrap();
    let mut client = ProbeClient::new(channel);
    for size in [0, 1000, 1 << 20] {
        let ask = Ask { body: vec![7; size], ..Ask::default() };
        let called = tokio::time::timeout(PATIENCE, client.unary(ask));
        let answer = called.await.expect("a call is answered").unwrap().into_inner();
        assert_eq!(answer.body.len(), size);
    }
    let state = tollfree_control::State::read(&format!("shm://{}", pod.socket().display())).await.unwrap();
    let attached = &state.groups["default"];
    assert_eq!(attached.len(), 1);
    assert_eq!(
        (attached[0].uid, attached[0].pid),
        (BACKEND, 0),
        "in a pid namespace that the gateway does not see"
    );
}

/// In the same group of users, so that it reaches the socket: the config decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_of_a_user_who_is_not_listed_does_not_attach() {
    if !can_be_had() {
        eprintln!("NOT RUN: it takes root, unshare and setpriv to have containers");
        return;
    }
    let pod = Pod::new();
    let (_gateway, _) = pod.gateway();
    let mut stranger = pod.backend(STRANGER);
    let began = std::time::Instant::now();
    // It ends with the refusal, which is an error of `attach`.
    while stranger.0.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < PATIENCE, "it is not refused");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(!stranger.0.wait().unwrap().success());
    let state = tollfree_control::State::read(&format!("shm://{}", pod.socket().display())).await.unwrap();
    assert!(state.groups.is_empty(), "{:?}", state.groups);
}
