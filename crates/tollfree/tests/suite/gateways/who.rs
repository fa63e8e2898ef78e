//! What a gateway knows of those that attach, and where calls go.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use tollfree::Channel;
use tollfree::gateway::{Accepted, Process, ViaTarget};
use tonic::Status;
use tonic::body::Body;
use tonic::transport::server::UdsConnectInfo;

use super::{Place, client, in_time, next_attached, server, start_server};
use crate::stubs::probe::Ask;
use crate::stubs::probe::probe_client::ProbeClient;

#[tokio::test]
async fn backend_connections_of_a_server_are_known_as_one() {
    let place = Place::new();
    let mut backend_listener = place.backend_listener().await;
    let children = ["orders", "stock"].map(|group| (group, start_server(&place, group)));
    let mut known: HashMap<Process, (String, BTreeSet<u32>)> = HashMap::new();
    let mut all = Vec::new();
    for _ in 0..4 {
        let attached = next_attached(&mut backend_listener).await;
        assert_eq!(attached.services(), ["tollfree.probe.v1.Probe"]);
        let (group, backend_connections) = known.entry(attached.process()).or_default();
        assert!(group.is_empty() || group == attached.group(), "{group}");
        attached.group().clone_into(group);
        assert!(backend_connections.insert(attached.backend_connection()), "{attached:?} comes once");
        all.push(attached);
    }
    for (group, child) in &children {
        let pid = child.pid().as_raw_nonzero().get();
        let found: Vec<_> = known.iter().filter(|(process, _)| process.identity.pid == pid).collect();
        let [(_, (said, backend_connections))] = found[..] else { panic!("{known:?}") };
        assert_eq!((said.as_str(), backend_connections), (*group, &BTreeSet::from([0, 1])));
    }
    for attached in &all {
        let path = attached.channel().path().to_string();
        let answer = in_time("a call", client(attached).unary(Ask::default())).await.unwrap().into_inner();
        assert_eq!(answer.peer_pid, std::process::id(), "the caller is the gateway");
        assert!(path.contains("has attached to this process") && path.contains(attached.group()), "{path}");
    }
}

#[tokio::test]
async fn two_servers_of_a_process_are_two() {
    let place = Place::new();
    let mut backend_listener = place.backend_listener().await;
    let serving =
        [server(), server()].map(|(server, _)| tokio::spawn(server.attach(place.uri()).into_future()));
    let (one, other) =
        (next_attached(&mut backend_listener).await, next_attached(&mut backend_listener).await);
    assert_eq!(one.process().identity, other.process().identity);
    assert_ne!(one.process(), other.process());
    assert_eq!((one.group(), other.group()), ("default", "default"));
    serving.iter().for_each(tokio::task::JoinHandle::abort);
}

/// The target is the session's; a request knows it, and who has made it, from no header.
#[tokio::test]
async fn calls_via_a_gateway_bring_their_target_and_caller() {
    let place = Place::new();
    let mut backend_listener = place.backend_listener().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let seen_there = seen.clone();
    let egress = tower::service_fn(move |request: http::Request<Body>| {
        let target = request.extensions().get::<ViaTarget>().cloned();
        let caller = request.extensions().get::<UdsConnectInfo>().and_then(|info| info.peer_cred?.pid());
        let path = request.uri().path().to_owned();
        seen_there.lock().unwrap().push((target.unwrap().0.to_string(), caller.unwrap(), path));
        async { Ok::<_, Status>(Status::permission_denied("not there").into_http::<Body>()) }
    });
    let opening = tokio::spawn(async move {
        while let Some(Accepted::Session(session)) = backend_listener.accept().await {
            assert_eq!(session.target(), "https://inventory:443");
            tokio::spawn(session.serve(egress.clone(), std::future::pending()));
        }
    });
    let channel = in_time("a session", Channel::via(place.uri(), "https://inventory:443")).await.unwrap();
    let path = channel.path().to_string();
    assert!(path.contains("calls https://inventory:443 via the gateway at shm:///"), "{path}");
    let refused = in_time("a call", ProbeClient::new(channel).unary(Ask::default())).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (tonic::Code::PermissionDenied, "not there"));
    let pid = std::process::id() as i32;
    let method = "/tollfree.probe.v1.Probe/Unary".to_owned();
    assert_eq!(*seen.lock().unwrap(), [("https://inventory:443".to_owned(), pid, method)]);
    opening.abort();
}
