//! What carries a client's calls: HTTP/2 to the gateway.

use std::time::Duration;

pub(crate) use super::gateway::attach;
use super::gateway::outside;
use super::lab::Way;

/// Handlers see what HTTP/2 would have brought.
pub(crate) const AS_HTTP: bool = true;

/// Calls come by HTTP/2 whatever the way.
pub(crate) const IS_HTTP2: bool = true;

pub(crate) type AnyChannel = tollfree::Channel;

/// Connects as soon as somebody listens.
pub(crate) async fn connect(way: Way, uri: &str) -> AnyChannel {
    let is_behind_gateway = matches!(way, Way::BehindGateway | Way::Streamed);
    let address = if is_behind_gateway { outside(uri) } else { uri.to_owned() };
    for _ in 0..3000 {
        if let Ok(channel) = tollfree::Channel::connect(&address).await {
            if is_behind_gateway {
                super::gateway::attached(&channel).await;
            }
            return channel;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("nobody listens at {address}");
}
