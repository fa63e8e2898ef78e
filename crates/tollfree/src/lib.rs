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

mod body;
mod call;
mod channel;
mod framing;
mod metadata;
mod server;
mod serving;
mod session_task;
mod status;

pub use body::ResponseBody;
pub use channel::{CallFuture, Channel, ChannelBuilder, ChannelError, Path};
pub use server::Server;
pub use status::ServeError;
pub use tollfree_transport::{ConnectError, PeerIdentity, PeerPolicy, WaitPolicy};
