//! What a channel logs about the way that its calls take: one line when it changes, and none for every further attempt. The
//! test is alone in its process, since what is logged is asked for once in a process.

use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tollfree_testkit::alone;

use tollfree::{Channel, ChannelBuilder, Server, Upgrade};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps what is said about calls and the way that they take.
struct Listening;

impl Subscriber for Listening {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tollfree::")
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut Reading);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Reading;

impl Visit for Reading {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" && text.starts_with("calls ") {
            SAID.lock().unwrap().push(text);
        }
    }
}

/// What was said since the last time, once there is something.
async fn said() -> Vec<String> {
    let began = Instant::now();
    while SAID.lock().unwrap().is_empty() {
        assert!(began.elapsed() < Duration::from_secs(20), "nothing is said");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    std::mem::take(&mut *SAID.lock().unwrap())
}

#[tokio::test]
async fn one_line_says_which_way_and_why() {
    alone!();
    tracing::subscriber::set_global_default(Listening).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let free = tollfree_testkit::free_address();
    let (http, shm) =
        (format!("http://{free}"), format!("shm://{}", directory.path().join("s.sock").display()));
    let uris = [shm, http.clone()];
    let serving =
        tokio::spawn_for_test(
            async move { Server::builder().serve_many(uris.iter().map(String::as_str)).await },
        );
    while tokio::net::TcpStream::connect(free).await.is_err() {
        assert!(!serving.is_finished(), "it serves");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let connect = async |builder: ChannelBuilder| builder.connect().await.unwrap();
    let knowing = |directory: &Path| Channel::builder(&*http).upgrade_directory(directory);

    let staying = connect(knowing(Path::new("/elsewhere"))).await;
    let first = said().await;
    assert!(first[0].contains("over HTTP/2, not over shared memory: "), "{first:?}");
    assert!(first[0].contains("does not lie in /elsewhere"), "{first:?}");
    // It tries again and again, and has nothing new to say.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(first.len() == 1 && SAID.lock().unwrap().is_empty(), "{first:?}");
    drop(staying);

    let _moving = connect(knowing(directory.path())).await;
    let over = said().await;
    assert!(over.len() == 1 && over[0].contains("over shared memory: the server on TCP offered"), "{over:?}");

    let _off = connect(knowing(directory.path()).upgrade(Upgrade::Off)).await;
    let off = said().await;
    assert!(off.len() == 1 && off[0].contains("over HTTP/2: the channel is told to stay on TCP"), "{off:?}");

    let required = knowing(Path::new("/elsewhere")).upgrade(Upgrade::Required);
    required.connect().await.unwrap_err();
    let fails = said().await;
    assert!(fails.len() == 1 && fails[0].contains("calls fail: shared memory is required"), "{fails:?}");
}
