//! A server and a channel that count, their figures, and the probe's service at each level.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use prometheus_client::registry::Registry;
use tempfile::TempDir;
use tollfree::metrics::Metrics;
use tollfree::{Channel, ChannelBuilder, Server};

/// For everything that must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// One end's figures.
pub(crate) struct Figures {
    registry: Registry,
    pub(crate) metrics: Metrics,
}

impl Figures {
    pub(crate) fn new() -> Figures {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        Figures { registry, metrics }
    }

    /// All series with their values, without the buckets of histograms.
    pub(crate) fn page(&self) -> BTreeMap<String, f64> {
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &self.registry).unwrap();
        let series = page.lines().filter(|line| !line.starts_with('#') && !line.contains("_bucket{"));
        let pairs = series.map(|line| line.rsplit_once(' ').unwrap());
        pairs.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
    }

    /// The sum of all series of a name whose labels have all these words.
    pub(crate) fn sum(&self, name: &str, words: &[&str]) -> f64 {
        let of_name = |series: &str| series.split('{').next() == Some(name);
        let page = self.page();
        let found = page
            .iter()
            .filter(|(series, _)| of_name(series) && words.iter().all(|word| series.contains(word)));
        found.map(|(_, value)| value).sum()
    }

    /// Waits until a sum is so much, and no more.
    pub(crate) async fn until(&self, name: &str, words: &[&str], count: f64) {
        self.at_least(name, words, count).await;
        assert_eq!(self.sum(name, words), count, "{name} {words:?}: {:#?}", self.page());
    }

    /// Waits until a sum is so much or more.
    pub(crate) async fn at_least(&self, name: &str, words: &[&str], count: f64) {
        let begun = Instant::now();
        while self.sum(name, words) < count {
            assert!(begun.elapsed() < PATIENCE, "no {count} of {name} {words:?}: {:#?}", self.page());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// A server on an address of its own, which ends when this is dropped.
pub(crate) struct Place {
    pub(crate) uri: String,
    pub(crate) server: Figures,
    pub(crate) client: Figures,
    task: tokio::task::JoinHandle<()>,
    _directory: TempDir,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Place {
    /// Over shared memory, or over HTTP/2.
    pub(crate) fn start(is_shm: bool, server: Server) -> Place {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        let uri = format!("{}{}", if is_shm { "shm://" } else { "unix:" }, path.display());
        let (figures, address) = (Figures::new(), uri.clone());
        let server = server.metrics(&figures.metrics);
        let task = tokio::spawn(async move { server.serve(address).await.unwrap() });
        Place { uri, server: figures, client: Figures::new(), task, _directory: directory }
    }

    pub(crate) async fn channel(&self, settle: impl FnOnce(ChannelBuilder) -> ChannelBuilder) -> Channel {
        let begun = Instant::now();
        let builder = settle(Channel::builder(&*self.uri).metrics(&self.client.metrics));
        loop {
            match builder.clone().connect().await {
                Ok(channel) => return channel,
                Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}
