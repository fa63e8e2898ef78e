//! Streams that are cut, and ends that peers tell wrongly: whatever is not complete is an error at the other end.

mod answers;
mod clients;
mod codes;
mod header_lists;
mod silence;

use std::time::{Duration, Instant};

use crate::conformance::probe;

/// Longer than a busy machine takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for something that other tasks bring about.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "it does not happen that {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Connects as soon as somebody listens.
async fn connect(uri: &str) -> tollfree::Channel {
    let began = Instant::now();
    loop {
        match tollfree::Channel::connect(uri).await {
            Ok(channel) => return channel,
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
