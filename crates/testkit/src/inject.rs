//! One system call that fails: the nth of its kind in a process, whichever thread makes it.
//!
//! The process stops at every call of the kind by a filter that asks its tracer ([`Injector`], a thread of the test), which
//! lets it go on, or gives the answer itself. Production code makes its calls without a C library, so that nothing between
//! could be replaced.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// A kind of system call, of those that sockets, descriptors and waiting need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are called what the kernel calls them")]
pub enum Operation {
    Sendmsg,
    Sendto,
    Recvmsg,
    Recvfrom,
    Accept4,
    Connect,
    Socket,
    Socketpair,
    Eventfd2,
    Pipe2,
    PidfdOpen,
    MemfdCreate,
    EpollCreate1,
    EpollCtl,
    /// `fcntl` that makes another descriptor.
    Dup,
}

impl Operation {
    /// All of them.
    pub const ALL: [Operation; 15] = [
        Operation::Sendmsg,
        Operation::Sendto,
        Operation::Recvmsg,
        Operation::Recvfrom,
        Operation::Accept4,
        Operation::Connect,
        Operation::Socket,
        Operation::Socketpair,
        Operation::Eventfd2,
        Operation::Pipe2,
        Operation::PidfdOpen,
        Operation::MemfdCreate,
        Operation::EpollCreate1,
        Operation::EpollCtl,
        Operation::Dup,
    ];

    /// What the kernel may answer where something has run out.
    pub fn errors(self) -> &'static [Errno] {
        match self {
            Operation::Sendmsg => &[Errno::NOBUFS, Errno::TOOMANYREFS],
            Operation::Sendto | Operation::Recvmsg | Operation::Recvfrom | Operation::Connect => {
                &[Errno::NOBUFS]
            }
            Operation::EpollCtl => &[Errno::NOMEM],
            _ => &[Errno::MFILE],
        }
    }

    fn number(self) -> i64 {
        match self {
            Operation::Sendmsg => libc::SYS_sendmsg,
            Operation::Sendto => libc::SYS_sendto,
            Operation::Recvmsg => libc::SYS_recvmsg,
            Operation::Recvfrom => libc::SYS_recvfrom,
            Operation::Accept4 => libc::SYS_accept4,
            Operation::Connect => libc::SYS_connect,
            Operation::Socket => libc::SYS_socket,
            Operation::Socketpair => libc::SYS_socketpair,
            Operation::Eventfd2 => libc::SYS_eventfd2,
            Operation::Pipe2 => libc::SYS_pipe2,
            Operation::PidfdOpen => libc::SYS_pidfd_open,
            Operation::MemfdCreate => libc::SYS_memfd_create,
            Operation::EpollCreate1 => libc::SYS_epoll_create1,
            Operation::EpollCtl => libc::SYS_epoll_ctl,
            Operation::Dup => libc::SYS_fcntl,
        }
    }

    /// Asks the tracer at each call of this kind that this thread, or one that it starts, makes from now on.
    fn ask_tracer(self) {
        let rules = match self {
            Operation::Dup => {
                let command = libc::F_DUPFD_CLOEXEC as u64;
                let is_dup = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, command);
                vec![SeccompRule::new(vec![is_dup.expect("a condition")]).expect("a rule")]
            }
            _ => vec![],
        };
        let filter = SeccompFilter::new(
            BTreeMap::from([(self.number(), rules)]),
            SeccompAction::Allow,
            SeccompAction::Trace(0),
            std::env::consts::ARCH.try_into().expect("a known processor"),
        );
        let program: BpfProgram = filter.and_then(TryInto::try_into).expect("a filter");
        seccompiler::apply_filter(&program).expect("the kernel takes filters");
    }
}

/// In the process that a call is to fail in: does `act` on a thread of its own, once an [`Injector`] that was told of the
/// same file watches that.
///
/// # Panics
/// As `act` does, and when nobody comes to watch.
pub fn under_injection(thread_file: &Path, operation: Operation, act: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            let thread = rustix::thread::gettid().as_raw_nonzero();
            let unfinished = thread_file.with_extension("unfinished");
            std::fs::write(&unfinished, thread.to_string()).expect("a file can be written");
            std::fs::rename(&unfinished, thread_file).expect("it can be renamed");
            let status = format!("/proc/self/task/{thread}/status");
            let began = Instant::now();
            while std::fs::read_to_string(&status).expect("a thread has a status").contains("TracerPid:\t0\n")
            {
                assert!(began.elapsed() < PATIENCE, "nobody watches this thread");
                std::thread::sleep(Duration::from_millis(1));
            }
            operation.ask_tracer();
            act();
        });
        if let Err(panic) = work.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Watches a process in [`under_injection`], and has its nth call of that kind fail.
#[derive(Debug)]
pub struct Injector {
    count: Arc<AtomicU64>,
}

impl Injector {
    /// Whether this machine lets a test do that: the processor must be one whose registers this module knows.
    pub const IS_POSSIBLE: bool = cfg!(target_arch = "x86_64");

    /// Watches from now on; call number `nth` (the first is 1) fails with `error`.
    ///
    /// # Errors
    /// What the kernel says where it lets nobody trace.
    ///
    /// # Panics
    /// When the process doesn't call [`under_injection`].
    pub fn attach(thread_file: &Path, nth: u64, error: Errno) -> Result<Injector, nix::Error> {
        let began = Instant::now();
        let thread = loop {
            if let Ok(text) = std::fs::read_to_string(thread_file) {
                break Pid::from_raw(text.parse().expect("a thread's number"));
            }
            assert!(began.elapsed() < PATIENCE, "a process doesn't ask to be watched");
            std::thread::sleep(Duration::from_millis(1));
        };
        let count = Arc::new(AtomicU64::new(0));
        let (said, heard) = std::sync::mpsc::channel();
        let counter = count.clone();
        // The kernel knows a thread as the tracer, and not its process.
        std::thread::spawn(move || {
            let options = ptrace::Options::PTRACE_O_TRACESECCOMP
                | ptrace::Options::PTRACE_O_TRACECLONE
                | ptrace::Options::PTRACE_O_EXITKILL;
            let seized = ptrace::seize(thread, options);
            let is_seized = seized.is_ok();
            let _ = said.send(seized);
            if is_seized {
                watch(&counter, nth, error);
            }
        });
        heard.recv().expect("the watching thread says whether it can")?;
        Ok(Injector { count })
    }

    /// How many calls of the kind there were so far.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }
}

/// Until all threads that are watched have ended. Only theirs, and no other child of this process is waited for.
fn watch(count: &AtomicU64, nth: u64, error: Errno) {
    let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
    loop {
        // A thread that was killed meanwhile can't be told to go on, and needn't be.
        let _ = match waitpid(None, Some(flags)) {
            Ok(WaitStatus::PtraceEvent(thread, Signal::SIGTRAP, libc::PTRACE_EVENT_SECCOMP)) => {
                if count.fetch_add(1, Ordering::SeqCst) + 1 == nth {
                    answer(thread, error);
                }
                ptrace::cont(thread, None)
            }
            Ok(WaitStatus::PtraceEvent(thread, ..)) => ptrace::cont(thread, None),
            Ok(WaitStatus::Stopped(thread, signal)) => ptrace::cont(thread, signal),
            Ok(_) | Err(nix::Error::EINTR) => Ok(()),
            Err(_) => return,
        };
    }
}

/// Has the call that a thread is about to make not made, and answers it with `error`.
#[cfg(target_arch = "x86_64")]
fn answer(thread: Pid, error: Errno) {
    // It may have been killed meanwhile.
    if let Ok(mut registers) = ptrace::getregs(thread) {
        registers.orig_rax = u64::MAX;
        registers.rax = (-i64::from(error.raw_os_error())) as u64;
        let _ = ptrace::setregs(thread, registers);
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn answer(_: Pid, _: Errno) {}
