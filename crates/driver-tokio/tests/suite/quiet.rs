//! What waiting costs: others' timers while calls spin, and the processor while nothing happens.

use std::time::{Duration, Instant};

use tollfree_driver_tokio::*;
use tollfree_testkit::{TimeLimit, alone, cpu_time};

use crate::echo::{Apart, Echo, check_calls, config, connect, quiet_call, read_message, runtimes, soon};

#[test]
fn timers_of_other_tasks_are_on_time_while_calls_spin() {
    alone!();
    let _limit = TimeLimit::seconds(60);
    // Two shared processors and a server that spins too: the median is what the runtime does, the rest is the machine.
    for policy in [WaitPolicy::Adaptive, WaitPolicy::Poll] {
        let server = Apart::start(config(WaitPolicy::Adaptive));
        for runtime in runtimes() {
            let late = runtime.block_on(async {
                let client = connect(server.echo(), policy).await;
                let quiet = quiet_call(&client).await;
                let spinning = tokio::spawn(async move { drop(read_message(&quiet).await) });
                let calling = tokio::spawn(async move {
                    loop {
                        check_calls(&client, 100).await;
                    }
                });
                let mut late = Vec::new();
                for _ in 0..50 {
                    let due = Instant::now() + Duration::from_millis(5);
                    tokio::time::sleep_until(due.into()).await;
                    late.push(due.elapsed());
                }
                spinning.abort();
                calling.abort();
                late.sort();
                late
            });
            assert!(
                late[25] < Duration::from_millis(20),
                "{policy:?}: median {:?}, worst {:?}",
                late[25],
                late[49]
            );
        }
    }
}

#[test]
fn an_idle_session_uses_no_processor() {
    alone!();
    let _limit = TimeLimit::seconds(60);
    for policy in [WaitPolicy::Adaptive, WaitPolicy::LowLatency, WaitPolicy::Park] {
        for runtime in runtimes() {
            runtime.block_on(async {
                // Both sides in this process: what they use together is counted.
                let server = Echo::start(config(policy));
                let client = connect(&server, policy).await;
                check_calls(&client, 200).await;
                let quiet = quiet_call(&client).await;
                let reading = tokio::spawn(async move { drop(read_message(&quiet).await) });
                tokio::time::sleep(Duration::from_millis(300)).await;
                let before = cpu_time();
                tokio::time::sleep(Duration::from_secs(1)).await;
                let used = cpu_time() - before;
                assert!(
                    used < Duration::from_millis(50),
                    "{policy:?}: {used:?} of processor in an idle second"
                );
                soon("a call after idling", check_calls(&client, 1)).await;
                reading.abort();
            });
        }
    }
}
