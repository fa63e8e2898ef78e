//! Registers: values that are changed one by one while a gateway runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinSet;
use tollfree_control::{Register, State, StateError};
use tollfree_stubs::probe::Ask;
use tonic::Code;

use super::lab::{Lab, PATIENCE};
use super::probe::Probe;
use super::reload::reload;

async fn register(lab: &Lab, name: &str) -> (String, String) {
    let all = Register::read_all(&lab.backends()).await.unwrap();
    let register = all.into_iter().find(|register| register.name == name).unwrap();
    (register.value.to_string(), register.origin)
}

#[tokio::test]
async fn a_register_holds_until_the_config_is_read_again() {
    let lab = Lab::start("limits.message_bytes = 3000\n").await;
    let _attached = lab.attach("default").await;
    let mut client = lab.client().await;
    let mut send = async |len| {
        let sent = client.unary(Ask { body: vec![1; len], ..Ask::default() }).await;
        sent.map(drop).map_err(|status| status.code())
    };
    let words = |value: &str, origin: &str| (value.to_owned(), origin.to_owned());
    assert_eq!(register(&lab, "limits.message_bytes").await, words("3000", "gateway.toml:4"));
    send(2000).await.unwrap();

    let set = Register::set(&lab.backends(), "limits.message_bytes", "1000").await.unwrap();
    assert_eq!(
        (set.value.to_string(), set.origin.as_str(), set.unit.as_str()),
        ("1000".into(), "ctl", "bytes")
    );
    assert_eq!(send(2000).await, Err(Code::ResourceExhausted));
    Register::set(&lab.backends(), "load_balancing.policy", "affinity").await.unwrap();
    let state = State::read(&lab.backends()).await.unwrap();
    assert_eq!(state.load_balancing["default"].policy, tollfree_gateway::Policy::Affinity);

    reload(&lab, "").await.unwrap();
    assert_eq!(register(&lab, "limits.message_bytes").await, words("4194304", "default"));
    assert_eq!(register(&lab, "load_balancing.policy").await, words("\"least_outstanding\"", "default"));
    send(2000).await.unwrap();
}

#[tokio::test]
async fn nonsense_is_refused_and_the_old_value_stays() {
    let lab = Lab::start("load_balancing.depth = 7\n[groups.default]\n").await;
    let before = Register::read_all(&lab.backends()).await.unwrap();
    for (name, value, word) in [
        ("load_balancing.depth", "-1", "load_balancing.depth"),
        ("load_balancing.depth", "many", "many"),
        ("load_balancing.functions", "0", "1 to 16"),
        ("load_balancing.policy", "nearest", "round_robin"),
        ("limits.streams", "0", "at least 1"),
        ("limits.straems", "1", "ctl show"),
        ("backends.wait", "low-latency", "can't be changed"),
        ("groups.other.load_balancing.depth", "1", "can't be changed"),
        ("device.batch", "0", "1 to 64"),
        ("device.doorbell", "coherent:65", "1 to 64"),
        ("device.spin_us", "-5", "1000000"),
        ("groups.default.device.hold_us", "20000", "10000"),
    ] {
        let error = Register::set(&lab.backends(), name, value).await.unwrap_err();
        assert!(matches!(&error, StateError::Refused(words) if words.contains(word)), "{name}: {error}");
    }
    assert_eq!(Register::read_all(&lab.backends()).await.unwrap(), before);
}

#[tokio::test]
async fn how_calls_are_announced_is_seen_in_state_and_figures() {
    let lab = Lab::start("device.batch = 4\n[groups.default]\n").await;
    let _attached = lab.attach("default").await;
    let mut client = lab.client().await;
    lab.reloader.set("groups.default.device.doorbell", "doorbell-batch:3").unwrap();
    for _ in 0..5 {
        client.unary(Ask::default()).await.unwrap();
    }
    let device = &State::read(&lab.backends()).await.unwrap().devices["default"];
    let registers = (device.registers.batch.0.to_string(), device.registers.doorbell.0.to_string());
    assert_eq!(registers, ("4".into(), "doorbell-batch:3".into()));
    assert!(device.publications >= 5 && device.sends >= 5, "{device:?}");
    let text = lab.page().await;
    let info = "tollfree_gateway_device{group=\"default\",batch=\"4\",doorbell=\"doorbell-batch:3\",spin_us=\"auto\",poll_load=\"0\"} 1";
    assert!(text.contains(info), "{text}");
    assert!(lab.figure("tollfree_gateway_publications_total{group=\"default\"}").await >= 5.0);
}

/// What a register is set to and back, so that each has another value for a while.
fn other(register: &Register) -> String {
    match (register.name.rsplit('.').next(), register.value.as_u64()) {
        (Some("policy"), _) => "affinity".to_owned(),
        (Some("depth"), _) => "1".to_owned(),
        (Some("batch"), _) => "5".to_owned(),
        (Some("doorbell"), _) => "coherent:4".to_owned(),
        (Some("spin_us"), _) => "20".to_owned(),
        (Some("functions"), Some(count)) => (count % 16 + 1).to_string(),
        (_, Some(count)) => (count + 1).to_string(),
        (_, None) => panic!("{register:?} is no number"),
    }
}

/// No call is lost, and nobody waits for a change: it holds no lock that a call needs but the queue's, and its own work is short. That work
/// is measured as processor time, which doesn't count what other processes take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_register_changes_under_load_without_a_lost_call_or_a_pause() {
    let lab = Lab::start("[groups.default]\n").await;
    let _one = lab.attach("default").await;
    let _other = lab.attach_backend_connections("default", 1, Probe::default()).await;
    let (is_over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut clients = JoinSet::new();
    for _ in 0..4 {
        let mut client = lab.client().await;
        let (is_over, answered) = (is_over.clone(), answered.clone());
        clients.spawn(async move {
            while !is_over.load(Ordering::SeqCst) {
                client.unary(Ask::default()).await.unwrap();
                answered.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    let some_more = async || {
        let (goal, began) = (answered.load(Ordering::SeqCst) + 8, Instant::now());
        while answered.load(Ordering::SeqCst) < goal {
            assert!(began.elapsed() < PATIENCE, "calls stand still");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let processor_time = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    let mut longest = Duration::ZERO;
    for register in Register::read_all(&lab.backends()).await.unwrap() {
        let was = register.value.as_str().map_or_else(|| register.value.to_string(), str::to_owned);
        for value in [other(&register), was] {
            let began = processor_time();
            lab.reloader.set(&register.name, &value).unwrap_or_else(|error| panic!("{error}"));
            longest = longest.max(processor_time() - began);
            some_more().await;
        }
    }
    for policy in ["round_robin", "static", "affinity", "least_outstanding"] {
        lab.reloader.set("load_balancing.policy", policy).unwrap();
        some_more().await;
    }
    for mode in ["inline", "doorbell", "doorbell-batch:11", "coherent:1", "coherent:4", "auto"] {
        for batch in ["1", "3", "64", "auto"] {
            lab.reloader.set("device.batch", batch).unwrap();
            let began = processor_time();
            lab.reloader.set("groups.default.device.doorbell", mode).unwrap();
            longest = longest.max(processor_time() - began);
            some_more().await;
        }
    }
    is_over.store(true, Ordering::SeqCst);
    while let Some(client) = tokio::time::timeout(PATIENCE, clients.join_next()).await.expect("calls end") {
        client.expect("no call is lost");
    }
    println!("the longest change took {longest:?} of processor time");
    assert!(longest < Duration::from_millis(5), "{longest:?}");
}
