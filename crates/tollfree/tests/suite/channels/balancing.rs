//! Several endpoints: which one a call goes to, and what happens when one goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tollfree_testkit::path_of;

use tollfree::{Balance, Channel, ChannelError, EndpointState, Server, Transport};
use tonic::Code;

use super::place::{Host, Place, Street, call, hello, in_time, until, until_ready};

const CHILD_URI: &str = "TOLLFREE_TEST_CHILD_URI";
const CHILD_LOG: &str = "TOLLFREE_TEST_CHILD_LOG";

fn channel(balance: Balance, uris: &[&str]) -> Channel {
    let mut builder = Channel::builder(uris[0]).balance(balance);
    for uri in &uris[1..] {
        builder = builder.endpoint(*uri);
    }
    builder.connect_lazy().unwrap()
}

#[tokio::test]
async fn calls_go_round_over_every_kind_of_address() {
    let street = Street::new();
    let uris = [street.shm("a"), street.shm_abstract(), street.unix("c"), street.http()];
    let hosts = ["a", "b", "c", "d"].map(Host::new);
    let mut places = Vec::new();
    for (uri, host) in uris.iter().zip(&hosts) {
        places.push(Place::open(uri, host).await);
    }
    let uris: Vec<&str> = uris.iter().map(String::as_str).collect();
    let channel = channel(Balance::RoundRobin, &uris);
    hello(&channel, "first").await.unwrap();
    until_ready(&channel, 4).await;
    for _ in 0..40 {
        hello(&channel, "more").await.unwrap();
    }
    for host in &hosts {
        assert_eq!(host.seen_count("more"), 10);
    }
    let path = channel.path();
    let ways: Vec<_> = path.endpoints.iter().map(|endpoint| endpoint.transport).collect();
    let (memory, http) = (Transport::SharedMemory, Transport::Http2);
    assert_eq!(ways, [memory, memory, http, http]);
    let text = path.to_string();
    for part in ["round_robin of 4", "shared memory with process", "HTTP/2 with http://", "HTTP/2 with unix:"]
    {
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn one_http2_server_is_a_channel_too() {
    let street = Street::new();
    for uri in [street.http(), street.unix("s")] {
        let host = Host::new("only");
        let place = Place::open(&uri, &host).await;
        let channel = Channel::connect(&*uri).await.unwrap();
        assert_eq!(hello(&channel, "one").await.unwrap(), "only");
        assert!(channel.path().to_string().starts_with("HTTP/2 with"), "{}", channel.path());
        place.kill().await;
        let status = in_time("a call to nobody", async {
            loop {
                if let Err(status) = hello(&channel, "two").await {
                    break status;
                }
            }
        })
        .await;
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(status.message().contains(&uri), "{status}");
        // The same place again: it is found without anybody's help.
        let _place = Place::open(&uri, &host).await;
        in_time("it comes back", async {
            while hello(&channel, "three").await.is_err() {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn pick_first_falls_back_says_so_and_comes_back() {
    let street = Street::new();
    let (first, second) = (street.shm("a"), street.http());
    let (a, b) = (Host::new("a"), Host::new("b"));
    let place = Place::open(&first, &a).await;
    let _other = Place::open(&second, &b).await;
    let channel = channel(Balance::PickFirst, &[&first, &second]);
    for _ in 0..5 {
        assert_eq!(hello(&channel, "x").await.unwrap(), "a");
    }
    assert_eq!(channel.path().endpoints[1].state, EndpointState::Idle, "not connected without need");
    place.stop().await;
    for _ in 0..5 {
        assert_eq!(hello(&channel, "x").await.unwrap(), "b", "no call fails for it");
    }
    let path = channel.path();
    assert!(
        matches!(&path.endpoints[0].state, EndpointState::Failing(reason) if reason.contains("no server"))
    );
    assert_eq!(path.ready().unwrap().transport, Transport::Http2, "{path}");
    let _place = Place::open(&first, &a).await;
    let back = async { while hello(&channel, "x").await.unwrap() != "a" {} };
    in_time("the first is used again", back).await;
}

#[tokio::test]
async fn nobody_there_is_unavailable_and_named() {
    let street = Street::new();
    let (a, b) = (street.shm("a"), street.shm("b"));
    for balance in [Balance::PickFirst, Balance::RoundRobin, Balance::LeastOutstanding] {
        let status = hello(&channel(balance, &[&a, &b]), "x").await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(status.message().contains(street.path("").to_str().unwrap()), "{status}");
        let error = Channel::builder(&*a).endpoint(&*b).balance(balance).connect().await.unwrap_err();
        assert!(matches!(error, ChannelError::Unreachable(_)), "{error:?}");
    }
}

#[tokio::test]
async fn least_outstanding_prefers_the_server_that_others_leave_alone() {
    let street = Street::new();
    let (first, second) = (street.shm("a"), street.shm("b"));
    let (a, b) = (Host::new("a"), Host::new("b"));
    let (_a, _b) = (Place::open(&first, &a).await, Place::open(&second, &b).await);
    let chooser = channel(Balance::LeastOutstanding, &[&first, &second]);
    hello(&chooser, "warm").await.unwrap();
    until_ready(&chooser, 2).await;
    // Whom the chooser can't see: somebody else's calls, by a session of their own.
    let stranger = Channel::connect(&*first).await.unwrap();
    let held: Vec<_> = (0..5).map(|_| call(&stranger, "hold")).collect();
    until("the calls are there", || a.seen_count("hold") == 5).await;
    let told = async {
        loop {
            let mut names = Vec::new();
            for _ in 0..10 {
                names.push(hello(&chooser, "x").await.unwrap());
            }
            if names.iter().all(|name| name == "b") {
                break;
            }
        }
    };
    in_time("the chooser learns of it", told).await;
    // Now the other way round.
    a.let_go(5);
    for call in held {
        call.await.unwrap().unwrap();
    }
    let stranger = Channel::connect(&*second).await.unwrap();
    let held: Vec<_> = (0..5).map(|_| call(&stranger, "hold")).collect();
    until("the calls are there", || b.seen_count("hold") == 5).await;
    let told = async { while hello(&chooser, "y").await.unwrap() != "a" {} };
    in_time("the chooser learns of it", told).await;
    b.let_go(5);
    for call in held {
        call.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn without_a_report_the_channels_own_calls_count() {
    let street = Street::new();
    let (first, second) = (street.http(), street.unix("b"));
    let (a, b) = (Host::new("a"), Host::new("b"));
    let (_a, _b) = (Place::open(&first, &a).await, Place::open(&second, &b).await);
    let channel = channel(Balance::LeastOutstanding, &[&first, &second]);
    hello(&channel, "warm").await.unwrap();
    until_ready(&channel, 2).await;
    let held: Vec<_> = (0..6).map(|_| call(&channel, "hold")).collect();
    until("all wait", || a.seen_count("hold") + b.seen_count("hold") == 6).await;
    assert_eq!((a.seen_count("hold"), b.seen_count("hold")), (3, 3), "each takes its half");
    a.let_go(6);
    b.let_go(6);
    for call in held {
        call.await.unwrap().unwrap();
    }
}

/// Not a test: a server process to be killed, which writes down each call that it accepts.
#[tokio::test]
#[ignore = "run by another test, as a process to be killed"]
async fn child_server() {
    let (uri, log) = (std::env::var(CHILD_URI).unwrap(), std::env::var(CHILD_LOG).unwrap());
    let host = Host::new("child");
    let writer = host.clone();
    tokio::spawn(async move {
        until("it is killed", || {
            let held: Vec<_> =
                writer.seen().into_iter().filter(|s| s.name.starts_with("hold")).map(|s| s.name).collect();
            std::fs::write(format!("{log}.new"), held.join("\n")).unwrap();
            std::fs::rename(format!("{log}.new"), &log).unwrap();
            false
        })
        .await;
    });
    Server::builder().add_service(host.service()).serve(&uri).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_fails_only_what_it_had_accepted() {
    let street = Street::new();
    let (first, second, log) = (street.shm("child"), street.shm("b"), street.path("log"));
    let b = Host::new("b");
    let _b = Place::open(&second, &b).await;
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &path_of(module_path!(), "child_server"), "--ignored", "--quiet"])
        .env(CHILD_URI, &first)
        .env(CHILD_LOG, &log)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // Calls named "quick" may be made again, those named "hold" not: there is no policy for all.
    let config = r#"{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5, "initialBackoff": "0.001s",
        "maxBackoff": "0.01s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}]}"#;
    let retrying = Channel::builder(&*first).endpoint(&*second).balance(Balance::RoundRobin);
    let retrying = retrying.service_config(config).connect_lazy().unwrap();
    let plain = channel(Balance::RoundRobin, &[&first, &second]);
    for channel in [&retrying, &plain] {
        hello(channel, "warm").await.unwrap();
        until_ready(channel, 2).await;
    }
    let held: Vec<_> = (0..10).map(|number| call(&plain, &format!("hold {number}"))).collect();
    let in_child = || std::fs::read_to_string(&log).unwrap_or_default().lines().count();
    until("half of them are with the child", || in_child() == 5 && b.seen_count("hold") == 5).await;
    let stop = Arc::new(AtomicBool::new(false));
    let storm: Vec<_> = (0..4)
        .map(|_| {
            let (channel, stop) = (retrying.clone(), stop.clone());
            tokio::spawn(async move {
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) {
                    hello(&channel, "quick").await.expect("made again elsewhere");
                    count += 1;
                }
                count
            })
        })
        .collect();
    until("calls flow", || b.seen_count("quick") > 50).await;
    child.kill().unwrap();
    child.wait().unwrap();
    // Exactly what the child had accepted fails, and is not made again.
    until_ready(&plain, 1).await;
    let more = b.seen_count("quick") + 50;
    until("calls go on", || b.seen_count("quick") > more).await;
    stop.store(true, Ordering::Relaxed);
    for task in storm {
        assert!(task.await.unwrap() > 0);
    }
    for _ in 0..20 {
        assert_eq!(hello(&plain, "after").await.unwrap(), "b", "nobody is sent to the dead");
    }
    b.let_go(5);
    let accepted = std::fs::read_to_string(&log).unwrap();
    let mut failed = 0;
    for (number, call) in held.into_iter().enumerate() {
        let was_accepted = accepted.lines().any(|name| name == format!("hold {number}"));
        match call.await.unwrap() {
            Ok(name) => assert!(name == "b" && !was_accepted),
            Err(status) => {
                assert!(was_accepted && status.code() == Code::Unavailable, "{status}");
                failed += 1;
            }
        }
    }
    assert_eq!((failed, b.seen_count("hold")), (5, 5), "none was made twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_its_leave_fails_nothing() {
    let street = Street::new();
    for (leaving, staying) in [(street.shm("a"), street.http()), (street.http(), street.shm("b"))] {
        let (a, b) = (Host::new("a"), Host::new("b"));
        let place = Place::open(&leaving, &a).await;
        let _b = Place::open(&staying, &b).await;
        let channel = channel(Balance::RoundRobin, &[&leaving, &staying]);
        hello(&channel, "warm").await.unwrap();
        until_ready(&channel, 2).await;
        let stop = Arc::new(AtomicBool::new(false));
        let storm: Vec<_> = (0..8)
            .map(|_| {
                let (channel, stop) = (channel.clone(), stop.clone());
                tokio::spawn(async move {
                    while !stop.load(Ordering::Relaxed) {
                        hello(&channel, "quick").await.expect("answered there, or made elsewhere");
                    }
                })
            })
            .collect();
        until("calls flow to both", || a.seen_count("quick") > 50 && b.seen_count("quick") > 50).await;
        place.stop().await;
        let more = b.seen_count("quick") + 50;
        until("calls go on", || b.seen_count("quick") > more).await;
        stop.store(true, Ordering::Relaxed);
        for task in storm {
            task.await.unwrap();
        }
    }
}
