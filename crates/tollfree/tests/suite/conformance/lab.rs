//! A server and a client with one transport between them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::stubs::probe::probe_client::ProbeClient;
use crate::stubs::probe::probe_server::ProbeServer;

use super::carrier::{AnyChannel, IS_HTTP2, connect};
use super::probe::{Probe, Witness};

/// What lies between client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Shm,
    /// The same with both ends told never to spin: the doorbell is rung for every wait.
    Parked,
    Abstract,
    /// A server that blocks a thread of its own.
    BackendConnection,
    /// A channel to a server on TCP that has moved over to shared memory.
    Moved,
    /// A channel via a gateway, to a server that has attached to that.
    BehindGateway,
    /// The same with a server that has attached over a byte stream.
    #[allow(dead_code, reason = "only a whole gateway has such a listener")]
    Streamed,
    Http2,
}

impl Way {
    /// Whether it is shared memory: for the few rows where tonic's own transport falls short of gRPC.
    pub(crate) fn is_ours(self) -> bool {
        self != Way::Http2
    }
}

/// A running server, and a channel to it.
pub(crate) struct Lab {
    /// The one that the client is told.
    pub(crate) uri: String,
    /// All of the server's.
    pub(crate) uris: Vec<String>,
    pub(crate) channel: AnyChannel,
    pub(crate) witness: Witness,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    server: tokio::task::JoinHandle<Result<(), tollfree::ServeError>>,
    gateway: Option<Gateway>,
    directory: Option<tempfile::TempDir>,
    way: Way,
}

/// A task that runs until this is dropped.
struct Gateway(tokio::task::JoinHandle<()>);

impl Drop for Gateway {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Drop for Lab {
    /// No handler may be left when the test is over, while the session still stands.
    fn drop(&mut self) {
        let Some(stop) = self.stop.take().filter(|_| !std::thread::panicking()) else { return };
        let witness = self.witness.clone();
        let standing = (self.channel.clone(), stop, self.gateway.take(), self.directory.take());
        if !self.way.is_ours() || IS_HTTP2 {
            // tonic's own transport goes on with a request after the one who made it has gone.
            return tokio::leave_tasks_uncounted();
        }
        tokio::afterwards(async move {
            until("no handler is left", || witness.live() == 0).await;
            drop(standing);
        });
    }
}

impl Lab {
    /// A server with the probe as it is.
    pub(crate) async fn start(way: Way) -> Lab {
        Lab::with(way, tollfree::Server::builder(), |probe| probe).await
    }

    /// A server with settings, and the probe's service with its own.
    pub(crate) async fn with(
        way: Way,
        server: tollfree::Server,
        settle: impl FnOnce(ProbeServer<Probe>) -> ProbeServer<Probe>,
    ) -> Lab {
        let witness = Witness::default();
        let server = server.add_service(settle(ProbeServer::new(Probe::new(witness.clone()))));
        Lab::serve(way, server, witness).await
    }

    /// Any server.
    pub(crate) async fn serve(way: Way, server: tollfree::Server, witness: Witness) -> Lab {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        let uri = match way {
            Way::Shm | Way::Parked | Way::BackendConnection | Way::BehindGateway | Way::Streamed => {
                format!("shm://{}", path.display())
            }
            Way::Abstract => {
                let number = NUMBER.fetch_add(1, Ordering::Relaxed);
                format!("shm-abstract:tollfree-test-{}-{number}", std::process::id())
            }
            Way::Moved => format!("http://{}", tollfree_testkit::free_address()),
            Way::Http2 => format!("unix:{}", path.display()),
        };
        let server = if way == Way::Parked { server.wait(tollfree::WaitPolicy::Park) } else { server };
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let mut uris = vec![uri.clone()];
        if way == Way::Moved {
            uris.push(format!("shm://{}", path.display()));
        }
        let serving = uris.clone();
        let stopped = async { drop(stopped.await) };
        let mut gateway = None;
        let server = if matches!(way, Way::BehindGateway | Way::Streamed) {
            gateway = Some(Gateway(tokio::spawn(super::gateway::run(uri.clone()))));
            tokio::spawn(super::carrier::attach(server, way, &uri).until(stopped).into_future())
        } else if way == Way::BackendConnection {
            tokio::task::spawn_blocking(move || server.serve_blocking_with_shutdown(&serving[0], stopped))
        } else {
            tokio::spawn(async move {
                let uris = serving.iter().map(String::as_str);
                server.serve_many_with_shutdown(uris, stopped).await
            })
        };
        let channel = connect(way, &uri).await;
        let directory = Some(directory);
        Lab { uri, uris, channel, witness, stop: Some(stop), server, gateway, directory, way }
    }

    pub(crate) fn client(&self) -> ProbeClient<AnyChannel> {
        ProbeClient::new(self.channel.clone())
    }

    /// Begins to shut the server down.
    pub(crate) fn begin_stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits until the server has ended.
    pub(crate) async fn stopped(&mut self) {
        self.begin_stop();
        tokio::time::timeout(Duration::from_secs(30), &mut self.server)
            .await
            .expect("the server ends in time")
            .expect("the server does not panic")
            .expect("the server ends without an error");
    }
}

/// Waits for something that other tasks bring about.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(30), "within 30 s it did not happen that {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A row that hangs fails.
pub(crate) async fn in_time(row: impl Future<Output = ()>) {
    tokio::time::timeout(Duration::from_secs(60), row).await.expect("the row ends in time");
}
