//! What carries a client's calls: HTTP/2 to the shepherd.

use std::time::Duration;

use super::lab::Way;
pub(crate) use super::shepherd::attach;
use super::shepherd::outside;

/// Handlers see what HTTP/2 would have brought.
pub(crate) const AS_HTTP: bool = true;

/// Calls come by HTTP/2 whatever the way.
pub(crate) const IS_HTTP2: bool = true;

pub(crate) type AnyChannel = tollfree::Channel;

/// Connects as soon as somebody listens.
pub(crate) async fn connect(way: Way, uri: &str) -> AnyChannel {
    let is_shepherded = matches!(way, Way::Shepherded | Way::Streamed);
    let address = if is_shepherded { outside(uri) } else { uri.to_owned() };
    for _ in 0..3000 {
        if let Ok(channel) = tollfree::Channel::connect(&address).await {
            if is_shepherded {
                super::shepherd::attached(&channel).await;
            }
            return channel;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("nobody listens at {address}");
}
