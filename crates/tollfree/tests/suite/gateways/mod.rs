//! Servers behind a gateway, and channels via one: who is who, what ends when somebody dies, and what is said where it can't
//! work. That calls mean the same through a gateway, whatever their kind, is the conformance suite's matter.

mod activity;
mod ends;
mod who;
mod wording;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tollfree::gateway::{Accepted, Attached, BackendListener, Limits};
use tollfree::{Channel, Server};
use tollfree_stubs::probe::probe_client::ProbeClient;
use tollfree_stubs::probe::probe_server::ProbeServer;
use tollfree_testkit::{Process, Role};

use crate::conformance::gateway;
use crate::conformance::probe::{Probe, Witness};

/// Within this time what has to happen has happened, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where a gateway and its processes meet.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("gateway.sock")
    }

    fn uri(&self) -> String {
        uri_of(&self.path())
    }

    async fn backend_listener(&self) -> BackendListener {
        BackendListener::bind(self.uri(), Limits::default()).await.unwrap()
    }
}

fn uri_of(path: &Path) -> String {
    format!("shm://{}", path.display())
}

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("not in time: {what}"))
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The next that comes to a backend listener, which is a backend connection.
async fn next_attached(backend_listener: &mut BackendListener) -> Attached {
    match in_time("a backend connection attaches", backend_listener.accept()).await {
        Some(Accepted::Attached(attached)) => attached,
        other => panic!("{other:?}"),
    }
}

fn client(attached: &Attached) -> ProbeClient<Channel> {
    ProbeClient::new(attached.channel())
}

/// A server with the probe, for the test to watch.
fn server() -> (Server, Witness) {
    let witness = Witness::default();
    (Server::builder().add_service(ProbeServer::new(Probe::new(witness.clone()))), witness)
}

/// Not a test: a process that another test has started.
#[tokio::test]
#[ignore = "run by other tests, as a process to be killed"]
async fn as_child() {
    let role = Role::of_this_process().expect("set by the test that starts this");
    let uri = uri_of(&role.socket);
    match role.name.as_str() {
        "server" => server().0.attach(uri).group(role.detail).backend_connections(2).await.unwrap(),
        "gateway" => gateway::run(uri).await,
        other => panic!("no role {other}"),
    }
}

/// A process with two backend connections in a group of this name.
fn start_server(place: &Place, group: &str) -> Process {
    Process::start("gateways::server", &place.path(), group)
}
