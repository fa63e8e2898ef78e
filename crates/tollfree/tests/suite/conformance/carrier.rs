//! What carries a client's calls: a channel of ours, or tonic's own.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use tonic::body::Body;
use tower::Service;

use super::lab::{Way, until};

/// Handlers see what HTTP/2 would have brought.
pub(crate) const AS_HTTP: bool = true;

/// Calls come by HTTP/2 whatever the way.
pub(crate) const IS_HTTP2: bool = false;

type StdError = Box<dyn std::error::Error + Send + Sync>;

/// A channel of either kind.
#[derive(Clone, Debug)]
pub(crate) enum AnyChannel {
    Ours(tollfree::Channel),
    Tonic(tonic::transport::Channel),
}

impl Service<Request<Body>> for AnyChannel {
    type Response = Response<Body>;
    type Error = StdError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, StdError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        match self {
            AnyChannel::Ours(channel) => channel.poll_ready(cx).map_err(Into::into),
            AnyChannel::Tonic(channel) => channel.poll_ready(cx).map_err(Into::into),
        }
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match self {
            AnyChannel::Ours(channel) => {
                let call = channel.call(request);
                Box::pin(async move { Ok(call.await?.map(Body::new)) })
            }
            AnyChannel::Tonic(channel) => {
                let call = channel.call(request);
                Box::pin(async move { Ok(call.await?) })
            }
        }
    }
}

/// Has a server attach.
pub(crate) fn attach(server: tollfree::Server, _: Way, uri: &str) -> tollfree::Attaching {
    server.attach(uri)
}

/// Connects as soon as the server listens.
pub(crate) async fn connect(way: Way, uri: &str) -> AnyChannel {
    for _ in 0..2000 {
        let connected = match way {
            Way::Http2 => {
                let endpoint = tonic::transport::Endpoint::try_from(uri.to_string()).unwrap();
                endpoint.connect().await.map(AnyChannel::Tonic).ok()
            }
            Way::Parked => {
                let parked = tollfree::Channel::builder(uri).wait(tollfree::WaitPolicy::Park);
                parked.connect().await.map(AnyChannel::Ours).ok()
            }
            Way::Moved => {
                let moving = tollfree::Channel::builder(uri).upgrade_directory(std::env::temp_dir());
                match moving.connect().await {
                    Ok(channel) => {
                        until("it has moved over", || channel.path().endpoints[0].peer.is_some()).await;
                        Some(AnyChannel::Ours(channel))
                    }
                    Err(_) => None,
                }
            }
            Way::BehindGateway => {
                tollfree::Channel::via(uri, "test://attached").await.map(AnyChannel::Ours).ok()
            }
            _ => tollfree::Channel::connect(uri).await.map(AnyChannel::Ours).ok(),
        };
        if let Some(channel) = connected {
            return channel;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("nobody listens at {uri}");
}
