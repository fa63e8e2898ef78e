//! A gateway that is replaced by another while clients call: the sockets stay, and the backends come again.

use rustix::process::Signal;

use super::load::Load;
use super::places::{PATIENCE, Place};

const CLIENTS: usize = 6;

/// As a service manager restarts it: told to end, waited for, started anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_fails_while_gateways_replace_each_other() {
    let place = Place::new("");
    let mut gateway = place.start_gateway();
    let _backends = [place.start_backend("default"), place.start_backend("default")];
    let load = Load::start(place.address(), CLIENTS);
    for _ in 0..3 {
        load.until_answered(50).await;
        gateway.signal(Signal::TERM);
        let ended = gateway.wait_end(PATIENCE);
        assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
        gateway = place.start_gateway();
    }
    load.until_answered(50).await;
    let failures = load.stop().await;
    assert!(failures.is_empty(), "{failures:?}");
}

/// A kill ends what is under way, which is one call of each client, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_gateway_fails_what_was_under_way_and_no_more() {
    let place = Place::new("");
    let mut gateway = place.start_gateway();
    let _backends = place.start_backend("default");
    let load = Load::start(place.address(), CLIENTS);
    const KILLS: usize = 3;
    for _ in 0..KILLS {
        load.until_answered(50).await;
        drop(gateway);
        gateway = place.start_gateway();
    }
    load.until_answered(50).await;
    let failures = load.stop().await;
    assert!(failures.len() <= KILLS * CLIENTS, "{failures:?}");
}
