//! What people read when something fails: what it was, where, on which side, and what to do about it.

use std::path::Path;
use std::time::Duration;

use tollfree::{Channel, PeerPolicy, Server};
use tollfree_testkit::Log;

fn uri(directory: &Path, name: &str) -> String {
    format!("shm://{}", directory.join(name).display())
}

/// Serves, and resolves when somebody can connect.
async fn serve(uri: &str, server: Server) -> tokio::task::JoinHandle<()> {
    let (_, health) = tonic_health::server::health_reporter();
    let serving = server.add_service(health).serve(uri.to_owned());
    let task = tokio::spawn(async move { panic!("it serves: {:?}", serving.await) });
    let path = uri.strip_prefix("shm://").unwrap();
    let listening = async {
        while std::os::unix::net::UnixStream::connect(path).is_err() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), listening).await.expect("it listens");
    task
}

#[tokio::test]
async fn every_failure_says_what_where_on_which_side_and_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| uri(directory.path(), name);
    std::fs::write(directory.path().join("file"), "text").unwrap();
    std::fs::create_dir(directory.path().join("directory")).unwrap();
    let nobody = PeerPolicy::Users(vec![12_345]);
    let open = serve(&at("open"), Server::builder()).await;
    let closed = serve(&at("closed"), Server::builder().peers(nobody.clone())).await;
    let long = format!("shm:///{}", "x".repeat(200));
    let me = rustix::process::geteuid().as_raw();
    let cases = [
        (Channel::builder(at("file")), vec!["/file", "a regular file, and not a socket"], "died"),
        (Channel::builder(at("directory")), vec!["/directory", "a directory, and not a socket"], "died"),
        (Channel::builder(at("nothing")), vec!["/nothing", "the socket does not exist"], "died"),
        (Channel::builder(&*long), vec!["xxx", "107 bytes"], "http://"),
        (Channel::builder("ftp://x"), vec!["ftp://x", "shm:///", "http://host:port", "unix:/path"], "died"),
        (
            Channel::builder(at("open")).peers(nobody),
            vec!["the server runs as user", "this client trusts", "ChannelBuilder::peers", "/open"],
            "not allowed here",
        ),
        (
            Channel::builder(at("closed")),
            vec!["the server refused", "the client runs as user", "Server::peers", "/closed"],
            "not allowed here",
        ),
    ];
    for (builder, wanted, unwanted) in cases {
        let told = builder.connect().await.unwrap_err().to_string();
        for words in wanted {
            assert!(told.contains(words), "{words:?} is not in: {told}");
        }
        assert!(!told.contains(unwanted), "{told}");
    }
    let told = Channel::builder(at("closed")).connect().await.unwrap_err().to_string();
    assert!(told.contains(&format!("user {me}")), "{told}");
    let (_, health) = tonic_health::server::health_reporter();
    let told = Server::builder().add_service(health).serve(at("open")).await.unwrap_err().to_string();
    assert!(told.contains("in use by a running server") && told.contains("/open"), "{told}");
    open.abort();
    closed.abort();
}

/// A failed `connect` is told to its caller, once; and a look at an address in use is no failure of anybody's.
#[tokio::test]
async fn nothing_is_warned_of_that_nobody_has_to_mind() {
    let (log, _guard) = Log::begin();
    let directory = tempfile::tempdir().unwrap();
    let uri = uri(directory.path(), "s.sock");
    assert!(Channel::connect(&uri).await.is_err());
    assert!(!log.text().contains("WARN"), "{}", log.text());
    // Somebody has looked already, to see whether the server listens.
    let server = serve(&uri, Server::builder()).await;
    let (_, health) = tonic_health::server::health_reporter();
    assert!(Server::builder().add_service(health).serve(&uri).await.is_err());
    // One that came after them has been served: they were seen.
    let channel = Channel::connect(&uri).await.unwrap();
    assert!(!log.text().contains("WARN"), "{}", log.text());
    server.abort();
    // What a channel in use meets is said: its callers wait, or are told so.
    let ended = async {
        while channel.path().ready().is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), ended).await.expect("the session ends");
    let mut client = tonic_health::pb::health_client::HealthClient::new(channel);
    let gone = async { while client.check(tonic_health::pb::HealthCheckRequest::default()).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(30), gone).await.expect("nobody is there");
    let told = log.text();
    assert!(told.contains("no connection; calls fail or wait until there is one"), "{told}");
    assert!(!told.contains("trying again"), "{told}");
}
