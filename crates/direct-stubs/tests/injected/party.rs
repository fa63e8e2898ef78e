//! What a coordinator, a server and a client of the pool do, whichever of them a call fails in: whatever ends with an error
//! is tried again until it works.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tollfree::pool::{Address, Capacity, Config, Coordinator, Pool};
use tollfree::{Channel, Server};
use tollfree_direct_stubs::freight::Cargo;
use tollfree_direct_stubs::freight::freight_client::FreightClient;
use tollfree_direct_stubs::freight::freight_server::{Freight, FreightServer};
use tollfree_testkit::{Operation, Role, under_injection};
use tonic::{Code, Request, Response, Status, Streaming};

const LEN: usize = 200_000;
/// How long anything may take that is sure to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// More than any call takes; one that ends by its deadline hung.
const CALL_LIMIT: Duration = Duration::from_secs(45);
const CAPACITY: Capacity = Capacity { total: 64 << 20, member_quota: 16 << 20, batch: 1 << 20 };

fn pool_address(directory: &Path) -> Address {
    format!("shm://{}/pool.sock", directory.display()).parse().unwrap()
}

/// Tries again what ended with an error.
fn again<T, E: Display>(what: &str, mut act: impl FnMut() -> Result<T, E>) -> T {
    let began = Instant::now();
    loop {
        match act() {
            Ok(done) => return done,
            Err(error) => {
                let text = error.to_string();
                assert!(text.len() > 20, "{what}: not in words: {text:?}");
                assert!(began.elapsed() < PATIENCE, "{what}: {text}");
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn coordinate(directory: &Path) -> Coordinator {
    again("a coordinator", || Coordinator::start(&pool_address(directory), CAPACITY))
}

pub(crate) fn join(directory: &Path) -> Pool {
    again("a member", || Pool::join(&pool_address(directory), Config::default()))
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    again("a runtime", || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build())
}

/// Says back what it gets.
struct Carrier;

#[tonic::async_trait]
impl Freight for Carrier {
    async fn unary(&self, request: Request<Cargo>) -> Result<Response<Cargo>, Status> {
        Ok(Response::new(request.into_inner()))
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

/// Serves for as long as its task lives.
pub(crate) async fn serve(directory: PathBuf, pool: Pool) {
    let began = Instant::now();
    loop {
        let server = Server::builder().pool(pool.clone()).add_service(FreightServer::new(Carrier));
        let error = server.serve(&format!("shm://{}/freight.sock", directory.display())).await;
        let error = error.expect_err("nobody tells it to stop").to_string();
        assert!(began.elapsed() < PATIENCE, "a server: {error}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Connects and calls until three calls have succeeded, and then until payloads go by ref both ways.
pub(crate) async fn call(directory: &Path, pool: &Pool) {
    let began = Instant::now();
    let address = format!("shm://{}/freight.sock", directory.display());
    let channel = loop {
        match Channel::builder(address.clone()).pool(pool.clone()).connect().await {
            Ok(channel) => break channel,
            Err(error) => assert!(began.elapsed() < PATIENCE, "a channel: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    };
    let mut client = FreightClient::new(channel);
    let (mut good_count, mut number) = (0, 0);
    loop {
        number += 1;
        let body: bytes::Bytes = vec![number as u8; LEN].into();
        let mut request = Request::new(Cargo { body: body.clone(), number, ..Cargo::default() });
        request.set_timeout(CALL_LIMIT);
        match client.unary(request).await {
            Ok(echo) => {
                let echo = echo.into_inner();
                assert!(echo.body == body && echo.number == number, "other bytes than were sent");
                good_count += 1;
                // What is the pool's own came as a ref that the server had mapped, or as one to the server's memory.
                if good_count > 3 && pool.ref_of(&echo.body).is_some() {
                    return;
                }
            }
            Err(status) => {
                let is_fitting = matches!(status.code(), Code::Unavailable | Code::ResourceExhausted);
                assert!(is_fitting && status.message().len() > 20, "a call: {status:?}");
            }
        }
        assert!(began.elapsed() < 2 * PATIENCE, "{good_count} good calls, and none by ref");
        if good_count > 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The second of three calls fails, and no other.
fn probe() {
    let sockets = [(); 3].map(|()| std::os::unix::net::UnixDatagram::unbound());
    let errors = sockets.map(|socket| socket.err().and_then(|error| error.raw_os_error()));
    assert_eq!(errors, [None, Some(Errno::MFILE.raw_os_error()), None], "what was to fail didn't");
}

/// A process in which a call fails.
pub(crate) fn run(role: &Role) {
    let directory = role.socket.parent().unwrap();
    let operation = Operation::ALL[role.detail.parse::<usize>().unwrap()];
    // Once in a process tokio makes a pair of sockets for signals, and panics where it can't: before that is watched.
    drop(runtime());
    under_injection(&directory.join("thread"), operation, || match &*role.name {
        "Probe" => probe(),
        "Coordinator" => {
            let coordinator = coordinate(directory);
            while coordinator.is_running() {
                std::thread::sleep(Duration::from_millis(5));
            }
            panic!("the coordinator ended by itself");
        }
        "Server" => {
            let (runtime, pool) = (runtime(), join(directory));
            runtime.block_on(serve(directory.to_owned(), pool));
        }
        _ => {
            let (runtime, pool) = (runtime(), join(directory));
            runtime.block_on(call(directory, &pool));
        }
    });
}
