//! What the processes do: a coordinator, a server that says back what it gets, a client that connects and calls when it is told to.

use std::fmt::Display;
use std::io::BufRead;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use rustix::process::{Signal, set_parent_process_death_signal};
use tollfree::pool::{Address, Capacity, Config, Coordinator, Pool, WhenShort};
use tollfree::{Channel, Server};
use tollfree_direct_stubs::freight::Cargo;
use tollfree_direct_stubs::freight::freight_client::FreightClient;
use tollfree_direct_stubs::freight::freight_server::{Freight, FreightServer};
use tollfree_testkit::Role;
use tonic::{Request, Response, Status, Streaming};

/// What a client says before what came of a call.
pub(crate) const OUTCOME: &str = "outcome: ";
pub(crate) const RIGHT: &str = "right";

const CAPACITY: Capacity = Capacity { total: 256 << 20, member_quota: 64 << 20, batch: 4 << 20 };
const BODY_LEN: usize = 200_000;
const CALL_COUNT: u8 = 3;
const CALL_LIMIT: Duration = Duration::from_secs(20);

fn begin() {
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("process {}: {panic}", std::process::id());
        std::process::exit(101);
    }));
}

fn pool_address(socket: &Path) -> Address {
    format!("shm://{}", socket.with_file_name("p.sock").display()).parse().unwrap()
}

fn config() -> Config {
    // A loaded machine is slow, and nothing here is about that.
    let (when_short, patience) = (WhenShort::Wait(CALL_LIMIT), CALL_LIMIT);
    Config { when_short, patience, ..Config::default() }
}

pub(crate) fn coordinate(role: &Role) {
    begin();
    let coordinator = Coordinator::start(&pool_address(&role.socket), CAPACITY).unwrap();
    role.ready();
    while coordinator.is_running() {
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("the coordinator ended by itself");
}

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

fn runtime() -> tokio::uncounted::Runtime {
    tokio::uncounted::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

pub(crate) fn serve(role: &Role) {
    begin();
    let pool = Pool::join(&pool_address(&role.socket), config()).unwrap();
    let server = Server::builder().pool(pool).add_service(FreightServer::new(Carrier));
    role.ready();
    runtime().block_on(server.serve(format!("shm://{}", role.socket.display()))).unwrap();
    panic!("the server ended by itself");
}

pub(crate) fn call(role: &Role) {
    begin();
    let runtime = runtime();
    for line in std::io::stdin().lock().lines() {
        line.unwrap();
        match runtime.block_on(connect_and_call(&role.socket)) {
            Ok(()) => println!("{OUTCOME}{RIGHT}"),
            Err(words) => println!("{OUTCOME}{}", words.replace('\n', " ")),
        }
    }
}

async fn connect_and_call(socket: &Path) -> Result<(), String> {
    let (address, config) = (pool_address(socket), config());
    let joined = tokio::task::spawn_blocking(move || Pool::join(&address, config)).await.unwrap();
    let pool = joined.map_err(|error| said("join", &error))?;
    let builder = Channel::builder(format!("shm://{}", socket.display())).pool(pool.clone());
    let channel = builder.connect().await.map_err(|error| said("connect", &error))?;
    let mut client = FreightClient::new(channel);
    for number in 1..=CALL_COUNT {
        let mut buffer = pool.buffer_async(BODY_LEN).await.map_err(|error| said("buffer", &error))?;
        buffer.resize_zeroed(BODY_LEN).fill(number);
        let body: Bytes = buffer.freeze().map_err(|error| said("freeze", &error))?.into();
        let mut request = Request::new(Cargo { body: body.clone(), ..Cargo::default() });
        request.set_timeout(CALL_LIMIT);
        // A deadline that isn't kept is a call that hangs.
        let reply = tokio::time::timeout(3 * CALL_LIMIT, client.unary(request)).await.expect("a call hangs");
        let reply = reply.map_err(|status| said("call", &status))?.into_inner();
        assert!(reply.body == body, "other bytes came back");
    }
    Ok(())
}

fn said(what: &str, error: &dyn Display) -> String {
    format!("{what}: {error}")
}
