//! Every system call by which processes meet, share memory and wake each other is made to fail, one at a time, in each process
//! that has a part in a call: with too few buffers, descriptors, or references in flight. A call ends right or with an error
//! in words; nobody hangs, nobody dies, and afterwards everything works again.
//!
//! `make nightly` has each of them fail (`REFUSED_ALL=1`); else the first few of each kind do.

mod part;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tempfile::TempDir;
use tollfree_testkit::{Process, Role, Sabotage, Saboteur, TimeLimit, alone};

/// How long anything may take that is sure to happen; deadlines of calls are shorter.
const LIMIT: Duration = Duration::from_secs(90);
/// Of each kind of call so many are made to fail, where not all are.
const NTH_MAX: u32 = 2;

/// What can fail, and how.
const KINDS: [(&str, libc::c_long, Errno); 19] = [
    ("sendmsg", libc::SYS_sendmsg, Errno::NOBUFS),
    ("sendmsg", libc::SYS_sendmsg, Errno::TOOMANYREFS),
    ("sendto", libc::SYS_sendto, Errno::NOBUFS),
    ("recvmsg", libc::SYS_recvmsg, Errno::NOBUFS),
    ("recvfrom", libc::SYS_recvfrom, Errno::NOBUFS),
    ("accept4", libc::SYS_accept4, Errno::MFILE),
    ("accept4", libc::SYS_accept4, Errno::NOBUFS),
    ("connect", libc::SYS_connect, Errno::NOBUFS),
    ("socket", libc::SYS_socket, Errno::MFILE),
    ("socketpair", libc::SYS_socketpair, Errno::MFILE),
    ("getsockopt", libc::SYS_getsockopt, Errno::MFILE),
    ("eventfd2", libc::SYS_eventfd2, Errno::MFILE),
    ("pidfd_open", libc::SYS_pidfd_open, Errno::MFILE),
    ("memfd_create", libc::SYS_memfd_create, Errno::MFILE),
    ("ftruncate", libc::SYS_ftruncate, Errno::NOMEM),
    ("fcntl", libc::SYS_fcntl, Errno::MFILE),
    ("dup", libc::SYS_dup, Errno::MFILE),
    ("epoll_create1", libc::SYS_epoll_create1, Errno::MFILE),
    ("epoll_ctl", libc::SYS_epoll_ctl, Errno::NOMEM),
];

#[test]
#[ignore = "not a test: what the processes do that the tests start"]
fn as_child() {
    let Some(role) = Role::of_this_process() else { return };
    match &*role.name {
        "coordinator" => part::coordinate(&role),
        "server" => part::serve(&role),
        _ => part::call(&role),
    }
}

/// A client that calls when it is told to.
struct Caller {
    process: Process,
    tell: ChildStdin,
    heard: Receiver<String>,
}

impl Caller {
    fn start(directory: &TempDir) -> Caller {
        let program = std::env::current_exe().unwrap();
        let mut command = Process::command(&program, "refused::client", &directory.path().join("s.sock"), "");
        let mut child: Child = command.stdin(Stdio::piped()).spawn().unwrap();
        let (tell, said) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (say, heard) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                if let Some(outcome) = line.strip_prefix(part::OUTCOME) {
                    let _ = say.send(outcome.to_owned());
                }
            }
        });
        Caller { process: Process::of(child), tell, heard }
    }

    /// Has it connect and call. The error is what it says of a failure.
    fn call(&mut self) -> Result<(), String> {
        writeln!(self.tell, "call").unwrap_or_else(|error| panic!("the client has died: {error}"));
        let outcome = self.heard.recv_timeout(LIMIT);
        let outcome = outcome.unwrap_or_else(|error| panic!("the client hangs, or has died: {error}"));
        if outcome == part::RIGHT { Ok(()) } else { Err(outcome) }
    }

    /// Has it call until that goes well.
    fn call_until_right(&mut self, why: &str) {
        let began = Instant::now();
        while let Err(words) = self.call() {
            assert!(began.elapsed() < LIMIT, "{why}: calls don't go well again: {words}");
        }
    }
}

fn all_in_turn(victim: &str) {
    let _limit = TimeLimit::seconds(3600);
    let nth_max = if std::env::var_os("REFUSED_ALL").is_some() { u32::MAX } else { NTH_MAX };
    let directory = tempfile::tempdir().unwrap();
    let coordinator = Process::start_ready("refused::coordinator", &directory.path().join("p.sock"), "");
    let server = Process::start_ready("refused::server", &directory.path().join("s.sock"), "");
    let mut caller = Caller::start(&directory);
    caller.call_until_right("at the start");
    let traced = match victim {
        "coordinator" => &coordinator,
        "server" => &server,
        _ => &caller.process,
    };
    let saboteur = match Saboteur::of(traced) {
        Ok(saboteur) => saboteur,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    caller.call_until_right("while the process is only watched");
    let (mut failed_count, mut refused_count) = (0, 0);
    for (name, call, errno) in KINDS {
        for nth in 1..=nth_max {
            let began = Instant::now();
            saboteur.order(Sabotage { call, nth, errno });
            let outcome = caller.call();
            if !saboteur.call_off() {
                // A loaded machine may have been too slow for it.
                if outcome.is_err() {
                    caller.call_until_right(&format!("without any failure of {name}"));
                }
                break;
            }
            failed_count += 1;
            if let Err(words) = outcome {
                refused_count += 1;
                assert!(
                    words.len() > 20,
                    "{name} number {nth} failed with {errno}, and {words:?} is all that was said"
                );
                eprintln!("{victim}: {name} {nth} {errno}, {:?}: {words}", began.elapsed());
            }
            caller
                .call_until_right(&format!("after {name} number {nth} of the {victim} failed with {errno}"));
        }
    }
    eprintln!("{victim}: {failed_count} failures, {refused_count} of them seen by the client");
    assert!(failed_count > 10, "only {failed_count} calls failed: is anything traced?");
    drop(caller);
    drop((server, coordinator));
    saboteur.end();
}

#[test]
fn a_client_survives_whatever_the_kernel_refuses_it() {
    alone!();
    all_in_turn("client");
}

#[test]
fn a_server_survives_whatever_the_kernel_refuses_it() {
    alone!();
    all_in_turn("server");
}

#[test]
fn a_coordinator_survives_whatever_the_kernel_refuses_it() {
    alone!();
    all_in_turn("coordinator");
}
