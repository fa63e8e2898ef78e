//! A process's life: calls by the million and a thousand sessions leave nothing behind.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tollfree_driver_tokio::*;
use tollfree_testkit::{Census, resident_kib};

use crate::echo::{self, Echo, alone_for, call, check_calls};

/// A debug build makes a fiftieth of the calls: what leaks a little in each shows all the same.
const CALL_COUNT: usize = if cfg!(debug_assertions) { 20_000 } else { 1_000_000 };
/// Calls at once.
const TASK_COUNT: usize = 8;
/// Both sides live in this process. Four bytes a call of a million; allocators keep as much for themselves at times.
const GROWTH_MAX_KIB: u64 = 4096;

/// Small calls mostly, a large one now and then, and some that are given up.
async fn make_calls(client: Arc<Attachment>, count: usize) {
    for idx in 0..count {
        let message = Bytes::from(vec![idx as u8; 1 + idx % 200]);
        match idx % 5000 {
            0 => {
                let large = Bytes::from(vec![1; 200_000]);
                assert_eq!(call(&client, large.clone()).await, Some(large));
            }
            1..20 => drop(echo::begin(&client, message).await.unwrap()),
            _ => assert_eq!(call(&client, message.clone()).await, Some(message)),
        }
    }
}

async fn make_calls_at_once(client: &Arc<Attachment>, count: usize) {
    let tasks: Vec<_> =
        (0..TASK_COUNT).map(|_| tokio::spawn(make_calls(client.clone(), count / TASK_COUNT))).collect();
    for task in tasks {
        task.await.unwrap();
    }
}

#[test]
fn a_million_calls_leave_nothing_behind() {
    alone_for(300, async {
        let server = Echo::start(Config::default());
        let empty = Census::take();
        let client = Arc::new(server.connect().await);
        make_calls_at_once(&client, CALL_COUNT / 10).await;
        // With the areas that the calls before have made, until these go by themselves.
        let (warm, resident) = (Census::take(), resident_kib());
        let began = Instant::now();
        make_calls_at_once(&client, CALL_COUNT).await;
        println!("{CALL_COUNT} calls in {:?}", began.elapsed());
        warm.assert_back();
        let grown = resident_kib().saturating_sub(resident);
        println!("{grown} KiB more than before");
        assert!(grown < GROWTH_MAX_KIB, "{grown} KiB more than {CALL_COUNT} calls before");
        assert_eq!(client.live_count(), 0);
        drop(client);
        server.next_end().await;
        empty.assert_back();
    });
}

#[test]
fn a_thousand_sessions_leave_nothing_behind() {
    alone_for(300, async {
        let server = Echo::start(Config::default());
        let honest = server.connect().await;
        check_calls(&honest, 10).await;
        let large = Bytes::from(vec![3; 300_000]);
        let mut before = None;
        for round in 0..=1100 {
            if round == 100 {
                before = Some((Census::take(), resident_kib()));
            }
            let client = server.connect().await;
            assert_eq!(call(&client, large.clone()).await, Some(large.clone()));
            check_calls(&client, 3).await;
            drop(client);
            server.next_end().await;
        }
        let (census, resident) = before.unwrap();
        census.assert_back();
        let grown = resident_kib().saturating_sub(resident);
        println!("{grown} KiB more than before");
        // One session's memory is 1.1 MiB: a leak of one in a hundred would be seen.
        assert!(grown < 8 * 1024, "{grown} KiB more than 1000 sessions before");
        check_calls(&honest, 10).await;
    });
}
