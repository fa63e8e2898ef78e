//! A gateway and backends in processes of their own, under load from outside: restarted, killed and stopped.

mod containers;
mod descriptors;
mod devices;
mod direct_connections;
mod hangs;
mod idle;
mod keeper;
mod kills;
mod load;
mod placed;
mod places;
mod restarts;
mod takeovers;

use tokio::signal::unix::{SignalKind, signal};
use tollfree_gateway::{Config, Gateway};
use tollfree_kill_points::Point;
use tollfree_stubs::probe::Ask;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tollfree_stubs::probe::probe_server::ProbeServer;
use tollfree_testkit::Role;

use crate::world::{probe, taker};

/// Not a test: a process that another test has started.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by other tests, as a process to be stopped and killed"]
async fn as_child() {
    let role = Role::of_this_process().expect("set by the test that starts this");
    let mut detail = role.detail.split('|');
    let said = detail.next().unwrap_or_default();
    if let (Some(name), Some(nth)) = (detail.next(), detail.next()) {
        let known = Point::ALL.iter().find(|(point, _)| format!("{point:?}") == name);
        tollfree_kill_points::arm(known.unwrap().0, nth.parse().unwrap());
    }
    let mut terminate = signal(SignalKind::terminate()).unwrap();
    let stop = async move { _ = terminate.recv().await };
    match role.name.as_str() {
        "gateway" => {
            let text = std::fs::read_to_string(said).unwrap();
            let gateway = Gateway::bind(Config::from_toml(&text).unwrap()).await.unwrap();
            role.ready();
            gateway.run(stop).await;
        }
        "backends" => {
            let server = tollfree::Server::builder().add_service(ProbeServer::new(probe::Probe::default()));
            let uri = format!("shm://{}", role.socket.display());
            server.attach(uri).group(said).until(stop).await.unwrap();
        }
        "taker" => {
            let service = tollfree_direct_stubs::objects::probe::probe_server::ProbeServer::new(taker::Taker);
            let server = tollfree::Server::builder().add_service(service);
            let uri = format!("shm://{}", role.socket.display());
            server.attach(uri).group(said).backend_connections(1).until(stop).await.unwrap();
        }
        "keeper" => {
            let (service, payloads) = (keeper::Keeper::default(), tollfree::Server::builder());
            let server = payloads.add_service(service.serve());
            service.counts(server.payloads());
            let uri = format!("shm://{}", role.socket.display());
            server.attach(uri).group(said).until(stop).await.unwrap();
        }
        "intruder" => {
            let called = match tollfree::Channel::connect(said).await {
                Ok(channel) => ProbeClient::new(channel).unary(Ask::default()).await.map(drop),
                Err(_) => return,
            };
            called.expect_err("the socket is there for another process");
        }
        other => panic!("no role {other}"),
    }
}
