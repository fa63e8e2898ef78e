//! Where a gateway and backends meet, and a listening socket that outlives gateways.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use tollfree_kill_points::Point;
use tollfree_testkit::Process;

/// Within this time what has to happen has happened, however busy the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// A directory, and a socket as a service manager keeps it.
pub(crate) struct Place {
    directory: tempfile::TempDir,
    listener: TcpListener,
}

impl Place {
    /// With `more` of the gateway's config.
    pub(crate) fn new(more: &str) -> Place {
        let place = Place {
            directory: tempfile::tempdir().unwrap(),
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
        };
        let text = format!(
            "listeners.world.address = \"systemd:world\"\nbackends.socket = \"shm://{}\"\n\
             limits.attach_wait_ms = 60000\nlimits.drain_ms = 60000\n{more}",
            place.backends().display()
        );
        std::fs::write(place.config(), text).unwrap();
        place
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    pub(crate) fn backends(&self) -> PathBuf {
        self.directory.path().join("backends.sock")
    }

    fn config(&self) -> PathBuf {
        self.directory.path().join("gateway.toml")
    }

    /// A gateway that is given the listening socket, as soon as it is ready.
    pub(crate) fn start_gateway(&self) -> Process {
        let mut process = self.gateway(&self.config().display().to_string());
        process.wait_ready();
        process
    }

    /// The same, to be killed when it gets to a point for the `nth` time.
    pub(crate) fn start_armed_gateway(&self, point: Point, nth: u32) -> Process {
        self.gateway(&format!("{}|{point:?}|{nth}", self.config().display()))
    }

    fn gateway(&self, detail: &str) -> Process {
        let child = Process::command(
            &std::env::current_exe().unwrap(),
            "processes::gateway",
            &self.backends(),
            detail,
        );
        let mut command = Command::new("/bin/sh");
        // The first passed socket is number 3, and the process's number is known to itself only.
        command.args(["-c", "LISTEN_PID=$$ exec \"$0\" \"$@\" 3<&0 </dev/null"]);
        command.arg(child.get_program()).args(child.get_args());
        command.envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", "world");
        command.stdin(OwnedFd::from(self.listener.try_clone().unwrap())).stdout(Stdio::piped());
        Process::of(command.spawn().unwrap())
    }

    pub(crate) fn start_backend(&self, group: &str) -> Process {
        Process::start("processes::backends", &self.backends(), group)
    }

    /// One whose handlers take objects, to be killed when it gets to a point for the `nth` time, if any.
    pub(crate) fn start_taker(&self, killed: Option<(Point, u32)>) -> Process {
        let detail = killed.map_or("default".to_owned(), |(point, nth)| format!("default|{point:?}|{nth}"));
        Process::start("processes::taker", &self.backends(), &detail)
    }

    /// One whose handler takes objects, and keeps those that it is told to.
    pub(crate) fn start_keeper(&self) -> Process {
        Process::start("processes::keeper", &self.backends(), "default")
    }

    /// One to be killed when it gets to a point for the `nth` time.
    pub(crate) fn start_armed_backend(&self, point: Point, nth: u32) -> Process {
        Process::start("processes::backends", &self.backends(), &format!("default|{point:?}|{nth}"))
    }
}
