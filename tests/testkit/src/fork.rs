//! Children by `fork` alone, which run on from the same place in a copy of this process.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// A forked child, killed when it is dropped.
#[derive(Debug)]
pub struct Forked {
    pid: Pid,
    has_ended: bool,
}

/// Forks; the child does `act` and leaves with the status that it returns. Only for processes whose other threads hold no
/// lock that the child could want: a test starts a process of its own for it.
///
/// # Panics
/// When no process can be had.
pub fn fork(act: impl FnOnce() -> i32) -> Forked {
    match fork::fork().expect("a process can be forked") {
        fork::Fork::Child => {
            // A panic must end the child, not run on as a second copy of the test.
            let status = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act)).unwrap_or(101);
            std::process::exit(status)
        }
        fork::Fork::Parent(pid) => {
            Forked { pid: Pid::from_raw(pid).expect("a child has a number"), has_ended: false }
        }
    }
}

impl Forked {
    /// Waits for its end and gives its status, or minus the signal that ended it.
    ///
    /// # Panics
    /// When it does not end within `limit`.
    pub fn wait(mut self, limit: Duration) -> i32 {
        let began = Instant::now();
        loop {
            match waitpid(Some(self.pid), WaitOptions::NOHANG).expect("it is this process's child") {
                Some((_, status)) => {
                    self.has_ended = true;
                    let signal = status.terminating_signal().map(|signal| -signal);
                    return status.exit_status().or(signal).unwrap_or(-1);
                }
                None => std::thread::sleep(Duration::from_millis(1)),
            }
            assert!(began.elapsed() < limit, "a forked child does not end");
        }
    }

    /// Lets go of it: it lives on, whatever happens to this process.
    pub fn leave(mut self) {
        self.has_ended = true;
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        if !self.has_ended {
            let _ = kill_process(self.pid, Signal::KILL);
            let _ = waitpid(Some(self.pid), WaitOptions::empty());
        }
    }
}
