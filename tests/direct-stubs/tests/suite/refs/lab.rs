//! Pools and servers for one test.

use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tollfree::pool::{Address, Capacity, Config, Pool, WhenShort};
use tollfree::{Channel, ChannelBuilder, Payloads, Server};

pub(crate) const THRESHOLD: usize = 16 * 1024;

/// Fails a test that hangs.
pub(crate) async fn in_time(test: impl Future<Output = ()>) {
    tokio::time::timeout(Duration::from_secs(120), test).await.expect("in two minutes");
}

/// A directory of sockets, and a pool's coordinator in it.
pub(crate) struct Lab {
    directory: tempfile::TempDir,
    count: std::cell::Cell<usize>,
    capacity: Capacity,
    /// The first member, which coordinates.
    pub(crate) pool: Pool,
}

pub(crate) fn config() -> Config {
    Config {
        when_short: WhenShort::Wait(Duration::from_secs(20)),
        low_watermark: 0,
        high_watermark: u64::MAX,
        reader_limit: None,
        patience: Duration::from_secs(20),
    }
}

impl Lab {
    pub(crate) fn new() -> Lab {
        Lab::with(Capacity { total: 256 << 20, member_quota: 64 << 20, batch: 16 << 20 })
    }

    pub(crate) fn with(capacity: Capacity) -> Lab {
        let directory = tempfile::tempdir().unwrap();
        let address: Address = format!("shm://{}/pool.sock", directory.path().display()).parse().unwrap();
        let pool = Pool::create(&address, capacity, config()).unwrap();
        warm(&pool, capacity);
        Lab { directory, count: 0.into(), capacity, pool }
    }

    /// Another member, which has some memory already.
    pub(crate) fn join(&self) -> Pool {
        self.join_with(config())
    }

    pub(crate) fn join_with(&self, config: Config) -> Pool {
        let address = format!("shm://{}/pool.sock", self.directory.path().display());
        let pool = Pool::join(&address.parse().unwrap(), config).unwrap();
        warm(&pool, self.capacity);
        pool
    }

    pub(crate) fn uri(&self) -> String {
        self.count.set(self.count.get() + 1);
        format!("shm://{}/{}.sock", self.directory.path().display(), self.count.get())
    }

    /// Serves until it is told not to.
    pub(crate) async fn serve(&self, server: Server) -> Served {
        let uri = self.uri();
        let (stop, stopped) = oneshot::channel::<()>();
        let payloads = server.payloads();
        let address = uri.clone();
        let task = tokio::spawn(async move {
            let stopped = async move { drop(stopped.await) };
            server.serve_with_shutdown(&address, stopped).await.unwrap();
        });
        let path = uri.strip_prefix("shm://").unwrap().to_owned();
        while !std::path::Path::new(&path).exists() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Served { uri, payloads, stop: Some(stop), task }
    }
}

/// Calls never wait for memory: a member of tests has enough from the start.
fn warm(pool: &Pool, capacity: Capacity) {
    let count = (capacity.member_quota / capacity.batch).min(3);
    let some: Vec<_> = (0..count).map(|_| pool.buffer(capacity.batch as usize).unwrap()).collect();
    drop(some);
}

pub(crate) struct Served {
    pub(crate) uri: String,
    pub(crate) payloads: Payloads,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Served {
    pub(crate) fn builder(&self, pool: Option<&Pool>) -> ChannelBuilder {
        let builder = Channel::builder(&*self.uri).ref_threshold(THRESHOLD);
        match pool {
            Some(pool) => builder.pool(pool.clone()),
            None => builder,
        }
    }

    pub(crate) async fn connect(&self, pool: Option<&Pool>) -> Channel {
        self.builder(pool).connect().await.unwrap()
    }

    /// Answers what is under way, and is gone.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        self.task.await.unwrap();
    }
}

pub(crate) fn server(pool: Option<&Pool>) -> Server {
    let server = Server::builder().ref_threshold(THRESHOLD);
    match pool {
        Some(pool) => server.pool(pool.clone()),
        None => server,
    }
}

/// Waits until `is_so`.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(30), "not within half a minute: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until nobody holds any of a member's memory.
pub(crate) async fn until_all_is_free(pool: &Pool) {
    until("all memory is free", || {
        pool.sweep();
        let usage = pool.usage();
        usage.free_bytes == usage.total_bytes && usage.limbo_count == 0
    })
    .await;
}
