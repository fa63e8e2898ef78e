//! Calls that are routed by headers and weights, and copied to a second group.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tollfree_stubs::probe::Ask;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tonic::transport::Channel;
use tonic::{Code, Request};

use super::lab::{Attached, Lab, PATIENCE};
use super::reload::reload;

const GROUPS: &str = "limits.attach_wait_ms = 1\n[groups.a]\nservices = [\"tollfree.probe.v1.Probe\"]\n[groups.b]\nservices = []\n";

fn begun(attached: &Attached) -> usize {
    attached.probe.begun.load(Ordering::SeqCst)
}

async fn call(client: &ProbeClient<Channel>, tester: bool) -> Result<(), tonic::Status> {
    let mut request = Request::new(Ask { body: vec![3; 1000], ..Ask::default() });
    if tester {
        request.metadata_mut().insert("x-tester", "yes".parse().unwrap());
    }
    client.clone().unary(request).await.map(drop)
}

/// Two groups with the same service: only `a` would get its calls without rules.
async fn two(rules: &str) -> (Lab, Attached, Attached, String) {
    let groups =
        "limits.attach_wait_ms = 1\n[groups.a]\n[groups.b]\n[routes]\n\"tollfree.probe.v1.Probe\" = \"a\"\n";
    let lab = Lab::start(&format!("{groups}{rules}")).await;
    let (a, b) = (lab.attach("a").await, lab.attach("b").await);
    (lab, a, b, groups.to_owned())
}

#[tokio::test]
async fn headers_and_weights_choose_a_group() {
    let (lab, a, b, groups) =
        two("[[route_rules]]\nheaders = { x-tester = \"y*\" }\ngroups = { b = 1 }\n").await;
    let client = lab.client().await;
    call(&client, false).await.unwrap();
    call(&client, true).await.unwrap();
    assert_eq!((begun(&a), begun(&b)), (1, 1));
    // The first rule that matches decides; another method has none.
    let rules = "[[route_rules]]\nmethods = [\"tollfree.probe.v1.Probe/Down\"]\ngroups = { b = 1 }\n\
                 [[route_rules]]\nmethods = [\"tollfree.probe.v1.Probe/Unary\"]\ngroups = { a = 3, b = 1 }\n";
    reload(&lab, &format!("{groups}{rules}")).await.unwrap();
    for _ in 0..400 {
        call(&client, true).await.unwrap();
    }
    let canary = begun(&b) - 1;
    assert!((60..=140).contains(&canary), "{canary} of 400 with a weight of a quarter");
    // A policy looks at the group that was chosen.
    let config = "limits.attach_wait_ms = 1\nlisteners.world.policy = \"p\"\n[groups.a]\n[groups.b]\n[routes]\n\"tollfree.probe.v1.Probe\" = \"a\"\n\
                  [policies.p]\ngroups = [\"a\"]\n[[route_rules]]\nheaders = { x-tester = \"*\" }\ngroups = { b = 1 }\n";
    reload(&lab, config).await.unwrap();
    call(&client, false).await.unwrap();
    assert_eq!(call(&client, true).await.unwrap_err().code(), Code::Unimplemented);
}

#[tokio::test]
async fn a_mirror_gets_copies_and_is_never_seen() {
    let mirror = |more: &str| format!("[[route_rules]]\nmirror = {{ group = \"b\"{more} }}\n");
    let (lab, a, b, groups) = two(&mirror("")).await;
    let client = lab.client().await;
    let copies = |became: &str| format!("tollfree_gateway_copies_total{{group=\"b\",became=\"{became}\"}}");
    for _ in 0..20 {
        call(&client, false).await.unwrap();
    }
    lab.until_figure(&copies("answered"), |count| count == 20.0).await;
    assert_eq!((begun(&a), begun(&b)), (20, 20));
    // Streams are copied, too.
    let asks = (0..5).map(|_| Ask { body: vec![1; 100], ..Ask::default() });
    let answer = client.clone().up(futures_util::stream::iter(asks)).await.unwrap().into_inner();
    assert_eq!(answer.seen_count, 5);
    lab.until_figure(&copies("answered"), |count| count == 21.0).await;
    // One that fails.
    b.probe.failures.store(usize::MAX, Ordering::SeqCst);
    call(&client, false).await.unwrap();
    lab.until_figure(&copies("failed"), |count| count == 1.0).await;
    b.probe.failures.store(0, Ordering::SeqCst);
    // One that is too long is not copied whole.
    let long = Ask { body: vec![3; 1 << 20], ..Ask::default() };
    client.clone().unary(long).await.unwrap();
    lab.until_figure(&copies("failed"), |count| count == 2.0).await;
    // One whose group is gone.
    b.stop().await;
    let began = Instant::now();
    call(&client, false).await.unwrap();
    assert!(began.elapsed() < PATIENCE);
    lab.until_figure(&copies("failed"), |count| count == 3.0).await;
    reload(&lab, &groups).await.unwrap();
    call(&client, false).await.unwrap();
    assert_eq!(begun(&a), 25);
}

#[tokio::test]
async fn a_mirror_that_hangs_holds_no_more_than_its_bound_and_delays_nobody() {
    let (lab, a, b, _groups) = two("[[route_rules]]\nmirror = { group = \"b\", concurrent = 3 }\n").await;
    let client = lab.client().await;
    let copies = |became: &str| format!("tollfree_gateway_copies_total{{group=\"b\",became=\"{became}\"}}");
    let held = || Ask { wait_ms: 1, ..Ask::default() };
    let began = Instant::now();
    for _ in 0..10 {
        let mut client = client.clone();
        let mut request = Request::new(held());
        request.set_timeout(Duration::from_secs(50));
        let call = tokio::spawn(async move { client.unary(request).await });
        let count = begun(&a) + 1;
        while begun(&a) < count && !call.is_finished() {
            assert!(began.elapsed() < PATIENCE);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // The call itself is let go, its copy hangs.
        a.probe.gate.notify_one();
        let answered = tokio::time::timeout(PATIENCE, call).await.unwrap().unwrap();
        assert!(answered.is_ok(), "{answered:?}");
    }
    assert_eq!(lab.figure(&copies("left_out")).await, 7.0);
    assert_eq!(begun(&b), 3);
    for _ in 0..3 {
        b.probe.gate.notify_one();
    }
    lab.until_figure(&copies("answered"), |count| count == 3.0).await;
}

#[tokio::test]
async fn a_group_that_is_not_there_is_not_replaced_by_another() {
    let lab = Lab::start(&format!("{GROUPS}[[route_rules]]\ngroups = {{ b = 1 }}\n")).await;
    let _a = lab.attach("a").await;
    let client = lab.client().await;
    assert_eq!(call(&client, false).await.unwrap_err().code(), Code::Unavailable);
}
