//! Versions and features that differ between the two sides: negotiated, or refused with the reason in words. Both sides are
//! the real ones; a shim between them announces what another version would.

use bytes::Bytes;
use tollfree_driver_tokio::*;
use tollfree_layout::handshake::{FEATURES, Hello, VERSION_MAX, VERSION_MIN, feature, kind, reason};
use tollfree_testkit::{Census, Shim};

use crate::echo::{Echo, alone_for, call, check_calls};

/// The version before this one's, and the one after.
const BEFORE: u16 = VERSION_MIN - 1;
const AFTER: u16 = VERSION_MAX + 1;

/// Connects through a shim that makes `edit` of every message of a kind.
async fn through(
    server: &Echo,
    kind: u32,
    edit: impl Fn(&mut Hello) + Send + Sync + 'static,
) -> (Result<Attachment, ConnectError>, Vec<Hello>) {
    let front = server.directory.path().join("front.sock");
    let shim = Shim::start(&front, &server.path(), move |hello| {
        // An area's descriptor has to be there before the memory says so: a shim would be too slow for it.
        hello.area_len_max = 0.into();
        if hello.kind.get() == kind {
            edit(hello);
        }
    })
    .unwrap();
    let result = Attachment::connect(&Address::Path(front), &Config::default()).await;
    if let Ok(client) = &result {
        check_calls(client, 20).await;
        let large = Bytes::from(vec![4; 1 << 20]);
        assert_eq!(call(client, large.clone()).await, Some(large), "in many pieces");
    }
    (result, shim.seen())
}

fn announce(min: u16, max: u16) -> impl Fn(&mut Hello) + Send + Sync + 'static {
    move |hello| (hello.version_min, hello.version_max) = (min.into(), max.into())
}

#[test]
fn a_client_that_also_speaks_another_version_gets_the_common_one() {
    alone_for(60, async {
        let server = Echo::start(Config::default());
        for (min, max) in [(BEFORE, VERSION_MAX), (VERSION_MIN, AFTER), (BEFORE, AFTER), (0, u16::MAX)] {
            let (client, seen) = through(&server, kind::HELLO, announce(min, max)).await;
            client.unwrap_or_else(|error| panic!("{min} to {max}: {error}"));
            let welcome = seen.last().unwrap();
            assert_eq!(welcome.kind.get(), kind::WELCOME);
            assert_eq!((welcome.version_min.get(), welcome.version_max.get()), (VERSION_MAX, VERSION_MAX));
        }
    });
}

#[test]
fn a_client_of_another_version_is_refused_in_words() {
    alone_for(60, async {
        let server = Echo::start(Config::default());
        let honest = server.connect().await;
        check_calls(&honest, 3).await;
        let before = Census::take();
        for version in [BEFORE, AFTER] {
            let (client, seen) = through(&server, kind::HELLO, announce(version, version)).await;
            let error = client.unwrap_err();
            assert!(!error.kind.is_transient(), "trying again does not help: {error}");
            let words = [
                format!("the client speaks {version} to {version}"),
                format!("the server {VERSION_MIN} to {VERSION_MAX}"),
            ];
            for words in words {
                assert!(error.to_string().contains(&words), "{error}");
            }
            let refusal = seen.last().unwrap();
            assert_eq!((refusal.kind.get(), refusal.reason.get()), (kind::REFUSAL, reason::VERSION));
            check_calls(&honest, 3).await;
        }
        before.assert_back();
    });
}

#[test]
fn a_server_of_another_version_is_refused_in_words() {
    alone_for(60, async {
        let server = Echo::start(Config::default());
        let honest = server.connect().await;
        check_calls(&honest, 3).await;
        for version in [BEFORE, AFTER] {
            let (client, _) = through(&server, kind::WELCOME, announce(version, version)).await;
            let error = client.unwrap_err();
            assert!(!error.kind.is_transient(), "{error}");
            let words = format!("speaks {version} to {version}, this side {VERSION_MIN} to {VERSION_MAX}");
            assert!(error.to_string().contains(&words), "{error}");
            assert!(error.to_string().contains("front.sock"), "{error}");
            // The server takes the client for one that has hung up.
            assert!(matches!(server.next_end().await, Closed::HungUp), "{version}");
            check_calls(&honest, 3).await;
        }
    });
}

#[test]
fn unknown_features_are_passed_over_and_required_ones_refused() {
    alone_for(60, async {
        let server = Echo::start(Config::default());
        for kind in [kind::HELLO, kind::WELCOME] {
            let (client, _) = through(&server, kind, |hello| {
                // All but the one that is said together with a token.
                hello.features = (!feature::UPGRADE).into();
                // What a later version may give a meaning to.
                hello.body_len = u32::MAX.into();
                hello.pool = [0xff; 16];
                hello.token = [0xff; 16];
                (hello.tcp_client, hello.tcp_server) = ([0xff; 16], [0xff; 16]);
                (hello.tcp_client_port, hello.tcp_server_port) = (9.into(), 9.into());
                hello.tail = [0xff; 12];
            })
            .await;
            client.unwrap_or_else(|error| panic!("{kind}: {error}"));
            let unknown = !FEATURES & (1 << 40);
            let (client, seen) = through(&server, kind, move |hello| hello.required = unknown.into()).await;
            let error = client.unwrap_err();
            assert!(error.to_string().contains("requires features 0x10000000000"), "{error}");
            assert!(!error.kind.is_transient(), "{error}");
            if kind == kind::HELLO {
                assert_eq!(seen.last().unwrap().reason.get(), reason::FEATURE);
            }
        }
    });
}
