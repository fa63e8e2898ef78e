//! A process that forks while it has payloads in a pool: the child takes nothing from its parent, and can call by itself.

use std::time::Duration;

use bytes::Bytes;
use tollfree::pool::{Address, Capacity, Config, Pool};
use tollfree::{Channel, PayloadPath};
use tollfree_direct_stubs::freight::Cargo;
use tollfree_direct_stubs::freight::freight_client::FreightClient;
use tollfree_testkit::{Process, Role, TimeLimit, alone, fork};
use tonic::{Request, Response, Status, Streaming};

const LEN: usize = 100_000;

/// Says everything back.
struct Parrot;

type Nothing = tokio_stream::Empty<Result<Cargo, Status>>;

#[tonic::async_trait]
impl tollfree_direct_stubs::freight::freight_server::Freight for Parrot {
    async fn unary(&self, request: Request<Cargo>) -> Result<Response<Cargo>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    type DownStream = Nothing;

    async fn down(&self, _: Request<Cargo>) -> Result<Response<Nothing>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    async fn up(&self, _: Request<Streaming<Cargo>>) -> Result<Response<Cargo>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    type BothStream = Nothing;

    async fn both(&self, _: Request<Streaming<Cargo>>) -> Result<Response<Nothing>, Status> {
        Err(Status::unimplemented("not asked for"))
    }
}

fn runtime() -> tokio::uncounted::Runtime {
    tokio::uncounted::Builder::new_current_thread().enable_all().build().unwrap()
}

fn pool_address(role: &std::path::Path) -> Address {
    format!("shm://{}/pool.sock", role.parent().unwrap().display()).parse().unwrap()
}

#[test]
#[ignore = "not a test: the server, in a process of its own"]
fn as_child() {
    let Some(role) = Role::of_this_process() else { return };
    let _limit = TimeLimit::seconds(100);
    let pool = Pool::create(&pool_address(&role.socket), Capacity::default(), Config::default()).unwrap();
    let parrot = tollfree_direct_stubs::freight::freight_server::FreightServer::new(Parrot);
    let server = tollfree::Server::builder().pool(pool).add_service(parrot);
    role.ready();
    runtime().block_on(server.serve(&format!("shm://{}", role.socket.display()))).unwrap();
}

#[test]
fn a_forked_child_takes_no_payloads_from_its_parent_and_calls_by_itself() {
    alone!();
    let _limit = TimeLimit::seconds(100);
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("freight.sock");
    let _server = Process::start_ready("ref_forks::server", &socket, "");
    while !socket.exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let uri = format!("shm://{}", socket.display());
    let pool = Pool::join(&pool_address(&socket), Config::default()).unwrap();
    drop(pool.buffer(1).unwrap());
    let parent = runtime();
    let channel = parent.block_on(Channel::builder(&*uri).pool(pool.clone()).connect()).unwrap();
    let body: Bytes = pool.copy_from_slice(&[7; LEN]).unwrap().into();
    let echo = parent.block_on(async {
        let cargo = Cargo { body: body.clone(), ..Cargo::default() };
        FreightClient::new(channel.clone()).unary(cargo).await.unwrap().into_inner().body
    });
    assert_eq!(echo.as_ptr(), body.as_ptr());

    let (in_channel, in_pool, held) = (channel.clone(), pool.clone(), echo.clone());
    let child = fork(move || {
        assert!(in_pool.is_inherited());
        let own = runtime();
        // Its parent's session is not for it, nor its parent's membership: the channel makes a session of its own, and payloads
        // go inline.
        let echo = own.block_on(async {
            let cargo = Cargo { body: vec![2; LEN].into(), ..Cargo::default() };
            FreightClient::new(in_channel.clone()).unary(cargo).await.unwrap().into_inner().body
        });
        assert!(echo.len() == LEN && echo.iter().all(|byte| *byte == 2));
        assert_eq!(in_channel.path().endpoints[0].payloads, PayloadPath::NoPool);
        let counts = in_channel.payloads().counts();
        assert_eq!((counts.sent_by_ref, counts.received_inline), (1, 1));
        drop((held, in_channel, in_pool));
        0
    });
    assert_eq!(child.wait(Duration::from_secs(60)), 0);
    let again = parent.block_on(async {
        let cargo = Cargo { body: echo.clone(), ..Cargo::default() };
        FreightClient::new(channel.clone()).unary(cargo).await.unwrap().into_inner().body
    });
    assert!(again.as_ptr() == body.as_ptr() && again.iter().all(|byte| *byte == 7));
    let usage = pool.usage();
    assert!(usage.free_bytes < usage.total_bytes, "the child has given nothing of it back");
    drop((body, echo, again));
    while pool.usage().free_bytes < pool.usage().total_bytes {
        pool.sweep();
        std::thread::sleep(Duration::from_millis(1));
    }
}
