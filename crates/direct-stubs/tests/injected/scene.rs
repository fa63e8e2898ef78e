//! A pool, a server and a client, in one of which a call fails, and a witness who must not notice.

use std::path::Path;

use rustix::io::Errno;
use tollfree_testkit::{Injector, Operation, Process};

use crate::party::{self, PATIENCE, call, coordinate, join};

/// The process in which a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Coordinator,
    Server,
    Client,
}

impl Target {
    pub(crate) const ALL: [Target; 3] = [Target::Coordinator, Target::Server, Target::Client];

    /// Which calls it makes on the machines that this was written on, and one of them that is worth a try.
    pub(crate) fn sample(self) -> &'static [(Operation, u64)] {
        match self {
            Target::Coordinator => &[
                (Operation::Sendmsg, 3),
                (Operation::Recvmsg, 3),
                (Operation::Accept4, 2),
                (Operation::Socket, 1),
                (Operation::Eventfd2, 1),
            ],
            Target::Server => &[
                (Operation::Sendmsg, 5),
                (Operation::Recvmsg, 4),
                (Operation::Accept4, 1),
                (Operation::Connect, 1),
                (Operation::Socket, 2),
                (Operation::Eventfd2, 3),
                (Operation::MemfdCreate, 3),
                (Operation::EpollCreate1, 1),
                (Operation::EpollCtl, 5),
                (Operation::Dup, 2),
            ],
            Target::Client => &[
                (Operation::Sendmsg, 6),
                (Operation::Sendto, 1),
                (Operation::Recvmsg, 6),
                (Operation::Connect, 2),
                (Operation::Socket, 2),
                (Operation::Eventfd2, 2),
                (Operation::MemfdCreate, 2),
                (Operation::EpollCreate1, 1),
                (Operation::EpollCtl, 4),
                (Operation::Dup, 2),
            ],
        }
    }
}

/// One call that fails.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) target: Target,
    pub(crate) operation: Operation,
    pub(crate) nth: u64,
    pub(crate) error: Errno,
}

/// Why the kernel lets nobody watch a process, if so.
///
/// # Panics
/// When it does, and the call that is to fail doesn't.
pub(crate) fn why_not() -> Option<String> {
    let directory = tempfile::tempdir().unwrap();
    let (mut process, injector) = start("Probe", Operation::Socket, 2, Errno::MFILE, directory.path());
    let why = injector.err();
    if why.is_none() {
        let ended = process.wait_end(PATIENCE).expect("it makes three calls");
        assert!(ended.success(), "a process in which a call was to fail: {ended}");
    }
    why
}

/// The process in which a call fails, and the watch over it.
fn start(
    role: &str,
    operation: Operation,
    nth: u64,
    error: Errno,
    directory: &Path,
) -> (Process, Result<Injector, String>) {
    let at = Operation::ALL.iter().position(|known| *known == operation).unwrap();
    let process = Process::start(role, &directory.join("freight.sock"), &at.to_string());
    let injector = Injector::attach(&directory.join("thread"), nth, error);
    (process, injector.map_err(|error| error.to_string()))
}

impl Case {
    /// Whether there were as many calls that one of them could fail.
    pub(crate) fn run(self) -> bool {
        println!("{self:?}");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let coordinator = (self.target != Target::Coordinator).then(|| coordinate(path));
        let role = format!("{:?}", self.target);
        let (mut process, injector) = start(&role, self.operation, self.nth, self.error, path);
        let injector = injector.expect("it was possible before");
        let runtime = party::runtime();
        let server =
            (self.target != Target::Server).then(|| runtime.spawn(party::serve(path.to_owned(), join(path))));
        if self.target == Target::Client {
            let ended =
                process.wait_end(3 * PATIENCE).unwrap_or_else(|| panic!("{self:?}: the client hangs"));
            assert!(ended.success(), "{self:?}: the client {ended}");
        } else {
            runtime.block_on(call(path, &join(path)));
        }
        // Somebody else, who comes afterwards.
        runtime.block_on(call(path, &join(path)));
        assert!(self.target == Target::Client || process.ended().is_none(), "{self:?}: it ended");
        assert!(server.is_none_or(|server| !server.is_finished()), "{self:?}: the server ended");
        assert!(coordinator.is_none_or(|coordinator| coordinator.is_running()), "{self:?}");
        injector.count() >= self.nth
    }
}
