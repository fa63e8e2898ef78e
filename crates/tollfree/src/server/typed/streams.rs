//! Methods that stream, where tonic's own server calls them: it says and reads what stands in heads, and the messages go past it.

use std::sync::Arc;

use bytes::Buf;
use futures_util::Stream;
use futures_util::stream::{Empty, empty};
use http_body::Body as HttpBody;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use tonic::body::Body;
use tonic::codec::Codec as _;
use tonic::server::Grpc;
use tonic::{Request, Response, Status};

use crate::message::codec::FormCodec;
use crate::message::compression::ENCODING;
use crate::message::form::Form;
use crate::message::stream_body::{Speaker, stream_body};
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
    let asked = Asked::new(codec);
    let (request, body) = asked.split::<Q, B>(request);
    let method = handler(|inner| method(asked.made(inner, &body)));
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
    let asked = Asked::new(codec.clone());
    let (request, body) = asked.split::<Q, B>(request);
    let method = |inner| method(asked.made(inner, &body));
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

/// How a method has the messages it is asked with.
struct Asked<F, M1, M2> {
    codec: FormCodec<F, M2, M1>,
}

impl<F, M1, M2> Asked<F, M1, M2>
where
    F: Form<M1> + Form<M2>,
    M1: Send + Sync + 'static,
    M2: Send + Sync + 'static,
{
    fn new(codec: FormCodec<F, M2, M1>) -> Asked<F, M1, M2> {
        Asked { codec }
    }

    /// Takes the body out of a request, where the method takes messages as ours and tonic need not inflate them. Else the request as it was.
    #[expect(clippy::type_complexity, reason = "one of two, and what was taken")]
    fn split<Q, B>(
        &self,
        request: http::Request<B>,
    ) -> (Result<http::Request<Body>, http::Request<B>>, Mutex<Option<Body>>)
    where
        Q: Streams<M1>,
        B: HttpBody + Send + 'static,
        B::Error: Into<BoxError> + Send,
    {
        let is_plain = request.headers().get(ENCODING).is_none_or(|encoding| encoding == "identity");
        if Q::own().is_none() || !is_plain {
            return (Err(request), Mutex::new(None));
        }
        let (parts, body) = request.into_parts();
        let body = Body::new(
            body.map_frame(|frame| frame.map_data(|mut data| data.copy_to_bytes(data.remaining()))),
        );
        (Ok(http::Request::from_parts(parts, Body::empty())), Mutex::new(Some(body)))
    }

    /// The request for the method.
    fn made<Q: Streams<M1>>(
        &self,
        inner: Request<tonic::Streaming<M1>>,
        body: &Mutex<Option<Body>>,
    ) -> Request<Q> {
        inner.map(|inner| match (body.lock().take(), Q::own()) {
            (Some(body), Some(make)) => make(self.codec.clone().messages(body)),
            _ => Q::from(inner),
        })
    }
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
