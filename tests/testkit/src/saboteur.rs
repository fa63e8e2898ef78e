//! A process whose system calls are made to fail, one at a time: for every step of it that asks the kernel for something.
//!
//! The process is traced. Before a call that is to fail, its number is changed to one that the kernel doesn't have; what the
//! kernel says to that is changed to the error. The traced process notices no difference from a kernel that refuses.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::io::Errno;

use crate::Process;

/// A call that is to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sabotage {
    /// The system call's number.
    pub call: libc::c_long,
    /// Which of them, from when this is asked for: the first is 1.
    pub nth: u32,
    /// How it fails.
    pub errno: Errno,
}

#[derive(Debug, Default)]
struct Orders {
    sabotage: Option<Sabotage>,
    /// Calls of that kind since.
    seen: u32,
    /// It has failed.
    done: bool,
}

/// Traces a process as long as that lives.
#[derive(Debug)]
pub struct Saboteur {
    orders: Arc<Mutex<Orders>>,
    tracing: Option<JoinHandle<()>>,
}

impl Saboteur {
    /// Traces all threads of a process, and those that they will start. The error says why that can't be had here.
    ///
    /// # Errors
    /// In words, where processes must not be traced.
    pub fn of(process: &Process) -> Result<Saboteur, String> {
        if !registers::KNOWN {
            return Err("system calls can't be changed on this processor yet".to_owned());
        }
        let pid = process.pid().as_raw_pid();
        let orders = Arc::new(Mutex::new(Orders::default()));
        let (say, hear) = std::sync::mpsc::channel();
        let shared = orders.clone();
        // Only the thread that traces may wait for what it traces, and ask anything of it.
        let tracing = std::thread::spawn(move || {
            let seized = seize_all(pid);
            let goes_on = seized.is_ok();
            let _ = say.send(seized);
            if goes_on {
                trace(&shared);
            }
        });
        hear.recv().map_err(|_| "the tracing thread is gone".to_owned())??;
        Ok(Saboteur { orders, tracing: Some(tracing) })
    }

    fn orders(&self) -> std::sync::MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on: counts calls of that kind, and has one fail.
    pub fn order(&self, sabotage: Sabotage) {
        *self.orders() = Orders { sabotage: Some(sabotage), ..Orders::default() };
    }

    /// No call is to fail any more. Whether one did.
    pub fn call_off(&self) -> bool {
        std::mem::take(&mut *self.orders()).done
    }

    /// Waits for the end of the process, which the caller has seen to.
    pub fn end(mut self) {
        if let Some(tracing) = self.tracing.take() {
            let _ = tracing.join();
        }
    }
}

fn in_words(what: &str, errno: nix::Error) -> String {
    format!("cannot {what}: {errno}")
}

/// Has all threads of a process stop, to be waited for.
fn seize_all(pid: i32) -> Result<(), String> {
    let options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACECLONE;
    let tasks = PathBuf::from(format!("/proc/{pid}/task"));
    let mut seized = HashSet::new();
    loop {
        let names = fs::read_dir(&tasks).map_err(|error| format!("cannot list threads of {pid}: {error}"))?;
        let threads = names.flatten().filter_map(|name| name.file_name().to_str()?.parse::<i32>().ok());
        let new: Vec<i32> = threads.filter(|thread| !seized.contains(thread)).collect();
        if new.is_empty() {
            return Ok(());
        }
        for thread in new {
            seized.insert(thread);
            match ptrace::seize(Pid::from_raw(thread), options) {
                Ok(()) => {
                    ptrace::interrupt(Pid::from_raw(thread)).map_err(|e| in_words("stop a thread", e))?
                }
                // A thread that has ended, or that was traced from its beginning, since one that is traced began it.
                Err(nix::Error::ESRCH) => {}
                Err(nix::Error::EPERM) if seized.len() > 1 => {}
                Err(error) => return Err(in_words("trace a process", error)),
            }
        }
    }
}

/// Goes on until nothing is left to be traced.
fn trace(orders: &Mutex<Orders>) {
    // Threads that are inside a call, and how that is to fail.
    let mut inside: HashMap<Pid, Option<Errno>> = HashMap::new();
    loop {
        // No children of other threads: those are the test's.
        let (thread, signal) = match waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)) {
            Ok(WaitStatus::PtraceSyscall(thread)) => {
                match inside.remove(&thread) {
                    None => drop(inside.insert(thread, enters(thread, orders))),
                    Some(Some(errno)) => drop(registers::fail(thread, errno)),
                    Some(None) => {}
                }
                (thread, None)
            }
            Ok(WaitStatus::PtraceEvent(thread, ..)) => (thread, None),
            Ok(WaitStatus::Stopped(thread, signal)) => (thread, Some(signal)),
            Ok(WaitStatus::Exited(thread, _) | WaitStatus::Signaled(thread, ..)) => {
                inside.remove(&thread);
                continue;
            }
            Ok(_) | Err(nix::Error::EINTR) => continue,
            Err(_) => return,
        };
        // It may have been killed meanwhile; then its end comes next.
        let _ = ptrace::syscall(thread, signal);
    }
}

/// A thread is about to make a call. How it is to fail, if it is.
fn enters(thread: Pid, orders: &Mutex<Orders>) -> Option<Errno> {
    let mut orders = orders.lock().unwrap_or_else(PoisonError::into_inner);
    let Sabotage { call, nth, errno } = orders.sabotage.filter(|_| !orders.done)?;
    if registers::call(thread)? != call {
        return None;
    }
    orders.seen += 1;
    if orders.seen != nth {
        return None;
    }
    registers::make_void(thread)?;
    orders.done = true;
    Some(errno)
}

/// What a thread at a system call says to the kernel, and hears from it.
#[cfg(target_arch = "x86_64")]
mod registers {
    use super::{Errno, Pid, ptrace};

    pub(super) const KNOWN: bool = true;

    pub(super) fn call(thread: Pid) -> Option<libc::c_long> {
        Some(ptrace::getregs(thread).ok()?.orig_rax as libc::c_long)
    }

    /// Makes it a call that the kernel doesn't have.
    pub(super) fn make_void(thread: Pid) -> Option<()> {
        let mut registers = ptrace::getregs(thread).ok()?;
        registers.orig_rax = u64::MAX;
        ptrace::setregs(thread, registers).ok()
    }

    /// Puts an error where the kernel has put its answer.
    pub(super) fn fail(thread: Pid, errno: Errno) -> Option<()> {
        let mut registers = ptrace::getregs(thread).ok()?;
        registers.rax = -i64::from(errno.raw_os_error()) as u64;
        ptrace::setregs(thread, registers).ok()
    }
}

/// Other processors keep a call's number elsewhere.
#[cfg(not(target_arch = "x86_64"))]
mod registers {
    use super::{Errno, Pid};

    pub(super) const KNOWN: bool = false;

    pub(super) fn call(_: Pid) -> Option<libc::c_long> {
        None
    }

    pub(super) fn make_void(_: Pid) -> Option<()> {
        None
    }

    pub(super) fn fail(_: Pid, _: Errno) -> Option<()> {
        None
    }
}
