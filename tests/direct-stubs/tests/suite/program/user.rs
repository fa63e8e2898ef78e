// A user's program: it knows tonic and the generated code, `stubs`, and nothing of Tollfree but its server.

use std::pin::Pin;

use futures_util::stream;
use stubs::greeter::greeter_client::GreeterClient;
use stubs::greeter::greeter_server::{Greeter, GreeterServer};
use stubs::greeter::{HelloReply, HelloRequest};
use stubs::probe::probe_client::ProbeClient;
use stubs::probe::probe_server::{Probe, ProbeServer};
use stubs::probe::{Answer, Ask};
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codegen::{Body as HttpBody, Bytes, StdError};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Extensions, Request, Response, Status, Streaming};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

struct Service;

/// Metadata that begin with `x-`, in order.
fn ours(metadata: &MetadataMap) -> Vec<String> {
    let headers = metadata.clone().into_headers();
    let ours = headers.iter().filter(|(name, _)| name.as_str().starts_with("x-"));
    ours.map(|(name, value)| format!("{name}={}", value.to_str().unwrap_or("?"))).collect()
}

fn answer(ask: &Ask, count: u32, metadata: &MetadataMap) -> Answer {
    Answer { body: ask.body.clone(), seen_count: count, headers: ours(metadata), ..Answer::default() }
}

fn check(ask: &Ask) -> Result<(), Status> {
    let Some(fault) = &ask.fault else { return Ok(()) };
    assert!(!fault.panic, "as asked");
    let mut trailing = MetadataMap::new();
    trailing.insert("x-why", MetadataValue::from_static("asked for"));
    let (code, details) = (Code::from_i32(fault.code), fault.details.clone().into());
    Err(Status::with_details_and_metadata(code, &*fault.message, details, trailing))
}

type Answers = Pin<Box<dyn Stream<Item = Result<Answer, Status>> + Send>>;

#[tonic::async_trait]
impl Probe for Service {
    async fn unary(&self, request: Request<Ask>) -> Result<Response<Answer>, Status> {
        check(request.get_ref())?;
        let mut response = Response::new(answer(request.get_ref(), 1, request.metadata()));
        response.metadata_mut().append("x-answer", MetadataValue::from_static("one"));
        response.metadata_mut().append("x-answer", MetadataValue::from_static("two"));
        response.metadata_mut().append_bin("x-raw-bin", MetadataValue::from_bytes(&[0, 255]));
        Ok(response)
    }

    type DownStream = Answers;

    async fn down(&self, request: Request<Ask>) -> Result<Response<Answers>, Status> {
        let (metadata, _, ask): (MetadataMap, Extensions, Ask) = request.into_parts();
        let last = check(&ask).err().map(Err);
        let answers: Vec<_> = (0..3).map(|count| Ok(answer(&ask, count, &metadata))).chain(last).collect();
        Ok(Response::new(Box::pin(stream::iter(answers))))
    }

    async fn up(&self, request: Request<Streaming<Ask>>) -> Result<Response<Answer>, Status> {
        let metadata = request.metadata().clone();
        let mut asks = request.into_inner();
        let (mut count, mut last) = (0, Ask::default());
        while let Some(ask) = asks.message().await? {
            check(&ask)?;
            count += 1;
            last = ask;
        }
        Ok(Response::new(answer(&last, count, &metadata)))
    }

    type BothStream = Answers;

    async fn both(&self, request: Request<Streaming<Ask>>) -> Result<Response<Answers>, Status> {
        let metadata = request.metadata().clone();
        let answers = request.into_inner().map(move |ask| {
            let ask = ask?;
            check(&ask)?;
            Ok(answer(&ask, 1, &metadata))
        });
        Ok(Response::new(Box::pin(answers)))
    }
}

#[tonic::async_trait]
impl Greeter for Service {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let user = request.extensions().get::<User>().map_or("nobody", |user| user.0);
        let headers = ours(request.metadata()).join(" ");
        Ok(Response::new(HelloReply { text: format!("{user} {headers}: {}", request.into_inner().name) }))
    }
}

#[derive(Clone)]
struct User(&'static str);

fn guard(mut request: Request<()>) -> Result<Request<()>, Status> {
    match request.metadata().get("authorization").map(|token| token.as_bytes()) {
        Some(b"Bearer good") => {
            request.extensions_mut().insert(User("ada"));
            request.metadata_mut().insert("x-guard", MetadataValue::from_static("seen"));
            Ok(request)
        }
        Some(_) => Err(Status::permission_denied("a bad token")),
        None => Err(Status::unauthenticated("no token")),
    }
}

pub(crate) async fn serve(uris: [String; 2]) -> Result<(), tollfree::ServeError> {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_serving::<ProbeServer<Service>>().await;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(stubs::FILE_DESCRIPTOR_SET)
        .build_v1()
        .expect("a descriptor set");
    tollfree::Server::builder()
        .add_service(health)
        .add_service(reflection)
        .add_service(ProbeServer::new(Service).max_decoding_message_size(100_000))
        .add_service(GreeterServer::with_interceptor(Service, guard))
        .serve_many(uris.iter().map(String::as_str))
        .await
}

/// What a call came to.
fn told(result: Result<Response<Answer>, Status>) -> String {
    match result {
        Ok(response) => {
            let metadata = ours(response.metadata());
            let Answer { body, seen_count, headers, .. } = response.into_inner();
            format!("{} bytes of {seen_count}, {headers:?}, {metadata:?}", body.len())
        }
        Err(status) => failed(&status),
    }
}

fn failed(status: &Status) -> String {
    format!("{:?} {} {:?} {:?}", status.code(), status.message(), status.details(), ours(status.metadata()))
}

fn asks() -> Vec<(&'static str, Ask)> {
    let fault = |code, message: &str, details: &[u8]| {
        Some(stubs::probe::Fault { code, message: message.into(), details: details.into(), panic: false })
    };
    vec![
        ("nothing", Ask::default()),
        ("small", Ask { body: b"hello".into(), ..Ask::default() }),
        ("large", Ask { body: vec![5; 90_000], ..Ask::default() }),
        ("too large", Ask { body: vec![5; 200_000], ..Ask::default() }),
        ("failing", Ask { fault: fault(9, "not now: ä 100 %\n", b"\x08\x01"), ..Ask::default() }),
        ("failing oddly", Ask { fault: fault(77, "", b""), ..Ask::default() }),
    ]
}

fn request<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().append("x-ask", MetadataValue::from_static("1"));
    request.metadata_mut().append("x-ask", MetadataValue::from_static("2"));
    request.metadata_mut().append_bin("x-ask-bin", MetadataValue::from_bytes(b"\x00\x01"));
    request.set_timeout(std::time::Duration::from_secs(30));
    request
}

pub(crate) async fn run<T>(channel: T) -> Vec<String>
where
    T: GrpcService<Body> + Clone + Send + 'static,
    T: tonic::codegen::Service<
            tonic::codegen::http::Request<Body>,
            Response = tonic::codegen::http::Response<<T as GrpcService<Body>>::ResponseBody>,
        >,
    <T as tonic::codegen::Service<tonic::codegen::http::Request<Body>>>::Error: Into<StdError> + Send + Sync,
    <T as GrpcService<Body>>::Error: Into<StdError>,
    T::ResponseBody: HttpBody<Data = Bytes> + Default + Send + 'static,
    <T::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    let mut said = calls(ProbeClient::new(channel.clone()).max_encoding_message_size(150_000)).await;
    said.extend(greetings(channel.clone()).await);
    said.extend(ready_made(channel).await);
    said
}

async fn calls<T>(mut client: ProbeClient<T>) -> Vec<String>
where
    T: GrpcService<Body>,
    T::Error: Into<StdError>,
    T::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <T::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    let mut said = Vec::new();
    for (name, ask) in asks() {
        // What its own client refuses to send, tonic's transport reports in words of its own.
        if name != "too large" {
            said.push(format!("unary, {name}: {}", told(client.unary(request(ask.clone())).await)));
            let asked = request(tokio_stream::iter([Ask::default(), ask.clone()]));
            said.push(format!("up, {name}: {}", told(client.up(asked).await)));
        }
        let unlimited = ask.clone();
        match client.down(request(Ask { body: unlimited.body[..unlimited.body.len().min(90_000)].into(), ..unlimited })).await {
            Ok(response) => {
                let mut answers = response.into_inner();
                while let Some(answer) = answers.next().await {
                    said.push(format!("down, {name}: {}", told(answer.map(Response::new))));
                }
            }
            Err(status) => said.push(format!("down, {name}: {}", failed(&status))),
        }
    }
    let several = asks().into_iter().filter(|(name, _)| *name != "too large").map(|(_, ask)| ask);
    let several: Vec<_> = several.collect();
    let mut answers = client.both(request(tokio_stream::iter(several))).await.unwrap().into_inner();
    while let Some(answer) = answers.next().await {
        said.push(format!("both: {}", told(answer.map(Response::new))));
    }
    said
}

async fn greetings<T>(channel: T) -> Vec<String>
where
    T: GrpcService<Body> + Clone,
    T: tonic::codegen::Service<
            tonic::codegen::http::Request<Body>,
            Response = tonic::codegen::http::Response<<T as GrpcService<Body>>::ResponseBody>,
        >,
    <T as tonic::codegen::Service<tonic::codegen::http::Request<Body>>>::Error: Into<StdError> + Send + Sync,
    <T as GrpcService<Body>>::Error: Into<StdError>,
    T::ResponseBody: HttpBody<Data = Bytes> + Default + Send + 'static,
    <T::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    let mut said = Vec::new();
    let greeting = || HelloRequest { name: "world".into() };
    let mut told = |result: Result<Response<HelloReply>, Status>| match result {
        Ok(response) => said.push(response.into_inner().text),
        Err(status) => said.push(failed(&status)),
    };
    told(GreeterClient::new(channel.clone()).hello(greeting()).await);
    for token in ["Bearer good", "Bearer bad"] {
        let mut client = GreeterClient::with_interceptor(channel.clone(), move |mut request: Request<()>| {
            request.metadata_mut().insert("authorization", MetadataValue::from_static(token));
            request.metadata_mut().insert("x-client", MetadataValue::from_static("seen"));
            Ok(request)
        });
        told(client.hello(greeting()).await);
        told(client.clone().hello(request(greeting())).await);
    }
    let refuse = |_: Request<()>| Err(Status::aborted("the client's own"));
    told(GreeterClient::with_interceptor(channel, refuse).hello(greeting()).await);
    said
}

async fn ready_made<T>(channel: T) -> Vec<String>
where
    T: GrpcService<Body> + Clone,
    T::Error: Into<StdError>,
    T::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <T::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    let mut said = Vec::new();
    let mut health = HealthClient::new(channel.clone());
    for service in ["", "tollfree.probe.v1.Probe", "nobody"] {
        let checked = health.check(HealthCheckRequest { service: service.into() }).await;
        said.push(match checked {
            Ok(response) => format!("health of {service}: {}", response.into_inner().status),
            Err(status) => format!("health of {service}: {}", failed(&status)),
        });
    }
    let list = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut client = ServerReflectionClient::new(channel);
    let mut answers = client.server_reflection_info(tokio_stream::iter([list])).await.unwrap().into_inner();
    while let Some(answer) = answers.next().await {
        let ServerReflectionResponse { message_response, .. } = answer.unwrap();
        said.push(format!("{message_response:?}"));
    }
    said
}
