//! The test server.

use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio_stream::Stream;
use tonic::codec::CompressionEncoding::Gzip;
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::FILE_DESCRIPTOR_SET;
use crate::layers::{ServerSide, Trailing};
use crate::messages::Marks;
use crate::metrics::{Metrics, attach};
use crate::testing::test_service_server::{TestService, TestServiceServer};
use crate::testing::{
    BoolValue, EchoStatus, Empty, Payload, PayloadType, ResponseParameters, SimpleRequest, SimpleResponse,
    StreamingInputCallRequest, StreamingInputCallResponse, StreamingOutputCallRequest,
    StreamingOutputCallResponse,
};
use crate::xds::service::orca::v3::open_rca_service_server::OpenRcaServiceServer;

/// Metadata of a request that the response's initial metadata repeat.
pub(crate) const ECHO_INITIAL: &str = "x-grpc-test-echo-initial";
/// Metadata of a request that the response's trailing metadata repeat.
pub(crate) const ECHO_TRAILING: &str = "x-grpc-test-echo-trailing-bin";

/// A payload longer than this is refused: a client does not say how much memory the server takes.
const PAYLOAD_LEN_MAX: i32 = 16 << 20;

/// A Tollfree server with the test services and reflection.
pub fn server() -> tollfree::Server {
    let metrics = Metrics::default();
    let id = format!("tollfree {} {}", std::process::id(), since_epoch().as_nanos());
    let test = TestServiceServer::new(Tester { id, metrics: metrics.clone() }).accept_compressed(Gzip);
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .build_v1()
        .expect("the descriptors are those that the build has made");
    tollfree::Server::builder()
        .add_service(ServerSide(test))
        .add_service(OpenRcaServiceServer::new(metrics))
        .add_service(reflection)
}

/// The test service on tonic's own server, which lets a client have so many streams at once.
pub fn plain_tonic(stream_count: u32) -> tonic::transport::server::Router {
    let tester = Tester { id: "tonic".to_owned(), metrics: Metrics::default() };
    tonic::transport::Server::builder()
        .max_concurrent_streams(stream_count)
        .add_service(ServerSide(TestServiceServer::new(tester)))
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Refuses a message that is not compressed as its sender says that it is.
fn check_compressed(expected: Option<&BoolValue>, marks: &Marks) -> Result<(), Status> {
    let compressed = marks.next();
    match expected {
        Some(expected) if expected.value != compressed => Err(Status::invalid_argument(format!(
            "expect_compressed is {}, and the message is {}compressed",
            expected.value,
            if compressed { "" } else { "not " }
        ))),
        _ => Ok(()),
    }
}

fn payload(kind: i32, len: i32) -> Result<Payload, Status> {
    if PayloadType::try_from(kind).is_err() {
        return Err(Status::invalid_argument(format!("payloads of type {kind} are not known here")));
    }
    match usize::try_from(len) {
        Ok(body_len) if len <= PAYLOAD_LEN_MAX => Ok(Payload { r#type: kind, body: vec![0; body_len] }),
        _ => Err(Status::invalid_argument(format!(
            "a payload of {len} bytes is asked for; this server makes 0 to {PAYLOAD_LEN_MAX}"
        ))),
    }
}

/// The error that a client asks for, if it asks for one.
fn asked_for(status: Option<&EchoStatus>) -> Result<(), Status> {
    match status {
        Some(status) if status.code != 0 => Err(Status::new(Code::from_i32(status.code), &status.message)),
        _ => Ok(()),
    }
}

/// A response that repeats what the request wants repeated.
fn echoing<T>(metadata: &MetadataMap, message: T, mut trailing: MetadataMap) -> Response<T> {
    let mut response = Response::new(message);
    if let Some(value) = metadata.get(ECHO_INITIAL) {
        response.metadata_mut().insert(ECHO_INITIAL, value.clone());
    }
    if let Some(value) = metadata.get_bin(ECHO_TRAILING) {
        trailing.insert_bin(ECHO_TRAILING, value.clone());
    }
    response.extensions_mut().insert(Trailing(trailing.into_headers()));
    response
}

type Answers = Pin<Box<dyn Stream<Item = Result<StreamingOutputCallResponse, Status>> + Send>>;

/// The responses that one request of a stream asks for, each after its interval.
fn answers(request: StreamingOutputCallRequest, marks: Marks, metrics: &Metrics) -> Answers {
    if let Err(status) = asked_for(request.response_status.as_ref()) {
        return Box::pin(stream::once(async { Err(status) }));
    }
    if let Some(report) = request.orca_oob_report {
        metrics.set(report.into());
    }
    let kind = request.response_type;
    Box::pin(stream::iter(request.response_parameters).then(move |wanted: ResponseParameters| {
        let marks = marks.clone();
        async move {
            let interval = Duration::from_micros(u64::try_from(wanted.interval_us).unwrap_or(0));
            if !interval.is_zero() {
                tokio::time::sleep(interval).await;
            }
            let payload = payload(kind, wanted.size)?;
            marks.push(wanted.compressed.is_some_and(|compressed| compressed.value));
            Ok(StreamingOutputCallResponse { payload: Some(payload) })
        }
    }))
}

#[derive(Debug)]
struct Tester {
    id: String,
    metrics: Metrics,
}

impl Tester {
    /// Answers that are made while requests come in.
    fn streamed(
        &self,
        metadata: &MetadataMap,
        requests: impl Stream<Item = Result<StreamingOutputCallRequest, Status>> + Send + 'static,
    ) -> Response<Answers> {
        let marks = Marks::default();
        let (to_answers, metrics) = (marks.clone(), self.metrics.clone());
        let answers =
            requests.map_ok(move |request| answers(request, to_answers.clone(), &metrics)).try_flatten();
        let mut response = echoing(metadata, Box::pin(answers) as Answers, MetadataMap::new());
        response.extensions_mut().insert(marks);
        response
    }
}

/// The marks that the layer puts beside every request.
fn marks<T>(request: &Request<T>) -> Marks {
    request.extensions().get::<Marks>().cloned().unwrap_or_default()
}

#[tonic::async_trait]
impl TestService for Tester {
    type StreamingOutputCallStream = Answers;
    type FullDuplexCallStream = Answers;
    type HalfDuplexCallStream = Answers;

    async fn empty_call(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        Ok(Response::new(Empty {}))
    }

    async fn unary_call(&self, request: Request<SimpleRequest>) -> Result<Response<SimpleResponse>, Status> {
        let received = marks(&request);
        let (metadata, _, request) = request.into_parts();
        check_compressed(request.expect_compressed.as_ref(), &received)?;
        asked_for(request.response_status.as_ref())?;
        let mut message = SimpleResponse {
            payload: Some(payload(request.response_type, request.response_size)?),
            ..SimpleResponse::default()
        };
        if request.fill_server_id {
            message.server_id = self.id.clone();
        }
        let mut trailing = MetadataMap::new();
        if let Some(report) = request.orca_per_query_report {
            attach(&report.into(), &mut trailing);
        }
        let mut response = echoing(&metadata, message, trailing);
        let compressed = request.response_compressed.is_some_and(|compressed| compressed.value);
        response.extensions_mut().insert(Marks::of([compressed]));
        Ok(response)
    }

    async fn cacheable_unary_call(
        &self,
        _: Request<SimpleRequest>,
    ) -> Result<Response<SimpleResponse>, Status> {
        let body = since_epoch().as_nanos().to_string().into_bytes();
        let payload = Payload { r#type: PayloadType::Compressable.into(), body };
        let mut response =
            Response::new(SimpleResponse { payload: Some(payload), ..SimpleResponse::default() });
        let seconds = tonic::metadata::MetadataValue::from_static("max-age=60, public");
        response.metadata_mut().insert("cache-control", seconds);
        Ok(response)
    }

    async fn streaming_output_call(
        &self,
        request: Request<StreamingOutputCallRequest>,
    ) -> Result<Response<Answers>, Status> {
        let (metadata, _, request) = request.into_parts();
        Ok(self.streamed(&metadata, stream::once(async { Ok(request) })))
    }

    async fn streaming_input_call(
        &self,
        request: Request<Streaming<StreamingInputCallRequest>>,
    ) -> Result<Response<StreamingInputCallResponse>, Status> {
        let received = marks(&request);
        let mut requests = request.into_inner();
        let mut sum: i32 = 0;
        while let Some(request) = requests.message().await? {
            check_compressed(request.expect_compressed.as_ref(), &received)?;
            let len = request.payload.map_or(0, |payload| payload.body.len());
            sum = i32::try_from(len).ok().and_then(|len| sum.checked_add(len)).ok_or_else(|| {
                Status::out_of_range("the payloads' bytes are more than the response can count")
            })?;
        }
        Ok(Response::new(StreamingInputCallResponse { aggregated_payload_size: sum }))
    }

    async fn full_duplex_call(
        &self,
        request: Request<Streaming<StreamingOutputCallRequest>>,
    ) -> Result<Response<Answers>, Status> {
        let (metadata, _, requests) = request.into_parts();
        Ok(self.streamed(&metadata, requests))
    }

    async fn half_duplex_call(
        &self,
        request: Request<Streaming<StreamingOutputCallRequest>>,
    ) -> Result<Response<Answers>, Status> {
        let (metadata, _, requests) = request.into_parts();
        let requests: Vec<_> = requests.try_collect().await?;
        Ok(self.streamed(&metadata, stream::iter(requests).map(Ok)))
    }

    async fn unimplemented_call(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        Err(Status::unimplemented("no server implements this method: that is what it is for"))
    }
}
