//! The test program once more, as a process of its own that may be stopped, killed or killed at a point.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// Set in a process that a test has started: what it is to do, where its socket is, and whatever else it needs to know.
const ROLE: &str = "TOLLFREE_TEST_ROLE";
const SOCKET: &str = "TOLLFREE_TEST_SOCKET";
const DETAIL: &str = "TOLLFREE_TEST_DETAIL";

/// What a child says when others may count on it.
const READY: &str = "READY";

/// What a process that [`Process::start`] made is to do. `None` in a process that nobody started so.
#[derive(Clone, Debug)]
pub struct Role {
    /// What to do.
    pub name: String,
    /// Where its server is or is to be.
    pub socket: PathBuf,
    /// More, in the words of the test.
    pub detail: String,
}

impl Role {
    /// This process's.
    pub fn of_this_process() -> Option<Role> {
        let detail = std::env::var(DETAIL).unwrap_or_default();
        Some(Role { name: std::env::var(ROLE).ok()?, socket: std::env::var(SOCKET).ok()?.into(), detail })
    }

    /// Tells the test that started this process that it may go on.
    pub fn ready(&self) {
        println!("{READY}");
    }
}

/// A child process, killed with its test.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts this test program again. The ignored test `as_child` of the module that `role` begins with (`forks::client`) finds
    /// the [`Role`], without that beginning.
    ///
    /// # Panics
    /// When no process can be had.
    pub fn start(role: &str, socket: &Path, detail: &str) -> Process {
        let program = std::env::current_exe().expect("a test knows its program");
        let child = Process::command(&program, role, socket, detail).spawn();
        Process(child.expect("a process can be started"))
    }

    /// The command that [`start`](Self::start) runs, of a copy of this test program at `program`, to be started otherwise.
    pub fn command(program: &Path, role: &str, socket: &Path, detail: &str) -> Command {
        let mut command = Command::new(program);
        let at = role.rfind("::").map_or(0, |at| at + 2);
        let (module, role) = role.split_at(at);
        command
            .args(["--exact", &format!("{module}as_child"), "--ignored", "--nocapture"])
            .stdout(Stdio::piped());
        command.env(ROLE, role).env(SOCKET, socket).env(DETAIL, detail);
        command
    }

    /// A child that was started by [`command`](Self::command).
    pub fn of(child: Child) -> Process {
        Process(child)
    }

    /// As [`start`](Self::start), and waits until the child says that it is ready.
    ///
    /// # Panics
    /// When it ends without saying so.
    pub fn start_ready(role: &str, socket: &Path, detail: &str) -> Process {
        let mut process = Process::start(role, socket, detail);
        process.wait_ready();
        process
    }

    /// Waits until the child says that it is ready.
    ///
    /// # Panics
    /// When it ends without saying so.
    pub fn wait_ready(&mut self) {
        let mut lines = BufReader::new(self.0.stdout.take().expect("asked for once")).lines();
        let ready = lines.any(|line| line.is_ok_and(|line| line.contains(READY)));
        assert!(ready, "a child never got ready");
        // What else it says is read, so that it never waits for a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
    }

    /// Its number.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// Sends a signal; with STOP waits as [`stop_child`] does.
    ///
    /// # Panics
    /// When it is gone.
    pub fn signal(&self, signal: Signal) {
        match signal {
            Signal::STOP => stop_child(self.pid()),
            _ => kill_process(self.pid(), signal).expect("it runs"),
        }
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().expect("it is this process's child")
    }

    /// Waits for its end, for `limit` at most.
    pub fn wait_end(&mut self, limit: Duration) -> Option<ExitStatus> {
        let began = Instant::now();
        loop {
            let ended = self.ended();
            if ended.is_some() || began.elapsed() > limit {
                return ended;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Stops a child of this process, and waits until each of its threads stands still: a signal that was only sent lets
/// those that run on other cores go on for a while.
///
/// # Panics
/// When it is gone.
pub fn stop_child(pid: Pid) {
    kill_process(pid, Signal::STOP).expect("it runs");
    waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED)
        .expect("it is this process's child, and has been told to stop");
}

/// The name of a test of this program, for `--exact`: of the `module_path!()` that it stands in.
pub fn path_of(module: &str, test: &str) -> String {
    match module.split_once("::") {
        Some((_program, module)) => format!("{module}::{test}"),
        None => test.to_owned(),
    }
}
