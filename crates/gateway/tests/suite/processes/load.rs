//! Calls from outside, one after the other by several clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tollfree::Channel;
use tollfree_stubs::probe::Ask;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tonic::Status;

use super::places::PATIENCE;

/// Clients that call until they are told to stop.
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
    clients: JoinSet<Vec<Status>>,
}

impl Load {
    /// Starts `count` clients with a connection each.
    pub(crate) fn start(address: SocketAddr, count: usize) -> Load {
        let mut load = Load {
            is_over: Arc::default(),
            answered: Arc::default(),
            failed: Arc::default(),
            clients: JoinSet::new(),
        };
        for number in 0..count {
            let (is_over, answered, failed) =
                (load.is_over.clone(), load.answered.clone(), load.failed.clone());
            load.clients.spawn(async move {
                // It goes on where a connection takes no further call, as HTTP/2 has it; a call that was sent is not sent again.
                let channel = Channel::builder(format!("http://{address}")).wait_for_ready(true);
                let mut client = ProbeClient::new(channel.connect_lazy().unwrap());
                let mut failures = Vec::new();
                while !is_over.load(Ordering::SeqCst) {
                    match call(&mut client, number).await {
                        Ok(()) => answered.fetch_add(1, Ordering::SeqCst),
                        Err(status) => {
                            failures.push(status);
                            failed.fetch_add(1, Ordering::SeqCst)
                        }
                    };
                }
                failures
            });
        }
        load
    }

    /// Waits until `count` more calls were answered.
    pub(crate) async fn until_answered(&self, count: usize) {
        let goal = self.answered.load(Ordering::SeqCst) + count;
        let began = tokio::time::Instant::now();
        while self.answered.load(Ordering::SeqCst) < goal {
            assert!(
                began.elapsed() < PATIENCE,
                "calls stand still; {} failed",
                self.failed.load(Ordering::SeqCst)
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Stops, and gives what calls failed with.
    pub(crate) async fn stop(mut self) -> Vec<Status> {
        self.is_over.store(true, Ordering::SeqCst);
        let mut failures = Vec::new();
        while let Some(client) =
            tokio::time::timeout(PATIENCE, self.clients.join_next()).await.expect("calls end")
        {
            failures.extend(client.unwrap());
        }
        failures
    }
}

/// One call: a message there and back, every third time as a stream.
async fn call(client: &mut ProbeClient<Channel>, number: usize) -> Result<(), Status> {
    let ask = Ask { body: vec![number as u8; 500], ..Ask::default() };
    if number.is_multiple_of(3) {
        let asks = futures_util::stream::iter([ask.clone(), ask]);
        let answer = client.up(asks).await?.into_inner();
        assert_eq!((answer.seen_count, answer.seen_len), (2, 1000));
    } else {
        let answer = client.unary(ask.clone()).await?.into_inner();
        assert_eq!(answer.body, ask.body);
    }
    Ok(())
}
