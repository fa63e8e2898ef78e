//! A server and a client with one transport between them.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use tollfree_stubs::probe::probe_client::ProbeClient;
use tollfree_stubs::probe::probe_server::ProbeServer;
use tonic::body::Body;
use tower::Service;

use crate::probe::{Probe, Witness};

/// What lies between client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Shm,
    Abstract,
    Http2,
}

impl Way {
    /// Whether it is shared memory: for the few rows where tonic's own transport falls short of gRPC.
    pub(crate) fn is_ours(self) -> bool {
        self != Way::Http2
    }
}

type StdError = Box<dyn std::error::Error + Send + Sync>;

/// A channel of either kind.
#[derive(Clone, Debug)]
pub(crate) enum AnyChannel {
    Ours(tollfree::Channel),
    Tonic(tonic::transport::Channel),
}

impl Service<Request<Body>> for AnyChannel {
    type Response = Response<Body>;
    type Error = StdError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, StdError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        match self {
            AnyChannel::Ours(channel) => channel.poll_ready(cx).map_err(Into::into),
            AnyChannel::Tonic(channel) => channel.poll_ready(cx).map_err(Into::into),
        }
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match self {
            AnyChannel::Ours(channel) => {
                let call = channel.call(request);
                Box::pin(async move { Ok(call.await?.map(Body::new)) })
            }
            AnyChannel::Tonic(channel) => {
                let call = channel.call(request);
                Box::pin(async move { Ok(call.await?) })
            }
        }
    }
}

/// A running server, and a channel to it.
pub(crate) struct Lab {
    pub(crate) uri: String,
    pub(crate) channel: AnyChannel,
    pub(crate) witness: Witness,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    server: tokio::task::JoinHandle<Result<(), tollfree::ServeError>>,
    _directory: tempfile::TempDir,
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
            Way::Shm => format!("shm://{}", path.display()),
            Way::Abstract => {
                let number = NUMBER.fetch_add(1, Ordering::Relaxed);
                format!("shm-abstract:tollfree-test-{}-{number}", std::process::id())
            }
            Way::Http2 => format!("unix:{}", path.display()),
        };
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = uri.clone();
        let server =
            tokio::spawn(
                async move { server.serve_with_shutdown(&serving, async { drop(stopped.await) }).await },
            );
        let channel = connect(way, &uri).await;
        Lab { uri, channel, witness, stop: Some(stop), server, _directory: directory }
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
        tokio::time::timeout(Duration::from_secs(10), &mut self.server)
            .await
            .expect("the server ends in time")
            .expect("the server does not panic")
            .expect("the server ends without an error");
    }
}

/// Connects as soon as the server listens.
pub(crate) async fn connect(way: Way, uri: &str) -> AnyChannel {
    for _ in 0..2000 {
        let connected = match way {
            Way::Http2 => {
                let endpoint = tonic::transport::Endpoint::try_from(uri.to_string()).unwrap();
                endpoint.connect().await.map(AnyChannel::Tonic).ok()
            }
            _ => tollfree::Channel::connect(uri).await.map(AnyChannel::Ours).ok(),
        };
        if let Some(channel) = connected {
            return channel;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("nobody listens at {uri}");
}

/// Waits for something that other tasks bring about.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..5000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("within 5 s it did not happen that {what}");
}

/// A row that hangs fails.
pub(crate) async fn in_time(row: impl Future<Output = ()>) {
    tokio::time::timeout(Duration::from_secs(20), row).await.expect("the row ends in time");
}
