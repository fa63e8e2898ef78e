//! Processes that come and go in a loop, or come and say nothing: few lines in the log, and nobody else waits for them.

use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::time::Instant;
use tollfree_stubs::probe::Ask;
use tollfree_testkit::Log;

use super::egress::via;
use super::lab::{Lab, backend_connections_of};
use super::raw;

/// Lines that the log has not got.
const LEFT_OUT: &str = "tollfree_gateway_log_lines_left_out_total";

/// The most lines of one kind: ten at once, and one a second.
fn most_since(began: Instant) -> usize {
    11 + began.elapsed().as_secs() as usize
}

/// How many of the gateway's lines have all of these words.
fn count(log: &Log, words: &[&str]) -> usize {
    let text = log.text();
    let ours = text.lines().filter(|line| line.contains("tollfree_gateway::"));
    ours.filter(|line| words.iter().all(|word| line.contains(word))).count()
}

#[tokio::test]
async fn a_process_that_comes_and_goes_in_a_loop_writes_few_lines_and_hides_no_other() {
    let (log, _guard) = Log::begin();
    let lab = Lab::start("[groups.loud]\n[groups.calm]\n").await;
    let began = Instant::now();
    for _ in 0..150 {
        // Whom the gateway refuses may see no more than a socket that is closed.
        _ = raw::try_attach(&lab, "loud").await;
        _ = raw::try_attach(&lab, "unknown").await;
    }
    // They are let in, or refused, one after the other.
    let calm = lab.attach("calm").await;
    lab.until_figure(&backend_connections_of("loud"), |count| count == 0.0).await;
    calm.stop().await;
    lab.until_figure(&backend_connections_of("calm"), |count| count == 0.0).await;
    assert!(lab.refused("attach").await >= 100.0);
    let most = most_since(began);
    for words in
        [&["attached", "group=\"loud\""][..], &["gone"], &["a process was refused something", "attach"]]
    {
        // One more of those that leave is the calm one.
        let lines = count(&log, words);
        assert!((1..=most + 1).contains(&lines), "{words:?}: {lines} lines, {most} at most");
    }
    assert_eq!(count(&log, &["attached", "group=\"calm\""]), 1);
}

#[tokio::test]
async fn a_process_that_calls_where_it_may_not_in_a_loop_writes_few_lines() {
    let (log, _guard) = Log::begin();
    let lab = Lab::start("[groups.loud]\n[groups.forbidden]\nusers = [4294967290]\n").await;
    let (began, before) = (Instant::now(), lab.figure(LEFT_OUT).await);
    for _ in 0..150 {
        drop(raw::via(&lab, "group:forbidden").await);
    }
    lab.until_figure("tollfree_gateway_refusals_total{reason=\"target\"}", |count| count >= 100.0).await;
    let lines = count(&log, &["a client was refused something", "reason=\"target\""]);
    assert!((1..=most_since(began)).contains(&lines), "{lines} lines");
    let left_out = lab.figure(LEFT_OUT).await - before;
    assert!(left_out >= 100.0 - lines as f64, "{left_out} lines are counted as left out");
}

/// Targets whose addresses can't be found, or can't all be connected to: each is opened anew with each call.
#[tokio::test]
async fn a_process_that_has_targets_opened_in_a_loop_writes_few_lines() {
    let (log, _guard) = Log::begin();
    let (unknown, crowded) = ("http://inventory:1", "http://inventory:2");
    let lab = Lab::start(&format!(
        "limits.egress_idle_ms = 1\nlimits.egress_connections = 1\n\
         [groups.default]\nvia = [\"{unknown}\", \"{crowded}\"]\n\
         [egress.targets.\"{unknown}\"]\naddresses = [\"no..name:1\"]\n\
         [egress.targets.\"{crowded}\"]\naddresses = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\n"
    ))
    .await;
    let began = Instant::now();
    let closed = "tollfree_gateway_refusals_total{reason=\"egress_idle\"}";
    for (target, words) in
        [(unknown, "can't be found"), (crowded, "a group has no connections left for addresses")]
    {
        let mut client = via(&lab, target).await;
        let before = lab.figure(closed).await;
        for round in 1..=50 {
            client.unary(Ask::default()).await.expect_err("nobody is there");
            lab.until_figure(closed, |count| count >= before + f64::from(round)).await;
        }
        let lines = count(&log, &["group=\"default\"", words]);
        assert!((1..=most_since(began)).contains(&lines), "{lines} lines: {words}");
    }
}

#[tokio::test]
async fn silent_and_crowding_processes_delay_nobody_who_attaches() {
    let lab = Lab::start("[groups.loud]\n[groups.calm]\n").await;
    let path = lab.file("backends.sock");
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(UnixStream::connect(&path).await.unwrap());
    }
    let crowd = async {
        let mut kept = Vec::new();
        loop {
            kept.extend(raw::try_attach(&lab, "loud").await);
            kept.push(raw::via(&lab, "group:loud").await);
            kept.truncate(20);
            tokio::task::yield_now().await;
        }
    };
    let calm = async {
        for _ in 0..5 {
            lab.attach("calm").await.stop().await;
            lab.until_figure(&backend_connections_of("calm"), |count| count == 0.0).await;
        }
    };
    tokio::select! {
        () = crowd => unreachable!("it has no end"),
        attached = tokio::time::timeout(Duration::from_secs(60), calm) => attached.expect("they are let in"),
    }
    // Who says nothing is not what they have waited for: its time is not over.
    let waits = silent.iter_mut().any(|silent| {
        let mut byte = [0];
        let mut read = std::pin::pin!(silent.read(&mut byte));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        read.as_mut().poll(&mut cx).is_pending()
    });
    assert!(waits, "all who say nothing were sent away meanwhile");
}
