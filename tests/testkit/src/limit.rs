//! Tests that must end.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

/// Ends the whole test process when it is not dropped in time: a task that spins without end is beyond what a timeout in
/// an async runtime can end.
#[derive(Debug)]
pub struct TimeLimit {
    _done: Sender<()>,
}

impl TimeLimit {
    /// From now on, for the test that calls.
    pub fn seconds(seconds: u64) -> TimeLimit {
        let (done, watched) = mpsc::channel::<()>();
        let name = std::thread::current().name().unwrap_or("a test").to_owned();
        std::thread::spawn(move || {
            if watched.recv_timeout(Duration::from_secs(seconds)) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{name}: not over within {seconds} s; giving up on the whole process");
                std::process::abort();
            }
        });
        TimeLimit { _done: done }
    }
}
