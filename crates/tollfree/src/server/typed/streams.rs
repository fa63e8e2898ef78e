//! Methods that stream, where tonic's own server calls them: it says and reads what stands in heads, and the messages go past it.

use std::sync::Arc;

use futures_util::Stream;
use futures_util::stream::{Empty, empty};
use http_body::Body as HttpBody;
use parking_lot::Mutex;
use tonic::body::Body;
use tonic::codec::Codec as _;
use tonic::server::Grpc;
use tonic::{Request, Response, Status};

use crate::message::codec::FormCodec;
use crate::message::form::Form;
use crate::message::stream_body::{Speaker, stream_body};
use crate::message::streaming::{is_plain, tonic_body};
use crate::server::typed::handler::handler;
use crate::typed::client::Streams;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What a handler has answered, for who makes a body of it.
type Answered<S> = Arc<Mutex<Option<S>>>;

/// Has a method answer one message with many.
pub async fn server_streaming<F, M1, M2, Fut, S, B>(
    mut grpc: Grpc<FormCodec<F, M2, M1>>,
    codec: FormCodec<F, M2, M1>,
    method: impl Fn(Request<M1>) -> Fut,
    request: http::Request<B>,
) -> http::Response<Body>
where
    F: Form<M1> + Form<M2>,
    M1: Send + Sync + 'static,
    M2: Send + Sync + 'static,
    Fut: Future<Output = Result<Response<S>, Status>>,
    S: Stream<Item = Result<M2, Status>> + Send + 'static,
    B: HttpBody + Send + 'static,
    B::Error: Into<BoxError> + Send,
{
    if codec.compresses() {
        return grpc.server_streaming(handler(method), request).await;
    }
    let answered = Answered::default();
    let keeping = |request| keep(method(request), answered.clone());
    let response = grpc.server_streaming(handler(keeping), request).await;
    with_body(response, &answered, codec)
}

/// Has a method answer many messages with one.
pub async fn client_streaming<F, M1, M2, Q, Fut, B>(
    mut grpc: Grpc<FormCodec<F, M2, M1>>,
    codec: FormCodec<F, M2, M1>,
    method: impl Fn(Request<Q>) -> Fut,
    request: http::Request<B>,
) -> http::Response<Body>
where
    F: Form<M1> + Form<M2>,
    M1: Send + Sync + 'static,
    M2: Send + Sync + 'static,
    Q: Streams<M1>,
    Fut: Future<Output = Result<Response<M2>, Status>>,
    B: HttpBody + Send + 'static,
    B::Error: Into<BoxError> + Send,
{
    let (request, body) = split::<M1, Q, B>(request);
    let method = handler(|inner| method(made(&codec, inner, &body)));
    match request {
        Ok(request) => grpc.client_streaming(method, request).await,
        Err(request) => grpc.client_streaming(method, request).await,
    }
}

/// Has a method answer many messages with many.
pub async fn streaming<F, M1, M2, Q, Fut, S, B>(
    mut grpc: Grpc<FormCodec<F, M2, M1>>,
    codec: FormCodec<F, M2, M1>,
    method: impl Fn(Request<Q>) -> Fut + Send + Sync,
    request: http::Request<B>,
) -> http::Response<Body>
where
    F: Form<M1> + Form<M2>,
    M1: Send + Sync + 'static,
    M2: Send + Sync + 'static,
    Q: Streams<M1>,
    Fut: Future<Output = Result<Response<S>, Status>> + Send,
    S: Stream<Item = Result<M2, Status>> + Send + 'static,
    B: HttpBody + Send + 'static,
    B::Error: Into<BoxError> + Send,
{
    let (request, body) = split::<M1, Q, B>(request);
    let method = |inner| method(made(&codec, inner, &body));
    if codec.compresses() {
        return match request {
            Ok(request) => grpc.streaming(handler(method), request).await,
            Err(request) => grpc.streaming(handler(method), request).await,
        };
    }
    let answered = Answered::default();
    let keeping = handler(|inner| keep(method(inner), answered.clone()));
    let response = match request {
        Ok(request) => grpc.streaming(keeping, request).await,
        Err(request) => grpc.streaming(keeping, request).await,
    };
    with_body(response, &answered, codec)
}

/// Takes the body out of a request, where the method takes messages as ours and tonic need not inflate them. Else the request as it was.
#[expect(clippy::type_complexity, reason = "one of two, and what was taken")]
fn split<M, Q, B>(
    request: http::Request<B>,
) -> (Result<http::Request<Body>, http::Request<B>>, Mutex<Option<Body>>)
where
    Q: Streams<M>,
    B: HttpBody + Send + 'static,
    B::Error: Into<BoxError> + Send,
{
    if Q::own().is_none() || !is_plain(request.headers()) {
        return (Err(request), Mutex::new(None));
    }
    let (parts, body) = request.into_parts();
    (Ok(http::Request::from_parts(parts, Body::empty())), Mutex::new(Some(tonic_body(body))))
}

/// The request for the method, with the messages of the body that was taken out.
fn made<F, M1, M2, Q>(
    codec: &FormCodec<F, M2, M1>,
    inner: Request<tonic::Streaming<M1>>,
    body: &Mutex<Option<Body>>,
) -> Request<Q>
where
    F: Form<M1> + Form<M2>,
    M1: Send + Sync + 'static,
    M2: Send + Sync + 'static,
    Q: Streams<M1>,
{
    inner.map(|inner| match (body.lock().take(), Q::own()) {
        (Some(body), Some(make)) => make(codec.clone().messages(body)),
        _ => Q::from(inner),
    })
}

/// The response with the body that the handler's stream makes. Without a stream it says all by itself.
fn with_body<F, M1, M2, S>(
    mut response: http::Response<Body>,
    answered: &Answered<S>,
    mut codec: FormCodec<F, M2, M1>,
) -> http::Response<Body>
where
    F: Form<M1> + Form<M2>,
    M1: Send + Sync + 'static,
    M2: Send + Sync + 'static,
    S: Stream<Item = Result<M2, Status>> + Send + 'static,
{
    if let Some(source) = answered.lock().take() {
        *response.body_mut() = stream_body(source, codec.encoder(), Speaker::Server);
    }
    response
}

/// Keeps what a handler answers, and gives tonic nothing to encode.
async fn keep<S, M>(
    answer: impl Future<Output = Result<Response<S>, Status>>,
    answered: Answered<S>,
) -> Result<Response<Empty<Result<M, Status>>>, Status> {
    let response = answer.await?;
    Ok(response.map(|source| {
        *answered.lock() = Some(source);
        empty()
    }))
}
