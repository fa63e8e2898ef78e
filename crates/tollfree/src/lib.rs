//! gRPC without the RPC tax: clients and servers that tonic generates, talking through shared memory.
//!
//! On one host, replace the address. The stubs, interceptors, codecs, health and reflection services stay as they are:
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! // server
//! # let (_, greeter) = tonic_health::server::health_reporter();
//! tollfree::Server::builder().add_service(greeter).serve("shm:///run/app/greeter.sock").await?;
//! // client
//! let channel = tollfree::Channel::connect("shm:///run/app/greeter.sock").await?;
//! // let mut client = GreeterClient::new(channel);
//! # Ok(())
//! # }
//! ```
//!
//! A handler finds its caller's process and user, as the kernel vouches for them, in the request's extensions as tonic's
//! [`UdsConnectInfo`](tonic::transport::server::UdsConnectInfo). Errors are gRPC statuses that name the socket: a peer that dies is `UNAVAILABLE`.
#![forbid(unsafe_code)]

pub mod by_bytes;
mod call;
mod channel;
#[doc(hidden)]
pub mod direct;
mod endpoint;
pub mod gateway;
mod http;
mod message;
mod metadata;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(not(feature = "metrics"))]
#[path = "metrics/absent.rs"]
mod metrics;
mod server;
mod status;
mod trouble;
mod typed;

pub use call::routing::WaitForReady;
pub use channel::blocking;
pub use channel::changing::Endpoint;
pub use channel::tonic_channel::{TonicChannel, TonicFuture};
pub use channel::{CallFuture, Channel, ChannelBuilder};
pub use endpoint::balance::Balance;
pub use endpoint::error::ChannelError;
pub use endpoint::path::{EndpointPath, EndpointState, Path, PayloadPath, Transport};
pub use endpoint::upgrade::Upgrade;
pub use http::response_body::ResponseBody;
pub use message::payloads::{
    PayloadCounts, Payloads, REF_THRESHOLD_DEFAULT, REF_THRESHOLD_ENCODED_DEFAULT, WhenPoolFull,
};
pub use message::pool_arena::arena_in_pool;
pub use message::streaming::Streaming;
pub use server::layers::{AnyFuture, AnyService};
pub use server::load::ServerLoad;
pub use server::{Attaching, Server};
pub use status::{ServeError, error_number};
pub use tollfree_balancer::ServiceConfigError;
pub use tollfree_driver_tokio::{ConnectError, PeerIdentity, PeerPolicy, Refusals, WaitPolicy, Waits, waits};
pub use tollfree_pool as pool;
pub use tollfree_pool::Payload;
pub use tower::discover::Change;
pub use typed::client::{Generated, Way};
