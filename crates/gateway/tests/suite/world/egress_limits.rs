//! What backends may have open elsewhere, by group, and how what is beyond it is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tollfree_gateway::Config;
use tollfree_stubs::probe::Ask;
use tonic::{Code, Status};

use super::egress::{serve, via};
use super::lab::{Lab, PATIENCE};
use super::probe::Probe;
use super::reload::reload;

/// A server elsewhere, and the connections to it.
struct Elsewhere {
    probe: Probe,
    address: std::net::SocketAddr,
    /// Connections that are open now.
    open: Arc<AtomicUsize>,
    relay: JoinHandle<()>,
}

impl Elsewhere {
    async fn start() -> Elsewhere {
        let (server, probe) = serve(tollfree::Server::builder()).await;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, open) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let relay = tokio::spawn({
            let open = open.clone();
            async move {
                while let Ok((mut client, _)) = listener.accept().await {
                    let open = open.clone();
                    open.fetch_add(1, Ordering::SeqCst);
                    tokio::spawn(async move {
                        let mut server = tokio::net::TcpStream::connect(server).await.unwrap();
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                        open.fetch_sub(1, Ordering::SeqCst);
                    });
                }
            }
        });
        Elsewhere { probe, address, open, relay }
    }

    fn target(&self) -> String {
        format!("http://{}", self.address)
    }

    fn begun(&self) -> usize {
        self.probe.begun.load(Ordering::SeqCst)
    }

    async fn until_open(&self, count: usize) {
        let begun = tokio::time::Instant::now();
        while self.open.load(Ordering::SeqCst) != count {
            assert!(begun.elapsed() < PATIENCE, "{} are open", self.open.load(Ordering::SeqCst));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        self.relay.abort();
    }
}

async fn call(lab: &Lab, target: &str) -> Result<(), Status> {
    via(lab, target).await.unary(Ask::default()).await.map(drop)
}

/// Calls until it isn't refused any more.
async fn call_in_time(lab: &Lab, target: &str) {
    let begun = tokio::time::Instant::now();
    while let Err(status) = call(lab, target).await {
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        assert!(begun.elapsed() < PATIENCE, "{status}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn refused_by(outcome: Result<(), Status>, group: &str, key: &str) {
    let status = outcome.expect_err("it is beyond the limit");
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    for words in [&*format!("the group {group} has "), &format!("limits.{key} allows"), "raise the limit"] {
        assert!(status.message().contains(words), "{words}: {status}");
    }
}

fn of(group: &str, what: &str) -> String {
    format!("tollfree_gateway_{what}{{group=\"{group}\"}}")
}

#[tokio::test]
async fn targets_of_a_group_are_limited_and_others_are_not() {
    let (one, two) = (Elsewhere::start().await, Elsewhere::start().await);
    let own = Elsewhere::start().await;
    let config = |idle_ms| {
        format!(
            "limits.egress_targets = 1\nlimits.egress_idle_ms = {idle_ms}\n\
             [groups.a]\nvia = [\"{}\", \"{}\"]\n[groups.b]\nvia = [\"{}\"]\n",
            one.target(),
            two.target(),
            own.target()
        )
    };
    let lab = Lab::start(&config(500)).await;
    call(&lab, &one.target()).await.unwrap();
    // A call under way keeps the target open.
    let target = one.target();
    let held = via(&lab, &target).await;
    let held = tokio::spawn({
        let mut held = held.clone();
        async move { held.unary(Ask { wait_ms: 1, ..Ask::default() }).await }
    });
    while one.probe.live.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_millis(700)).await;
    refused_by(call(&lab, &two.target()).await, "a", "egress_targets");
    assert_eq!(lab.refused("egress_targets").await, 1.0);
    assert_eq!(lab.figure(&of("a", "egress_targets")).await, 1.0);
    call(&lab, &own.target()).await.expect("another group has a target of its own");
    call(&lab, &one.target()).await.expect("it is open");
    one.probe.gate.notify_one();
    held.await.unwrap().unwrap();
    call_in_time(&lab, &two.target()).await;
    assert_eq!((two.begun(), own.begun()), (1, 1));
}

#[tokio::test]
async fn connections_of_a_group_are_limited() {
    let (one, two, three) = (Elsewhere::start().await, Elsewhere::start().await, Elsewhere::start().await);
    let config = |count: u32, idle_ms: u32| {
        format!(
            "limits.egress_connections = {count}\nlimits.egress_idle_ms = {idle_ms}\n\
             [groups.default]\nvia = [\"http://inventory:80\", \"{}\"]\n\
             [egress.targets.\"http://inventory:80\"]\naddresses = [\"{}\", \"{}\"]\n",
            three.target(),
            one.address,
            two.address
        )
    };
    let lab = Lab::start(&config(1, 300_000)).await;
    call(&lab, "http://inventory:80").await.unwrap();
    call(&lab, "http://inventory:80").await.unwrap();
    let open = || one.open.load(Ordering::SeqCst) + two.open.load(Ordering::SeqCst);
    assert_eq!(open(), 1, "one of its addresses has a connection");
    refused_by(call(&lab, &three.target()).await, "default", "egress_connections");
    assert_eq!(three.open.load(Ordering::SeqCst), 0);
    assert_eq!(lab.refused("egress_connections").await, 1.0);
    assert_eq!(lab.figure(&of("default", "egress_connections")).await, 1.0);
    // With more of them, what was left out follows: long before names are looked up again.
    reload(&lab, &config(3, 300_000)).await.unwrap();
    one.until_open(1).await;
    two.until_open(1).await;
    call_in_time(&lab, &three.target()).await;
    assert_eq!(lab.figure(&of("default", "egress_connections")).await, 3.0);
}

#[tokio::test]
async fn what_one_target_gives_back_another_gets() {
    let (one, two) = (Elsewhere::start().await, Elsewhere::start().await);
    let lab = Lab::start(&format!(
        "limits.egress_connections = 1\nlimits.egress_idle_ms = 300\n[groups.default]\nvia = [\"{}\", \"{}\"]\n",
        one.target(),
        two.target()
    ))
    .await;
    call(&lab, &one.target()).await.unwrap();
    refused_by(call(&lab, &two.target()).await, "default", "egress_connections");
    call_in_time(&lab, &two.target()).await;
    one.until_open(0).await;
}

#[tokio::test]
async fn a_target_without_calls_is_closed_and_opened_again() {
    let elsewhere = Elsewhere::start().await;
    let target = elsewhere.target();
    let lab =
        Lab::start(&format!("limits.egress_idle_ms = 200\n[groups.default]\nvia = [\"{target}\"]\n")).await;
    let mut client = via(&lab, &target).await;
    for time in 1..3 {
        client.unary(Ask::default()).await.unwrap();
        elsewhere.until_open(0).await;
        lab.until_figure(&of("default", "egress_connections"), |count| count == 0.0).await;
        assert_eq!(lab.figure(&of("default", "egress_targets")).await, 0.0);
        assert_eq!(lab.refused("egress_idle").await, f64::from(time));
    }
    assert_eq!(elsewhere.begun(), 2);
}

#[tokio::test]
async fn calls_of_a_group_by_way_of_the_gateway_are_limited() {
    let elsewhere = Elsewhere::start().await;
    let target = elsewhere.target();
    let lab = Lab::start(&format!("limits.egress_calls = 1\n[groups.default]\nvia = [\"{target}\"]\n")).await;
    let attached = lab.attach("default").await;
    let held = tokio::spawn({
        let mut client = via(&lab, &target).await;
        async move { client.unary(Ask { wait_ms: 1, ..Ask::default() }).await }
    });
    lab.until_figure(&of("default", "egress_calls"), |count| count == 1.0).await;
    refused_by(call(&lab, &target).await, "default", "egress_calls");
    refused_by(call(&lab, "group:default").await, "default", "egress_calls");
    assert_eq!(lab.refused("egress_calls").await, 2.0);
    // Calls of the world are none of the group's own.
    lab.client().await.unary(Ask::default()).await.unwrap();
    while elsewhere.probe.live.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    elsewhere.probe.gate.notify_one();
    held.await.unwrap().unwrap();
    call_in_time(&lab, "group:default").await;
    call_in_time(&lab, &target).await;
    assert_eq!(attached.probe.begun.load(Ordering::SeqCst), 2);
    lab.until_figure(&of("default", "egress_calls"), |count| count == 0.0).await;
}

/// All of one user.
#[tokio::test]
async fn a_call_counts_for_the_group_that_its_process_has_attached_in() {
    let elsewhere = Elsewhere::start().await;
    let target = elsewhere.target();
    let via_it = format!("via = [\"{target}\"]\n");
    let groups = format!("[groups.a]\n{via_it}[groups.b]\n{via_it}[groups.c]\n{via_it}[groups.d]\n");
    let lab = Lab::start(&format!("limits.egress_calls = 1\n{groups}")).await;
    let client = via(&lab, &target).await;
    let mut held = Vec::new();
    let mut hold = async |group| {
        let mut client = client.clone();
        held.push(tokio::spawn(async move { client.unary(Ask { wait_ms: 1, ..Ask::default() }).await }));
        lab.until_figure(&of(group, "egress_calls"), |count| count == 1.0).await;
    };
    // Only a client, or in a group that may not call there: the first by name.
    let in_d = lab.attach("d").await;
    hold("a").await;
    refused_by(call(&lab, &target).await, "a", "egress_calls");
    // The session is the same as before.
    let in_c = lab.attach("c").await;
    hold("c").await;
    refused_by(call(&lab, &target).await, "c", "egress_calls");
    let in_b = lab.attach("b").await;
    hold("b").await;
    refused_by(call(&lab, &target).await, "b", "egress_calls");
    for (attached, group, next) in [(in_b, "b", "c"), (in_d, "d", "c"), (in_c, "c", "a")] {
        attached.stop().await;
        lab.until_figure(&super::lab::backend_connections_of(group), |count| count == 0.0).await;
        refused_by(call(&lab, &target).await, next, "egress_calls");
    }
    while elsewhere.probe.live.load(Ordering::SeqCst) < 3 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    elsewhere.probe.gate.notify_waiters();
    for call in held {
        call.await.unwrap().unwrap();
    }
    for group in ["a", "b", "c"] {
        lab.until_figure(&of(group, "egress_calls"), |count| count == 0.0).await;
    }
}

#[test]
fn no_such_limit_may_be_nothing() {
    for key in ["egress_targets", "egress_connections", "egress_calls", "egress_idle_ms"] {
        let error = Config::from_toml(&format!("limits.{key} = 0\n")).unwrap_err().to_string();
        assert!(error.contains(&format!("limits.{key}: 0 is too little")), "{error}");
        assert!(Config::default().to_json().contains(&format!("\"{key}\"")), "{key} is shown");
    }
}
