//! What carries a client's calls: a channel of ours and nothing around it, so that they are direct.

use std::time::Duration;

use super::lab::{Way, until};

/// Handlers see what the application sent, and nothing else.
pub(crate) const AS_HTTP: bool = false;

/// Calls come by HTTP/2 whatever the way.
pub(crate) const IS_HTTP2: bool = false;

pub(crate) type AnyChannel = tollfree::Channel;

/// Has a server attach.
pub(crate) fn attach(server: tollfree::Server, _: Way, uri: &str) -> tollfree::Attaching {
    server.attach(uri)
}

/// Connects as soon as the server listens.
pub(crate) async fn connect(way: Way, uri: &str) -> AnyChannel {
    for _ in 0..2000 {
        let mut builder = tollfree::Channel::builder(uri);
        if way == Way::Moved {
            builder = builder.upgrade_directory(std::env::temp_dir());
        }
        if way == Way::BehindGateway {
            builder = builder.via("test://attached");
        }
        if let Ok(channel) = builder.connect().await {
            if way == Way::Moved {
                until("it has moved over", || channel.path().endpoints[0].peer.is_some()).await;
            }
            return channel;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("nobody listens at {uri}");
}
