//! The client's end: what a generated client holds, and which way its calls take.

use std::any::TypeId;
use std::fmt;
use std::option;

use futures_util::stream::{Flatten, Iter};
use futures_util::{Stream, StreamExt as _};
use http::header::{CONTENT_TYPE, HeaderValue, TE};
use http::{Extensions, Uri, Version};
use http_body::Body as HttpBody;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::service::interceptor::InterceptedService;
use tonic::{Code, Request, Response, Status};

use crate::channel::Channel;
use crate::channel::slot::Slot;
use crate::message::codec::{Coding, OneCall};
use crate::message::form::Form;
use crate::message::out_of_band::{OfClient, OutOfBand};
use crate::message::streaming::Streaming;
use crate::metadata::GRPC;
use crate::typed::bodies::Borrowed;
use crate::typed::{Named, unary};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Which way the unary calls of a generated client take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Way {
    /// From typed message to session and back, by whichever endpoint the channel chooses. Interceptors that the client was
    /// made with run. Where the endpoint chosen is reached by HTTP/2, the call goes so.
    Direct,
    /// As an `http::Request` through whatever the client was given, as with the stubs that tonic generates; for this
    /// reason.
    Http(&'static str),
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Direct => f.write_str("direct, from typed messages to shared memory"),
            Way::Http(reason) => write!(f, "as HTTP requests: {reason}"),
        }
    }
}

/// What all clients have in common that `tollfree-build` generates.
pub trait Generated {
    /// Which way unary calls take. Streaming calls go as HTTP requests.
    fn way(&self) -> Way;
}

/// What a client was made around.
#[derive(Clone, Debug)]
enum Target {
    /// A channel of ours with sessions, now or at times, and nothing else.
    Channel(Channel),
    /// Interceptors around such a channel.
    Intercepted(Channel),
    /// A channel of ours that speaks nothing but HTTP/2.
    Http2(Channel),
    /// Anything else that takes HTTP requests.
    Foreign,
}

/// Settings of a client, as tonic's own `Grpc` has them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientSettings {
    origin: Uri,
    send: Option<CompressionEncoding>,
    accept: Vec<CompressionEncoding>,
    pub(crate) decoding_len_max: Option<usize>,
    pub(crate) encoding_len_max: Option<usize>,
}

/// What a generated client holds, in the place of `tonic::client::Grpc`.
#[derive(Clone, Debug)]
pub struct Grpc<T> {
    service: T,
    target: Target,
    settings: ClientSettings,
}

impl<T> Grpc<T> {
    fn with_target(service: T, target: Target) -> Grpc<T> {
        Grpc { service, target, settings: ClientSettings::default() }
    }

    /// Which way unary calls take.
    pub fn way(&self) -> Way {
        let settings = &self.settings;
        match &self.target {
            Target::Foreign => Way::Http("the client was not made of a Tollfree channel alone"),
            Target::Http2(_) => Way::Http("the channel speaks HTTP/2 only"),
            _ if settings.send.is_some() || !settings.accept.is_empty() => {
                Way::Http("compression is switched on")
            }
            _ if settings.origin.path().len() > 1 => Way::Http("the origin has a path"),
            Target::Channel(channel) | Target::Intercepted(channel) if !channel.is_direct() => {
                Way::Http("the channel's calls go over HTTP/2 now")
            }
            _ => Way::Direct,
        }
    }

    /// Compresses requests.
    pub fn send_compressed(mut self, encoding: CompressionEncoding) -> Self {
        self.settings.send = Some(encoding);
        self
    }

    /// Accepts compressed responses.
    pub fn accept_compressed(mut self, encoding: CompressionEncoding) -> Self {
        self.settings.accept.push(encoding);
        self
    }

    /// Limits decoded messages, in bytes.
    pub fn max_decoding_message_size(mut self, limit: usize) -> Self {
        self.settings.decoding_len_max = Some(limit);
        self
    }

    /// Limits encoded messages, in bytes.
    pub fn max_encoding_message_size(mut self, limit: usize) -> Self {
        self.settings.encoding_len_max = Some(limit);
        self
    }
}

/// Finds out what a service is: lets a [`Slot`] go through it if it is a channel of ours.
fn register<T: GrpcService<Body>>(service: &mut T) -> Target {
    if typeid::of::<T>() != TypeId::of::<Channel>() {
        return Target::Foreign;
    }
    let slot = Slot::default();
    let mut request = http::Request::new(Body::empty());
    request.extensions_mut().insert(slot.clone());
    drop(service.call(request));
    match slot.take().and_then(|handed| handed.channel) {
        Some(channel) if channel.may_be_direct() => Target::Channel(channel),
        Some(channel) => Target::Http2(channel),
        None => Target::Foreign,
    }
}

impl<T, F> Grpc<InterceptedService<T, F>> {
    /// A client with an interceptor.
    pub fn intercepted(mut service: T, interceptor: F) -> Self
    where
        T: GrpcService<Body>,
    {
        let target = match register(&mut service) {
            Target::Channel(channel) => Target::Intercepted(channel),
            target => target,
        };
        Grpc::with_target(InterceptedService::new(service, interceptor), target)
    }
}

impl<T> Grpc<T>
where
    T: GrpcService<Body>,
    T::ResponseBody: HttpBody + Send + 'static,
    <T::ResponseBody as HttpBody>::Error: Into<BoxError>,
{
    /// A client of a service.
    pub fn new(service: T) -> Self {
        Grpc::with_origin(service, Uri::default())
    }

    /// A client of a service, with the first part of all URIs.
    pub fn with_origin(mut service: T, origin: Uri) -> Self {
        let target = register(&mut service);
        let mut client = Grpc::with_target(service, target);
        client.settings.origin = origin;
        client
    }

    /// A unary call.
    ///
    /// # Errors
    /// The call's status.
    pub async fn unary<M1, M2, C>(
        &mut self,
        mut request: Request<M1>,
        method: &impl Named,
        codec: C,
    ) -> Result<Response<M2>, Status>
    where
        C: Coding<M1, M2> + Form<M1> + Form<M2>,
        M1: Send + Sync + 'static,
        M2: Send + Sync + 'static,
    {
        // A handle that can cancel a call is tonic's own, and only tonic can look at it.
        let held = !request.extensions().is_empty()
            && request.extensions().get::<tonic::CancellationHandle>().is_some();
        if self.way() != Way::Direct || held {
            // Boxed, or every direct call would carry the room that this one takes.
            return Box::pin(self.http_unary(request, method, codec)).await;
        }
        let handed;
        let channel = match &self.target {
            Target::Channel(channel) => channel,
            _ => match Box::pin(self.intercept(request, method)).await? {
                Some((channel, passed)) => {
                    handed = channel;
                    request = passed;
                    &handed
                }
                None => return Err(Status::internal("Missing response message.")),
            },
        };
        let outcome = channel.inner().begin(method.path());
        let made = outcome.as_ref().map(|outcome| outcome.0.clone());
        let result = unary::unary::<C, M1, M2, _>(channel, &self.settings, &mut request, method, made).await;
        if let Some(outcome) = &outcome {
            outcome.is(result.as_ref().map_or_else(Status::code, |_| Code::Ok));
        }
        result
    }

    /// Lets the interceptors see a request. `None`: they answered it themselves, with nothing.
    async fn intercept<M>(
        &mut self,
        request: Request<M>,
        method: &impl Named,
    ) -> Result<Option<(Channel, Request<M>)>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let mut headers = metadata.into_headers();
        let slot = Slot::default();
        let mut request = http::Request::new(Body::empty());
        *request.method_mut() = http::Method::POST;
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = method.path_and_query().into();
        for name in ["grpc-message", "grpc-message-type", "grpc-status"] {
            headers.remove(name);
        }
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONTENT_TYPE, GRPC);
        *request.headers_mut() = headers;
        *request.extensions_mut() = extensions;
        method.note(request.extensions_mut());
        request.extensions_mut().insert(slot.clone());
        let answered = self.service.call(request).await;
        if let Some(handed) = slot.take()
            && let Some(channel) = handed.channel
        {
            let metadata = MetadataMap::from_headers(handed.headers);
            return Ok(Some((channel, Request::from_parts(metadata, handed.extensions, message))));
        }
        let answered = answered.map_err(|error| Status::from_error(error.into()))?;
        match Status::from_header_map(answered.headers()) {
            Some(status) if status.code() != tonic::Code::Ok => Err(status),
            _ => Ok(None),
        }
    }

    /// A unary call as an HTTP request, whatever the codec.
    ///
    /// # Errors
    /// The call's status.
    pub async fn http_unary<M1, M2, C>(
        &mut self,
        mut request: Request<M1>,
        method: &impl Named,
        codec: C,
    ) -> Result<Response<M2>, Status>
    where
        C: Coding<M1, M2>,
        M1: Send + Sync + 'static,
        M2: Send + Sync + 'static,
    {
        let codec = codec.codec(self.one_call(request.extensions_mut(), C::types()));
        let service = Borrowed::ready(&mut self.service, request.extensions_mut(), method, None).await?;
        let mut grpc = tonic_client(&self.settings, service);
        grpc.unary(request, method.path_and_query(), codec).await
    }

    /// A call with one request and a stream of responses.
    ///
    /// # Errors
    /// The call's status.
    pub async fn server_streaming<A, M1, M2, C>(
        &mut self,
        request: Request<M1>,
        method: &impl Named,
        codec: C,
    ) -> Result<Response<A>, Status>
    where
        A: Streams<M2>,
        C: Coding<M1, M2>,
        M1: Send + Sync + 'static,
        M2: Send + Sync + 'static,
    {
        self.streaming(request.map(tokio_stream::once), method, codec).await
    }

    /// A call with a stream of requests and one response.
    ///
    /// # Errors
    /// The call's status.
    pub async fn client_streaming<S, M1, M2, C>(
        &mut self,
        request: Request<S>,
        method: &impl Named,
        codec: C,
    ) -> Result<Response<M2>, Status>
    where
        S: Stream<Item = M1> + Send + 'static,
        C: Coding<M1, M2>,
        M1: Send + Sync + 'static,
        M2: Send + Sync + 'static,
    {
        let (mut request, call, body) = self.outgoing::<S, M1, M2, C>(request);
        let service = Borrowed::ready(&mut self.service, request.extensions_mut(), method, body).await?;
        let mut grpc = tonic_client(&self.settings, service);
        grpc.client_streaming(request, method.path_and_query(), codec.codec(call)).await
    }

    /// A call with a stream each way.
    ///
    /// # Errors
    /// The call's status.
    pub async fn streaming<A, S, M1, M2, C>(
        &mut self,
        request: Request<S>,
        method: &impl Named,
        codec: C,
    ) -> Result<Response<A>, Status>
    where
        A: Streams<M2>,
        S: Stream<Item = M1> + Send + 'static,
        C: Coding<M1, M2>,
        M1: Send + Sync + 'static,
        M2: Send + Sync + 'static,
    {
        let (mut request, call, body) = self.outgoing::<S, M1, M2, C>(request);
        let path = method.path_and_query();
        // Another service than a channel of ours need not say how a call ended.
        let own = A::own().filter(|_| C::HAS_BODIES && !matches!(self.target, Target::Foreign));
        let Some(make) = own else {
            let service = Borrowed::ready(&mut self.service, request.extensions_mut(), method, body).await?;
            let mut grpc = tonic_client(&self.settings, service);
            let answer = grpc.streaming(request, path, codec.codec(call)).await?;
            return Ok(answer.map(A::from));
        };
        let service = Borrowed::ready(&mut self.service, request.extensions_mut(), method, body).await?;
        let (service, taken) = service.taking();
        let mut grpc = tonic_client(&self.settings, service);
        let answer = grpc.streaming(request, path, codec.codec(call.clone())).await?;
        Ok(answer.map(|inner| match taken.take().and_then(|body| C::decoded(&call, body)) {
            Some(messages) => make(messages),
            None => A::from(inner),
        }))
    }

    /// What is to be known of the next call that tonic's client makes; the session finds it in the extensions. `types` is the
    /// fingerprint of the method's types, where its stubs take objects.
    fn one_call(&self, extensions: &mut Extensions, types: Option<u64>) -> OneCall {
        let settings = &self.settings;
        let out_of_band = match &self.target {
            // Nothing is between the client and the channel that would look at messages.
            Target::Channel(channel) | Target::Intercepted(channel) | Target::Http2(channel) => {
                let is_of_use = channel.passes_refs() || types.is_some() && channel.has_sessions_only();
                is_of_use.then(|| OutOfBand::of_client(types))
            }
            Target::Foreign => None,
        };
        if let Some(out_of_band) = &out_of_band {
            extensions.insert(OfClient(out_of_band.clone()));
        }
        OneCall {
            out_of_band,
            encoding_len_max: settings.encoding_len_max,
            decoding_len_max: settings.decoding_len_max,
            compresses: settings.send.is_some(),
        }
    }

    /// A request whose messages go into a body of ours, unless tonic has to see them: to compress them, or to end the call in their middle.
    fn outgoing<S, M1, M2, C>(&self, mut request: Request<S>) -> (Request<Left<S>>, OneCall, Option<Body>)
    where
        S: Stream<Item = M1> + Send + 'static,
        C: Coding<M1, M2>,
    {
        let call = self.one_call(request.extensions_mut(), C::types());
        let is_tonics = call.compresses || request.extensions().get::<tonic::CancellationHandle>().is_some();
        let (metadata, extensions, source) = request.into_parts();
        let body = if is_tonics { Err(source) } else { C::encoded(&call, source) };
        let (left, body) = match body {
            Ok(body) => (None, Some(body)),
            Err(source) => (Some(source), None),
        };
        (Request::from_parts(metadata, extensions, futures_util::stream::iter(left).flatten()), call, body)
    }
}

/// Messages that tonic is to encode: those of the stream, or none.
type Left<S> = Flatten<Iter<option::IntoIter<S>>>;

/// How a program has the messages of a stream: in tonic's type or in ours.
pub trait Streams<M>: From<tonic::Streaming<M>> {
    /// What makes it of ours; `None` for tonic's.
    fn own() -> Option<fn(Streaming<M>) -> Self> {
        None
    }
}

impl<M> Streams<M> for tonic::Streaming<M> {}

impl<M> Streams<M> for Streaming<M> {
    fn own() -> Option<fn(Streaming<M>) -> Self> {
        Some(|messages| messages)
    }
}

/// tonic's own client around a service, with the same settings.
pub(crate) fn tonic_client<S>(settings: &ClientSettings, service: S) -> tonic::client::Grpc<S> {
    let mut grpc = tonic::client::Grpc::with_origin(service, settings.origin.clone());
    if let Some(encoding) = settings.send {
        grpc = grpc.send_compressed(encoding);
    }
    for encoding in &settings.accept {
        grpc = grpc.accept_compressed(*encoding);
    }
    if let Some(limit) = settings.decoding_len_max {
        grpc = grpc.max_decoding_message_size(limit);
    }
    if let Some(limit) = settings.encoding_len_max {
        grpc = grpc.max_encoding_message_size(limit);
    }
    grpc
}
