//! A config that changes while clients are connected.

use std::time::Duration;

use tollfree::Channel;
use tollfree_gateway::{ReloadError, Source};
use tollfree_stubs::probe::Ask;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tonic::Code;

use super::lab::{Lab, PATIENCE, backend_connections_of};

const FAILURES: &str = "tollfree_gateway_config_reload_failures_total";

/// Reads another config, with the sockets that the lab has.
pub(crate) async fn reload(lab: &Lab, more: &str) -> Result<Vec<String>, ReloadError> {
    let text = format!("{}{more}", lab.sockets);
    lab.reloader.reload(&[Source::Text { name: "new.toml".into(), text }]).await
}

fn sized(len: usize) -> Ask {
    Ask { body: vec![1; len], ..Ask::default() }
}

#[tokio::test]
async fn limits_routes_and_groups_change_while_it_runs() {
    let lab = Lab::start("[groups.a]\n[groups.b]\n[routes]\n\"tollfree.probe.v1.Probe\" = \"a\"\n").await;
    let a = lab.attach("a").await;
    let b = lab.attach("b").await;
    let mut client = lab.client().await;
    client.unary(sized(5000)).await.unwrap();
    let begun = |probe: &super::probe::Probe| probe.begun.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!((begun(&a.probe), begun(&b.probe)), (1, 0));

    let other = "limits.message_bytes = 1000\nlimits.attach_wait_ms = 1\n[groups.a]\n[groups.b]\n[routes]\n\
                 \"tollfree.probe.v1.Probe\" = \"b\"\n";
    assert_eq!(reload(&lab, other).await.unwrap(), Vec::<String>::new());
    client.unary(sized(500)).await.unwrap();
    assert_eq!((begun(&a.probe), begun(&b.probe)), (1, 1), "the same connection, another route");
    assert_eq!(client.unary(sized(5000)).await.unwrap_err().code(), Code::ResourceExhausted);

    // A group that is gone is let go, and comes back when it is there again.
    reload(&lab, "limits.attach_wait_ms = 1\n[groups.b]\n").await.unwrap();
    lab.until_figure(&backend_connections_of("a"), |count| count == 0.0).await;
    client.unary(sized(5000)).await.unwrap();
    assert_eq!(begun(&b.probe), 2);
    reload(&lab, "[groups.a]\nservices = [\"tollfree.probe.v1.Probe\"]\n[groups.b]\n").await.unwrap();
    lab.until_figure(&backend_connections_of("b"), |count| count == 0.0).await;
    lab.until_figure(&backend_connections_of("a"), |count| count == 1.0).await;
    client.unary(sized(5000)).await.unwrap();
    assert_eq!(begun(&a.probe), 2);
}

#[tokio::test]
async fn nonsense_changes_nothing_and_is_said() {
    let lab = Lab::start("").await;
    let _attached = lab.attach("default").await;
    let mut client = lab.client().await;
    for (nonsense, words) in [
        ("limits.message_bytes = 0\n", "new.toml:4: limits.message_bytes"),
        ("limits.message_bytes = 1\nlimits.straems = 1\n", "limits.straems"),
        ("limits.message_bytes = \n", "no TOML"),
    ] {
        let error = reload(&lab, nonsense).await.unwrap_err().to_string();
        assert!(error.contains(words), "{error:?} without {words:?}");
        client.unary(sized(5000)).await.unwrap();
    }
    assert_eq!(lab.figure(FAILURES).await, 3.0);
    let missing = Source::File(lab.file("none.toml"));
    assert!(lab.reloader.reload(&[missing]).await.unwrap_err().to_string().contains("can't be read"));
    client.unary(sized(5000)).await.unwrap();
}

/// Sockets stay as they were bound; what else the same config says holds.
#[tokio::test]
async fn what_needs_a_restart_is_named() {
    let lab = Lab::start("").await;
    let _attached = lab.attach("default").await;
    let other = "listeners.more.address = \"127.0.0.1:0\"\nlimits.message_bytes = 1000\n";
    assert_eq!(reload(&lab, other).await.unwrap(), ["listeners.more"]);
    assert_eq!(lab.client().await.unary(sized(5000)).await.unwrap_err().code(), Code::ResourceExhausted);
}

/// A channel that is open already is judged anew.
#[tokio::test]
async fn what_a_group_may_call_changes_for_open_channels() {
    let config =
        |via: &str| format!("[groups.a]\n{via}[groups.default]\nservices = [\"x.Other\"]\nusers = [0, 4]\n");
    let lab = Lab::start(&config("")).await;
    let attached = lab.attach("a").await;
    let target = "http://127.0.0.1:1";
    let mut client = ProbeClient::new(Channel::via(lab.backends(), target).await.unwrap());
    let mut until = async |wanted: Code| {
        let begun = tokio::time::Instant::now();
        loop {
            let status = client.unary(Ask::default()).await.unwrap_err();
            if status.code() == wanted {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{status}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    until(Code::PermissionDenied).await;
    reload(&lab, &config("via = [\"http://127.0.0.1:1\"]\n")).await.unwrap();
    // Allowed now, and nobody is there.
    until(Code::Unavailable).await;
    reload(&lab, &config("")).await.unwrap();
    until(Code::PermissionDenied).await;
    attached.stop().await;
}
