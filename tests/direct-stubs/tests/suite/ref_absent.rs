//! Payloads don't depend on third parties: while the pool's coordinator is gone or stands still, or the owner of what is passed
//! on does, calls between two healthy ends succeed, their bytes asked for inline where they can't be mapped.
//!
//! The third party is this test binary again, in a process that is killed or stopped.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use rustix::process::Signal;
use tollfree::pool::{Address, Capacity, Config, Coordinator, Pool, WhenShort};
use tollfree::{Channel, PayloadPath, Payloads, Server};
use tollfree_direct_stubs::freight::Cargo;
use tollfree_direct_stubs::freight::freight_client::FreightClient;
use tollfree_direct_stubs::freight::freight_server::{Freight, FreightServer};
use tollfree_testkit::{Process, Role, TimeLimit, alone};
use tonic::{Request, Response, Status, Streaming};

const LEN: usize = 40_000;
/// Calls at once.
const WIDTH: usize = 12;
const CAPACITY: Capacity = Capacity { total: 128 << 20, member_quota: 16 << 20, batch: 4 << 20 };

fn pool_address(socket: &Path) -> Address {
    format!("shm://{}/pool.sock", socket.parent().unwrap().display()).parse().unwrap()
}

/// A member that has memory already.
fn join(socket: &Path) -> Pool {
    let config = Config {
        when_short: WhenShort::Wait(Duration::from_secs(20)),
        low_watermark: 0,
        high_watermark: u64::MAX,
        patience: Duration::from_secs(20),
        ..Config::default()
    };
    let pool = Pool::join(&pool_address(socket), config).unwrap();
    drop(pool.buffer(4 << 20).unwrap());
    pool
}

/// Says back what it gets; to an empty body, the last that was not.
#[derive(Clone, Default)]
struct Carrier(Arc<Mutex<Bytes>>);

#[tonic::async_trait]
impl Freight for Carrier {
    async fn unary(&self, request: Request<Cargo>) -> Result<Response<Cargo>, Status> {
        let mut cargo = request.into_inner();
        let mut last = self.0.lock().unwrap();
        if cargo.body.is_empty() {
            cargo.body = last.clone();
        } else {
            *last = cargo.body.clone();
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

    type BothStream = tokio_stream::Empty<Result<Cargo, Status>>;

    async fn both(&self, _: Request<Streaming<Cargo>>) -> Result<Response<Self::BothStream>, Status> {
        Err(Status::unimplemented("not asked for"))
    }
}

fn serve(socket: &Path, pool: &Pool) -> Payloads {
    let server = Server::builder().pool(pool.clone()).add_service(FreightServer::new(Carrier::default()));
    let (payloads, address) = (server.payloads(), format!("shm://{}", socket.display()));
    tokio::spawn(async move { server.serve(&address).await.unwrap() });
    payloads
}

/// A channel, once somebody listens.
async fn connect(socket: &Path, pool: &Pool) -> Channel {
    loop {
        let builder = Channel::builder(format!("shm://{}", socket.display())).pool(pool.clone());
        match builder.connect().await {
            Ok(channel) => return channel,
            Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    }
}

fn cargo(seed: usize) -> Cargo {
    Cargo { body: vec![seed as u8; LEN].into(), ..Cargo::default() }
}

#[test]
#[ignore = "not a test: what the processes do that the tests start"]
fn as_child() {
    let Some(role) = Role::of_this_process() else { return };
    let _limit = TimeLimit::seconds(100);
    if role.name == "coordinator" {
        let _coordinator = Coordinator::start(&pool_address(&role.socket), CAPACITY).unwrap();
        role.ready();
        std::thread::sleep(Duration::from_secs(100));
        return;
    }
    let pool = join(&role.socket);
    let runtime = tokio::uncounted::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let channel = connect(&role.socket, &pool).await;
        // In its own memory from the start, so that the server is given a ref to that.
        let body = Bytes::from(pool.copy_from_slice(&[7; LEN]).unwrap());
        let kept = Cargo { body: body.clone(), ..Cargo::default() };
        let mut client = FreightClient::new(channel.clone());
        // Until the server has mapped it, rather than been given the bytes.
        loop {
            let echo = client.unary(kept.clone()).await.unwrap().into_inner();
            if echo.body.as_ptr() == body.as_ptr() {
                break;
            }
        }
        role.ready();
        std::future::pending::<()>().await;
    });
}

/// Calls between two ends that have not exchanged a ref before the coordinator got this signal.
fn calls_without_a_coordinator(signal: Signal, round_count: usize, path: PayloadPath) {
    let _limit = TimeLimit::seconds(120);
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("freight.sock");
    let coordinator = Process::start_ready("ref_absent::coordinator", &socket, "");
    let (here, there) = (join(&socket), join(&socket));
    let runtime =
        tokio::uncounted::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let served = serve(&socket, &there);
        let channel = connect(&socket, &here).await;
        coordinator.signal(signal);
        let each = (0..WIDTH).map(|lane| {
            let mut client = FreightClient::new(channel.clone());
            tokio::spawn(async move {
                for round in 0..round_count {
                    let sent = cargo(lane + WIDTH * round);
                    let echo = client.unary(sent.clone()).await.expect("no call depends on a third party");
                    assert!(echo.into_inner() == sent, "other bytes than were sent");
                }
            })
        });
        for lane in each.collect::<Vec<_>>() {
            lane.await.unwrap();
        }
        let (sent, got) = (channel.payloads().counts(), served.counts());
        assert!(sent.sent_by_ref > 0 && got.received_inline > 0, "nothing was asked for: {sent:?} {got:?}");
        assert_eq!((got.received_by_ref, got.refused_refs + sent.refused_refs), (0, 0), "{got:?} {sent:?}");
        let now = || channel.path().endpoints[0].payloads;
        let is_told = async {
            while now() != path {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let told = tokio::time::timeout(Duration::from_secs(30), is_told).await;
        assert!(told.is_ok(), "the path is said to be {:?}", now());
    });
    runtime.shutdown_background();
}

#[test]
fn calls_succeed_while_the_pools_coordinator_is_gone() {
    alone!();
    calls_without_a_coordinator(Signal::KILL, 30, PayloadPath::NoCoordinator);
}

#[test]
fn calls_succeed_while_the_pools_coordinator_stands_still() {
    alone!();
    calls_without_a_coordinator(Signal::STOP, 3, PayloadPath::AskedFor);
}

#[test]
fn a_third_that_stands_still_breaks_no_call_between_two_others() {
    alone!();
    let _limit = TimeLimit::seconds(120);
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("freight.sock");
    let _coordinator = Process::start_ready("ref_absent::coordinator", &socket, "");
    let there = join(&socket);
    let runtime =
        tokio::uncounted::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        serve(&socket, &there);
        let third = tokio::task::spawn_blocking({
            let socket = socket.clone();
            move || Process::start_ready("ref_absent::third", &socket, "")
        });
        let third = third.await.unwrap();
        third.signal(Signal::STOP);
        let here = join(&socket);
        let channel = connect(&socket, &here).await;
        for _ in 0..3 {
            // What the third shared with the server, which this side has never mapped.
            let echo = FreightClient::new(channel.clone()).unary(Cargo::default()).await.unwrap();
            let body = echo.into_inner().body;
            assert!(body.len() == LEN && body.iter().all(|byte| *byte == 7));
        }
        let counts = channel.payloads().counts();
        assert_eq!((counts.received_by_ref, counts.received_inline), (0, 3), "{counts:?}");
    });
    runtime.shutdown_background();
}
