//! The client's cases, named and ordered as in gRPC's description. Each asserts what the description asks for, and as
//! much more as can be told.

mod compression;
mod endings;
mod load;
mod metadata;
mod plain;

use std::pin::Pin;

use tonic::codec::CompressionEncoding::Gzip;
use tonic::{Request, Status};

use crate::channel::{AnyChannel, Target};
use crate::layers::ClientSide;
use crate::testing::test_service_client::TestServiceClient;
use crate::testing::{Payload, PayloadType, ResponseParameters, SimpleRequest, StreamingOutputCallRequest};

/// Why a case did not pass.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// No channel to the server.
    #[error("no connection to {uri}: {reason}")]
    Connect {
        /// The server's address.
        uri: String,
        /// What the last attempt said.
        reason: String,
    },
    /// A call that should have succeeded ended with a status.
    #[error("{0}")]
    Status(#[from] Status),
    /// The server did other than the description says.
    #[error("{0}")]
    Wrong(String),
    /// The server doesn't have the feature that the case is about.
    #[error("the server does not have {0}")]
    NotOffered(&'static str),
}

/// Fails the case unless something holds.
macro_rules! ensure {
    ($holds:expr, $($what:tt)+) => {
        if !$holds {
            return Err($crate::cases::Failure::Wrong(format!($($what)+)));
        }
    };
}
use ensure;

type Outcome = Result<(), Failure>;

/// One case.
#[derive(Clone, Copy)]
pub struct Case {
    /// As in the description.
    pub name: &'static str,
    run: fn(Client) -> Pin<Box<dyn Future<Output = Outcome> + Send>>,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Case {
    /// Runs it against a server, on a channel of its own.
    ///
    /// # Errors
    /// [`Failure`], which says what was expected.
    pub async fn run(&self, target: &Target, load: Load) -> Result<(), Failure> {
        let channel = target.connect().await?;
        (self.run)(Client { target: target.clone(), channel, load }).await
    }
}

macro_rules! cases {
    ($($topic:ident::$name:ident),* $(,)?) => {
        /// All of them.
        pub const CASES: &[Case] = &[
            $(Case { name: stringify!($name), run: |client| Box::pin($topic::$name(client)) }),*
        ];
    };
}

cases![
    plain::empty_unary,
    plain::large_unary,
    compression::client_compressed_unary,
    compression::server_compressed_unary,
    plain::client_streaming,
    compression::client_compressed_streaming,
    plain::server_streaming,
    compression::server_compressed_streaming,
    plain::ping_pong,
    plain::empty_stream,
    metadata::custom_metadata,
    endings::status_code_and_message,
    endings::special_status_message,
    endings::unimplemented_method,
    endings::unimplemented_service,
    endings::cancel_after_begin,
    endings::cancel_after_first_response,
    endings::timeout_on_sleeping_server,
    load::concurrent_large_unary,
    load::rpc_soak,
    load::channel_soak,
    load::pick_first_unary,
    metadata::orca_per_rpc,
    metadata::orca_oob,
];

/// How much the cases do that are about many calls.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Calls of `concurrent_large_unary`; the description says 1000.
    pub parallel_count: usize,
    /// Calls of each soak test; the description's default is 10.
    pub soak_count: usize,
}

/// What a case gets.
struct Client {
    target: Target,
    channel: AnyChannel,
    load: Load,
}

impl Client {
    fn stub(&self) -> TestServiceClient<ClientSide<AnyChannel>> {
        stub(&self.channel)
    }
}

fn stub(channel: &AnyChannel) -> TestServiceClient<ClientSide<AnyChannel>> {
    TestServiceClient::new(ClientSide(channel.clone())).accept_compressed(Gzip)
}

/// Sizes that several cases share.
const LARGE_REQUEST_LEN: usize = 271_828;
const LARGE_RESPONSE_LEN: usize = 314_159;
const REQUEST_LENS: [usize; 4] = [27_182, 8, 1_828, 45_904];
const RESPONSE_LENS: [i32; 4] = [31_415, 9, 2_653, 58_979];

fn zeros(len: usize) -> Option<Payload> {
    Some(Payload { r#type: PayloadType::Compressable.into(), body: vec![0; len] })
}

fn large() -> SimpleRequest {
    SimpleRequest {
        response_size: LARGE_RESPONSE_LEN as i32,
        payload: zeros(LARGE_REQUEST_LEN),
        ..SimpleRequest::default()
    }
}

/// One request of a stream, and what it asks for.
fn asking(request_len: usize, response_lens: &[i32]) -> StreamingOutputCallRequest {
    let parameters = response_lens.iter().map(|&size| ResponseParameters { size, ..Default::default() });
    StreamingOutputCallRequest {
        response_parameters: parameters.collect(),
        payload: zeros(request_len),
        ..StreamingOutputCallRequest::default()
    }
}

fn check_zeros(payload: Option<&Payload>, len: usize) -> Outcome {
    let Some(payload) = payload else {
        return Err(Failure::Wrong(format!("a payload of {len} bytes was asked for, and none came")));
    };
    ensure!(
        payload.r#type == i32::from(PayloadType::Compressable),
        "a payload of type {} came",
        payload.r#type
    );
    ensure!(
        payload.body.len() == len,
        "a payload of {len} bytes was asked for, and {} came",
        payload.body.len()
    );
    ensure!(payload.body.iter().all(|byte| *byte == 0), "the payload is not all zeros");
    Ok(())
}

/// A request whose messages are sent by hand, one when the case wants one; dropping the sender half-closes.
fn by_hand<T: Send + 'static>()
-> (tokio::sync::mpsc::Sender<T>, Request<impl tokio_stream::Stream<Item = T> + Send + 'static>) {
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    (sender, Request::new(tokio_stream::wrappers::ReceiverStream::new(receiver)))
}

async fn send<T>(sender: &tokio::sync::mpsc::Sender<T>, message: T) -> Outcome {
    let sent = sender.send(message).await;
    sent.map_err(|_| Failure::Wrong("the call ended before its requests were sent".to_owned()))
}
