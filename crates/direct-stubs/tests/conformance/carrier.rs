//! What carries a client's calls: a channel of ours and nothing around it, so that they are direct.

use std::time::Duration;

use crate::lab::Way;

/// Handlers see what the application sent, and nothing else.
pub(crate) const AS_HTTP: bool = false;

pub(crate) type AnyChannel = tollfree::Channel;

/// Connects as soon as the server listens.
pub(crate) async fn connect(_: Way, uri: &str) -> AnyChannel {
    for _ in 0..2000 {
        if let Ok(channel) = tollfree::Channel::connect(uri).await {
            return channel;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("nobody listens at {uri}");
}
