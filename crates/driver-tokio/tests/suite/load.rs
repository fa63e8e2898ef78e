//! How busy a server says it is: where both sides want that, and whatever it says.

use std::future::poll_fn;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use tollfree_driver_tokio::*;
use tollfree_layout::control::load_word;
use tollfree_layout::handshake::feature;
use tollfree_testkit::Door;

fn address(directory: &tempfile::TempDir) -> Address {
    Address::Path(directory.path().join("load.sock"))
}

fn config(load: bool) -> Config {
    Config { load, ..Config::default() }
}

async fn pair(server: bool, client: bool) -> (Attachment, Attachment, Listener) {
    let directory = tempfile::tempdir().unwrap();
    let address = address(&directory);
    let mut listener = Listener::bind(&address, config(server)).unwrap();
    let client = Attachment::connect(&address, &config(client)).await.unwrap();
    let server = listener.accept().await.unwrap();
    (server, client, listener)
}

#[tokio::test]
async fn a_client_reads_what_its_server_has_stored() {
    let (server, client, _listener) = pair(true, true).await;
    assert!(server.shares_load() && client.shares_load());
    assert_eq!(client.peer_load(), None, "nothing said yet");
    for count in [0, 7, 1, u32::MAX - 1] {
        server.report_load(count);
        assert_eq!(client.peer_load(), Some(count));
    }
}

#[tokio::test]
async fn without_the_feature_on_both_sides_nothing_is_said() {
    for (server, client) in [(true, false), (false, true), (false, false)] {
        let (server, client, _listener) = pair(server, client).await;
        assert!(!server.shares_load() && !client.shares_load());
        server.report_load(7);
        assert_eq!(client.peer_load(), None);
    }
}

#[test]
fn a_server_may_say_anything() {
    let directory = tempfile::tempdir().unwrap();
    let address = address(&directory);
    let listener = UnixListener::bind(directory.path().join("load.sock")).unwrap();
    let liar = std::thread::spawn(move || {
        let door = Door::over(listener.accept().unwrap().0).unwrap();
        door.welcome(|hello| hello.features = (feature::LOAD | 1 << 63).into()).unwrap()
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Attachment::connect(&address, &config(true)).await.unwrap();
        let mut liar = liar.join().unwrap();
        for (word, count) in
            [(0, None), (1, Some(0)), (u32::MAX, Some(u32::MAX - 1)), (load_word(3), Some(3))]
        {
            liar.forge_load(word);
            assert_eq!(client.peer_load(), count);
        }
        assert_eq!(client.closed(), None, "it may lie");
    });
}

/// What a channel's keeper of an endpoint waits for.
#[tokio::test]
async fn a_session_that_takes_no_more_calls_says_so_without_being_asked() {
    for how in ["drain", "close", "death"] {
        let (server, client, _listener) = pair(false, false).await;
        let mut over = tokio::spawn(async move { poll_fn(|cx| client.poll_over(cx)).await });
        // It waits: nothing has happened.
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut over).await.is_err());
        match how {
            "drain" => server.drain(),
            "close" => server.close("enough"),
            _ => drop(server),
        }
        tokio::time::timeout(Duration::from_secs(10), over).await.expect(how).unwrap();
    }
}
