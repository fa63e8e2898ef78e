//! tonic's own health service and client, unmodified, over shared memory.

use std::time::Duration;

use tollfree::{Channel, Server};
use tonic::Code;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

fn request(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.into() }
}

#[tokio::test]
async fn check_and_watch_work_unmodified() {
    let directory = tempfile::tempdir().unwrap();
    let uri = format!("shm://{}/health.sock", directory.path().display());
    let (reporter, service) = tonic_health::server::health_reporter();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = tokio::spawn({
        let uri = uri.clone();
        async move {
            let signal = async { drop(stopped.await) };
            Server::builder().add_service(service).serve_with_shutdown(&uri, signal).await
        }
    });
    while !directory.path().join("health.sock").exists() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let channel = Channel::connect(uri).await.unwrap();
    assert!(channel.path().to_string().starts_with("shared memory with process"), "{}", channel.path());
    let mut client = HealthClient::new(channel);
    let answer = client.check(request("")).await.unwrap();
    assert_eq!(answer.into_inner().status, 1);
    let missing = client.check(request("no such service")).await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);

    reporter.set_service_status("db", ServingStatus::NotServing).await;
    let mut watch = client.watch(request("db")).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status, 2);
    reporter.set_service_status("db", ServingStatus::Serving).await;
    assert_eq!(watch.message().await.unwrap().unwrap().status, 1);
    drop(watch);

    stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(5), server).await.expect("it drains").unwrap().unwrap();
    let gone = client.check(request("")).await.unwrap_err();
    assert_eq!(gone.code(), Code::Unavailable, "{gone}");
    assert!(gone.message().contains("health.sock"), "{gone}");
}
