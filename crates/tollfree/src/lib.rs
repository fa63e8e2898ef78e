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
//! A handler finds its caller's process and user, as the kernel vouches for them, in the request's extensions as
//! [`PeerIdentity`]. Errors are gRPC statuses that name the socket: a peer that dies is `UNAVAILABLE`.
#![forbid(unsafe_code)]

mod attempts;
mod balance;
pub mod blocking;
mod body;
mod call;
mod channel;
#[doc(hidden)]
pub mod direct;
mod endpoint;
mod framing;
mod health;
mod http2;
mod http_call;
mod inflow;
mod last_words;
mod layers;
mod linger;
mod load;
mod metadata;
mod names;
mod outflow;
mod path;
mod payloads;
mod replay;
mod retry;
mod server;
mod service_config;
mod serving;
mod session_task;
pub mod shepherd;
mod speech;
mod status;
mod tonic_channel;
mod trace;
mod upgrade;

pub use balance::Balance;
pub use body::ResponseBody;
pub use channel::{CallFuture, Channel, ChannelBuilder, ChannelError, WaitForReady};
pub use direct::{Generated, Way};
pub use layers::{AnyFuture, AnyService};
pub use load::ServerLoad;
pub use path::{EndpointPath, EndpointState, Path, PayloadPath, Transport};
pub use payloads::{PayloadCounts, Payloads, REF_THRESHOLD_DEFAULT, WhenPoolFull};
pub use server::{Attaching, Server};
pub use service_config::ServiceConfigError;
pub use status::ServeError;
pub use tollfree_pool as pool;
pub use tollfree_pool::Payload;
pub use tollfree_transport::{ConnectError, PeerIdentity, PeerPolicy, Refusals, WaitPolicy, Waits, waits};
pub use tonic_channel::{TonicChannel, TonicFuture};
pub use upgrade::Upgrade;
