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
pub(crate) fn why_not() -> Option<String> {
    let directory = tempfile::tempdir().unwrap();
    let case =
        Case { target: Target::Coordinator, operation: Operation::Connect, nth: 1, error: Errno::MFILE };
    case.start(directory.path()).1.err()
}

impl Case {
    /// The process in which a call fails, and the watch over it.
    fn start(&self, directory: &Path) -> (Process, Result<Injector, String>) {
        let at = Operation::ALL.iter().position(|operation| *operation == self.operation).unwrap();
        let process =
            Process::start(&format!("{:?}", self.target), &directory.join("freight.sock"), &at.to_string());
        let injector = Injector::attach(&directory.join("thread"), self.nth, self.error);
        (process, injector.map_err(|error| error.to_string()))
    }

    /// Whether there were as many calls that one of them could fail.
    pub(crate) fn run(self) -> bool {
        println!("{self:?}");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let coordinator = (self.target != Target::Coordinator).then(|| coordinate(path));
        let (mut process, injector) = self.start(path);
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
