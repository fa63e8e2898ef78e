//! A client or a server that is killed while payloads go by ref: the survivor's memory is all free again, nothing that it
//! holds changes, and the next peer is served.
//!
//! The process to be killed is this test binary again. It arms a point ([`tollfree_kill_points`]) and calls, or serves, until
//! it is gone. A point that was never reached fails the test.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio_stream::StreamExt;
use tollfree::pool::{Address, Capacity, Config, Pool, WhenShort};
use tollfree::{Channel, Server};
use tollfree_direct_stubs::freight::Cargo;
use tollfree_direct_stubs::freight::freight_client::FreightClient;
use tollfree_direct_stubs::freight::freight_server::{Freight, FreightServer};
use tollfree_kill_points::{Point, arm};
use tollfree_testkit::{Process, Role, TimeLimit, alone};
use tonic::{Request, Response, Status, Streaming};

const LEN: usize = 100_000;
/// Where a process is killed with refs on their way: theirs, or the peer's.
const POINTS: [Point; 9] = [
    Point::MidRecord,
    Point::RecordStaged,
    Point::Publishing,
    Point::Published,
    Point::RecordSeen,
    Point::RecordHandled,
    Point::RecordConsumed,
    Point::NoticeStaged,
    Point::SegmentedTaken,
];

fn join(socket: &Path) -> Pool {
    let config = Config {
        when_short: WhenShort::Wait(Duration::from_secs(20)),
        low_watermark: 0,
        high_watermark: u64::MAX,
        reader_limit: None,
        patience: Duration::from_secs(20),
    };
    let address: Address = format!("shm://{}/pool.sock", socket.parent().unwrap().display()).parse().unwrap();
    if std::env::var_os("TOLLFREE_TEST_ROLE").is_some() {
        return Pool::join(&address, config).unwrap();
    }
    let capacity = Capacity { total: 256 << 20, member_quota: 32 << 20, batch: 8 << 20 };
    Pool::create(&address, capacity, config).unwrap()
}

/// Says everything back, and keeps the last few bodies.
#[derive(Clone, Default)]
struct Carrier {
    served_count: Arc<AtomicUsize>,
    kept: Arc<Mutex<Vec<Bytes>>>,
}

#[tonic::async_trait]
impl Freight for Carrier {
    async fn unary(&self, request: Request<Cargo>) -> Result<Response<Cargo>, Status> {
        let cargo = request.into_inner();
        self.served_count.fetch_add(1, Ordering::SeqCst);
        let mut kept = self.kept.lock().unwrap();
        kept.push(cargo.body.clone());
        if kept.len() > 5 {
            kept.remove(0);
        }
        Ok(Response::new(cargo))
    }

    type DownStream = tokio_stream::Empty<Result<Cargo, Status>>;

    async fn down(&self, _: Request<Cargo>) -> Result<Response<Self::DownStream>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    async fn up(&self, _: Request<Streaming<Cargo>>) -> Result<Response<Cargo>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    type BothStream = std::pin::Pin<Box<dyn tokio_stream::Stream<Item = Result<Cargo, Status>> + Send>>;

    async fn both(&self, request: Request<Streaming<Cargo>>) -> Result<Response<Self::BothStream>, Status> {
        Ok(Response::new(Box::pin(request.into_inner().map(|cargo| cargo))))
    }
}

fn cargo(seed: u8) -> Cargo {
    Cargo { body: vec![seed; LEN].into(), raw: vec![seed; LEN], ..Cargo::default() }
}

/// Calls of several kinds; `false` when the server was gone.
async fn live(channel: &Channel, seed: u8) -> bool {
    let mut client = FreightClient::new(channel.clone());
    for _ in 0..3 {
        match client.unary(cargo(seed)).await {
            Ok(echo) => assert!(echo.into_inner() == cargo(seed), "other bytes than were sent"),
            Err(status) => return gone(&status),
        }
    }
    let cargos = tokio_stream::iter((0..5).map(move |_| cargo(seed)));
    match client.both(cargos).await {
        Ok(echoes) => {
            let mut echoes = echoes.into_inner();
            loop {
                match echoes.message().await {
                    Ok(Some(echo)) => assert!(echo == cargo(seed)),
                    Ok(None) => return true,
                    Err(status) => return gone(&status),
                }
            }
        }
        Err(status) => gone(&status),
    }
}

fn gone(status: &Status) -> bool {
    assert_eq!(status.code(), tonic::Code::Unavailable, "{status}");
    false
}

async fn serve(socket: &Path, pool: Pool, carrier: Carrier) {
    let server = Server::builder().pool(pool).add_service(FreightServer::new(carrier));
    server.serve(&format!("shm://{}", socket.display())).await.unwrap();
}

async fn connect(socket: &Path, pool: &Pool) -> Option<Channel> {
    let builder = Channel::builder(format!("shm://{}", socket.display())).pool(pool.clone());
    builder.connect().await.ok()
}

#[test]
#[ignore = "not a test: what the processes do that the tests start"]
fn as_child() {
    let Some(role) = Role::of_this_process() else { return };
    let _limit = TimeLimit::seconds(100);
    let (idx, nth) = role.detail.split_once(' ').unwrap();
    let point = POINTS[idx.parse::<usize>().unwrap()];
    let pool = join(&role.socket);
    let runtime = tokio::uncounted::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let armed = nth.parse().unwrap();
        match &*role.name {
            "server" => {
                let served = Carrier::default();
                let count = served.served_count.clone();
                tokio::spawn(async move {
                    // Not before refs are on their way.
                    while count.load(Ordering::SeqCst) < 2 {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    arm(point, armed);
                });
                role.ready();
                serve(&role.socket, pool, served).await;
            }
            _ => {
                let channel = connect(&role.socket, &pool).await.unwrap();
                assert!(live(&channel, 1).await);
                role.ready();
                arm(point, armed);
                while live(&channel, 2).await {}
            }
        }
    });
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(30), "not within half a minute: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn is_free(pool: &Pool) -> bool {
    pool.sweep();
    let usage = pool.usage();
    usage.free_bytes == usage.total_bytes && usage.limbo_count == 0
}

fn killed(mut process: Process, point: Point) {
    let ended = process.wait_end(Duration::from_secs(30));
    let signal = ended.and_then(|ended| ended.signal());
    assert_eq!(signal, Some(rustix::process::Signal::KILL.as_raw()), "{point:?} was not reached");
}

#[test]
fn a_client_that_is_killed_with_refs_on_their_way_leaves_nothing_at_the_server() {
    alone!();
    let _limit = TimeLimit::seconds(300);
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("freight.sock");
    let pool = join(&socket);
    let carrier = Carrier::default();
    let runtime =
        tokio::uncounted::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = runtime.spawn({
        let (socket, pool, carrier) = (socket.clone(), pool.clone(), carrier.clone());
        async move { serve(&socket, pool, carrier).await }
    });
    until("the server listens", || socket.exists());
    for (idx, point) in POINTS.into_iter().enumerate() {
        for nth in [1, 7] {
            killed(Process::start("ref_kills::client", &socket, &format!("{idx} {nth}")), point);
            // What it sent is still here, no matter which member paid for it.
            let kept = std::mem::take(&mut *carrier.kept.lock().unwrap());
            assert!(
                !kept.is_empty() && kept.iter().all(|body| body.iter().all(|byte| *byte == 1 || *byte == 2))
            );
            drop(kept);
            until("the server's memory is free", || is_free(&pool));
            until("nothing of the dead client is mapped", || pool.usage().import_count == 0);
        }
    }
    server.abort();
}

#[test]
fn a_server_that_is_killed_with_refs_on_their_way_leaves_nothing_at_the_client() {
    alone!();
    let _limit = TimeLimit::seconds(300);
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("freight.sock");
    let pool = join(&socket);
    let runtime =
        tokio::uncounted::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for (idx, point) in POINTS.into_iter().enumerate() {
        for nth in [1, 7] {
            let process = Process::start("ref_kills::server", &socket, &format!("{idx} {nth}"));
            let kept = runtime.block_on(async {
                let channel = loop {
                    match connect(&socket, &pool).await {
                        Some(channel) => break channel,
                        None => tokio::time::sleep(Duration::from_millis(2)).await,
                    }
                };
                let mut kept = Vec::new();
                loop {
                    // The raw part comes back in the server's memory: as bytes of it, not as a copy.
                    if let Ok(echo) = FreightClient::new(channel.clone()).unary(cargo(3)).await {
                        kept = vec![echo.into_inner().body];
                    }
                    if !live(&channel, 3).await {
                        return kept;
                    }
                }
            });
            killed(process, point);
            assert!(!kept.is_empty() && kept.iter().all(|body| body.iter().all(|byte| *byte == 3)));
            drop(kept);
            until("the client's memory is free", || is_free(&pool));
            until("nothing of the dead server is mapped", || pool.usage().import_count == 0);
        }
    }
}
