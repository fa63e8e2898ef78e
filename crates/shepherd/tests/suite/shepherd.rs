//! A whole shepherd, for as long as its test.

use std::time::Duration;

use tollfree::Channel;
use tollfree_shepherd::{Config, Shepherd};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// Where the shepherd serves the world whose business socket is `uri`.
pub(crate) fn outside(uri: &str) -> String {
    format!("unix:{}.outside", uri.strip_prefix("shm://").expect("a path"))
}

pub(crate) async fn run(uri: String) {
    let text = format!(
        "[listeners.outside]\naddress = \"{}\"\n[business]\nsocket = \"{uri}\"\n[limits]\nmessage_bytes = 1000000000\n",
        outside(&uri)
    );
    let shepherd = Shepherd::bind(Config::from_toml(&text).unwrap()).await.unwrap();
    shepherd.run(std::future::pending()).await;
}

/// Waits until the test's server has attached.
pub(crate) async fn attached(channel: &Channel) {
    for _ in 0..3000 {
        let request = HealthCheckRequest { service: "tollfree.probe.v1.Probe".into() };
        match HealthClient::new(channel.clone()).check(request).await {
            Ok(answer) if answer.get_ref().status == 1 => return,
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
    panic!("no server has attached");
}
