//! Calls of business processes to elsewhere.

use std::sync::atomic::Ordering;

use tollfree::Channel;
use tollfree_stubs::probe::Ask;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tollfree_stubs::probe::probe_server::ProbeServer;
use tonic::{Code, Request};

use crate::identity::callers;
use crate::lab::{Lab, PATIENCE};
use crate::probe::Probe;

async fn via(lab: &Lab, target: &str) -> ProbeClient<Channel> {
    ProbeClient::new(Channel::via(lab.business(), target).await.unwrap())
}

#[tokio::test]
async fn a_group_calls_itself_through_the_shepherd() {
    let lab = Lab::start("").await;
    let attached = lab.attach("default").await;
    let mut client = via(&lab, "group:default").await;
    let mut request = Request::new(Ask { body: vec![1; 100_000], ..Ask::default() });
    request.metadata_mut().insert("tollfree-client-subject", "CN=forged".parse().unwrap());
    let answer = client.unary(request).await.unwrap().into_inner();
    assert_eq!(answer.body.len(), 100_000);
    let [caller] = &callers(&answer.headers)[..] else { panic!("{:?}", answer.headers) };
    let business = format!("Business {{ pid: {}, uid:", std::process::id());
    assert!(caller.contains(&business) && caller.contains("subject: None"), "{caller}");
    let asks = futures_util::stream::iter((0..20).map(|_| Ask { body: vec![1; 10], ..Ask::default() }));
    assert_eq!(client.up(asks).await.unwrap().into_inner().seen_count, 20);
    attached.stop().await;
    let status = client.unary(Ask::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
}

#[tokio::test]
async fn nobody_calls_where_the_config_does_not_allow_it() {
    let lab = Lab::start("[groups.default]\n[groups.other]\nusers = [4000000000]\n").await;
    let _attached = lab.attach("default").await;
    for target in ["http://127.0.0.1:1", "group:other", "nonsense"] {
        let status = via(&lab, target).await.unary(Ask::default()).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{target}: {status}");
        assert!(status.message().contains(target), "{target}: {status}");
    }
    assert_eq!(lab.refused("target").await, 3.0);
}

#[tokio::test]
async fn allowed_targets_are_called_by_http2() {
    let probe = Probe::default();
    let address = tollfree_testkit::free_address();
    let server = tollfree::Server::builder().add_service(ProbeServer::new(probe.clone()));
    let served = format!("http://{address}");
    tokio::spawn(async move { server.serve(&*served).await });
    let lab = Lab::start(&format!("[groups.default]\nvia = [\"http://{address}\"]\n")).await;
    let mut client = via(&lab, &format!("http://{address}")).await;
    let begun = tokio::time::Instant::now();
    let answer = loop {
        let mut request = Request::new(Ask { body: vec![5; 70_000], ..Ask::default() });
        request.set_timeout(PATIENCE);
        match client.unary(request).await {
            Ok(answer) => break answer.into_inner(),
            // The server doesn't listen yet.
            Err(status) => {
                assert!(status.code() == Code::Unavailable && begun.elapsed() < PATIENCE, "{status}")
            }
        }
    };
    assert_eq!((answer.body.len(), probe.begun.load(Ordering::SeqCst)), (70_000, 1));
    assert!(!answer.headers.iter().any(|line| line.starts_with("tollfree-")), "{:?}", answer.headers);
}
