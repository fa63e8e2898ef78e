//! A gateway, backends as tasks of this process, and what reads its figures.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinHandle;
use tollfree_gateway::{Config, Gateway, Reloader};
use tollfree_stubs::probe::probe_client::ProbeClient;
use tollfree_stubs::probe::probe_server::ProbeServer;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::probe::Probe;

/// Longer than a stopped machine takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The service that is attached.
pub(crate) const PROBE: &str = "tollfree.probe.v1.Probe";

/// A running gateway.
pub(crate) struct Lab {
    pub(crate) directory: Arc<tempfile::TempDir>,
    /// `http://` or `https://` and the address of the listener.
    pub(crate) uri: String,
    pub(crate) reloader: Reloader,
    /// What its config says of sockets.
    pub(crate) sockets: String,
    metrics: String,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    running: JoinHandle<()>,
}

/// Figures of what calls hold while they are under way, and clients while they are connected.
const HELD: [&str; 5] = ["memory_bytes", "outstanding", "egress_calls", "waiting", "connections"];

impl Drop for Lab {
    /// What its calls have left is counted when the test is over, and the gateway still runs.
    fn drop(&mut self) {
        let Some(stop) = self.stop.take().filter(|_| !std::thread::panicking()) else { return };
        let (metrics, directory) = (self.metrics.clone(), self.directory.clone());
        tokio::afterwards(async move {
            let begun = tokio::time::Instant::now();
            loop {
                let held = held(&page(&metrics).await);
                if held.is_empty() {
                    break;
                }
                assert!(begun.elapsed() < PATIENCE, "calls that have ended hold {held:?}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            drop((stop, directory));
        });
    }
}

/// Those of a page's figures by which something is held.
fn held(page: &str) -> Vec<String> {
    let is_held = |line: &&str| {
        let (name, value) = line.rsplit_once(' ').unwrap_or_default();
        let name = name.split('{').next().and_then(|name| name.strip_prefix("tollfree_gateway_"));
        name.is_some_and(|name| HELD.contains(&name)) && value.parse::<f64>().is_ok_and(|value| value != 0.0)
    };
    page.lines().filter(is_held).map(str::to_owned).collect()
}

/// All figures, from a page.
async fn page(metrics: &str) -> String {
    let rest = metrics.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let began = std::time::Instant::now();
    loop {
        let page = get(tokio::net::TcpStream::connect(host).await.unwrap(), &format!("/{path}")).await;
        // Who has said nothing within two seconds, as a test on a busy machine may, is answered by nothing.
        if !page.is_empty() || began.elapsed() > PATIENCE {
            assert!(page.starts_with("HTTP/1.1 200"), "{page}");
            return page;
        }
    }
}

/// An answer of HTTP/1.1, head and body.
async fn get(mut stream: impl AsyncRead + AsyncWrite + Unpin, path: &str) -> String {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

impl Lab {
    /// With a listener on TCP, a page of figures, and `more` of a config.
    pub(crate) async fn start(more: &str) -> Lab {
        Lab::start_in(tempfile::tempdir().unwrap(), more).await
    }

    pub(crate) async fn start_in(directory: tempfile::TempDir, more: &str) -> Lab {
        let sockets = format!(
            "listeners.world.address = \"127.0.0.1:0\"\nmetrics.address = \"127.0.0.1:0\"\n\
             backends.socket = \"shm://{}\"\n",
            directory.path().join("backends.sock").display()
        );
        let config = Config::from_toml(&format!("{sockets}{more}")).unwrap();
        let gateway = Gateway::bind(config).await.unwrap();
        let addresses = gateway.addresses();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let reloader = gateway.reloader();
        let running = tokio::spawn(gateway.run(async { drop(stopped.await) }));
        Lab {
            directory: Arc::new(directory),
            uri: addresses["listeners.world"].clone(),
            reloader,
            sockets,
            metrics: addresses["metrics"].clone(),
            stop: Some(stop),
            running,
        }
    }

    pub(crate) fn backends(&self) -> String {
        format!("shm://{}", self.directory.path().join("backends.sock").display())
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A backend with the probe, attached; it ends with its handle.
    pub(crate) async fn attach(&self, group: &str) -> Attached {
        self.attach_backend_connections(group, 1, Probe::default()).await
    }

    pub(crate) async fn attach_backend_connections(&self, group: &str, count: u32, probe: Probe) -> Attached {
        let before = self.figure(&backend_connections_of(group)).await;
        let gzip = tonic::codec::CompressionEncoding::Gzip;
        let service = ProbeServer::new(probe.clone())
            .max_decoding_message_size(usize::MAX)
            .accept_compressed(gzip)
            .send_compressed(gzip);
        let server = tollfree::Server::builder().add_service(service);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let attaching = server
            .attach(self.backends())
            .group(group)
            .backend_connections(count)
            .until(async { drop(stopped.await) });
        let task = tokio::spawn(attaching.into_future());
        let all = before + f64::from(count);
        self.until_figure(&backend_connections_of(group), |figure| figure >= all).await;
        Attached { probe, stop: Some(stop), task }
    }

    /// A channel of stock tonic, as soon as the listener listens.
    pub(crate) async fn channel(&self) -> Channel {
        let endpoint = tonic::transport::Endpoint::try_from(self.uri.clone()).unwrap();
        endpoint.connect().await.unwrap()
    }

    pub(crate) async fn client(&self) -> ProbeClient<Channel> {
        ProbeClient::new(self.channel().await).max_decoding_message_size(usize::MAX)
    }

    /// The address of the listener, for sockets.
    pub(crate) fn socket_address(&self) -> String {
        self.uri.split_once("://").unwrap().1.to_owned()
    }

    /// All figures.
    pub(crate) async fn page(&self) -> String {
        page(&self.metrics).await
    }

    /// `host:port` of the page of figures.
    pub(crate) fn metrics_address(&self) -> &str {
        self.metrics.strip_prefix("http://").unwrap().split('/').next().unwrap()
    }

    /// What the control socket answers.
    pub(crate) async fn control(&self, path: &str) -> String {
        get(tokio::net::UnixStream::connect(self.file("backends.sock.control")).await.unwrap(), path).await
    }

    /// One of them by its name and labels, 0 if it isn't there.
    pub(crate) async fn figure(&self, name: &str) -> f64 {
        let page = self.page().await;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().unwrap())
    }

    /// How many were refused for a reason.
    pub(crate) async fn refused(&self, reason: &str) -> f64 {
        self.figure(&format!("tollfree_gateway_refusals_total{{reason=\"{reason}\"}}")).await
    }

    /// How many were refused for want of memory, of the group's or of a client's share.
    pub(crate) async fn refused_memory(&self) -> f64 {
        self.refused("memory").await + self.refused("memory_share").await
    }

    pub(crate) async fn until_figure(&self, name: &str, holds: impl Fn(f64) -> bool) {
        let begun = tokio::time::Instant::now();
        loop {
            let figure = self.figure(name).await;
            if holds(figure) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{name} stays {figure}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// What the gateway says of a service's health.
    pub(crate) async fn health(&self, service: &str) -> Result<i32, tonic::Code> {
        let request = HealthCheckRequest { service: service.into() };
        let answer = HealthClient::new(self.channel().await).check(request).await;
        answer.map(|answer| answer.get_ref().status).map_err(|status| status.code())
    }

    /// Begins to stop it.
    pub(crate) fn begin_stop(&mut self) {
        drop(self.stop.take());
    }

    pub(crate) async fn stopped(mut self) {
        self.begin_stop();
        tokio::time::timeout(PATIENCE, &mut self.running).await.expect("it stops").unwrap();
    }
}

pub(crate) fn backend_connections_of(group: &str) -> String {
    format!("tollfree_gateway_backend_connections{{group=\"{group}\"}}")
}

/// A backend.
pub(crate) struct Attached {
    pub(crate) probe: Probe,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    task: JoinHandle<Result<(), tollfree::ServeError>>,
}

impl Attached {
    /// Ends as a process does that is shut down.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        tokio::time::timeout(PATIENCE, &mut self.task).await.expect("it ends").unwrap().unwrap();
    }

    /// Ends as a process does that dies.
    pub(crate) fn abort(self) {
        self.task.abort();
    }
}
