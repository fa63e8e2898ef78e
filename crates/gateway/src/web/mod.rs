//! Browsers: gRPC-Web, and which pages may call (CORS).
//!
//! A browser's page can't read HTTP's trailers, and may not call a server of another origin that does not say so. In gRPC-Web the trailers are the last bytes of
//! the answer's body, and all of it may be base64 (gRPC's `PROTOCOL-WEB.md`). Everything else of such a call is as of any other: it is made into a call of
//! gRPC's here, and its answer is made into one of gRPC-Web's.

mod answer;
mod cors;
mod request;

use std::sync::Arc;

use crate::client::Client;
use crate::config::WebConfig;
use crate::connection::Meter;
use crate::frontend::Frontend;
use crate::refusal::{Refusal, not_grpc};
use crate::web::cors::Cors;
use crate::web::request::WebRequest;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, ORIGIN, TE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;

pub(crate) use answer::WebAnswer;

/// How messages and trailers are written in the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As they are.
    Binary,
    /// In base64.
    Text,
}

/// The kind of a body, and what stands behind it, such as `+proto`.
fn kind_of(headers: &HeaderMap) -> Option<(Form, &[u8])> {
    let kind = headers.get(CONTENT_TYPE)?.as_bytes().strip_prefix(b"application/grpc-web")?;
    let (form, rest) = match kind.strip_prefix(b"-text") {
        Some(rest) => (Form::Text, rest),
        None => (Form::Binary, kind),
    };
    matches!(rest.first(), None | Some(b'+' | b';')).then_some((form, rest))
}

fn content_type(front: &str, rest: &[u8]) -> HeaderValue {
    // Both parts have been a header's value before.
    HeaderValue::from_bytes(&[front.as_bytes(), rest].concat())
        .unwrap_or(HeaderValue::from_static("application/grpc"))
}

/// Answers a request at a listener that browsers may call.
pub(crate) async fn answer(
    frontend: &Frontend,
    mut request: Request<Incoming>,
    config: &WebConfig,
    client: &Arc<Client>,
    meter: Arc<Meter>,
) -> Response<WebAnswer> {
    let cors = Cors::of(request.headers().get(ORIGIN), config);
    if request.method() == Method::OPTIONS {
        meter.call_ended();
        return cors.preflight(request.headers());
    }
    let kind = kind_of(request.headers()).map(|(form, rest)| (form, rest.to_vec()));
    let Some((form, rest)) = kind.filter(|_| request.method() == Method::POST) else {
        if request.version() >= Version::HTTP_2 {
            return frontend.answer(request, client, meter, Ok(())).await.map(WebAnswer::Plain);
        }
        // gRPC itself needs HTTP/2.
        meter.call_ended();
        frontend.metrics.refused(
            Refusal::NotGrpc,
            client,
            request.uri().path(),
            "it is no call of gRPC-Web's, and HTTP/1.1",
        );
        return not_grpc(request.method());
    };
    let door = cors.check();
    let is_http1 = request.version() < Version::HTTP_2;
    if is_http1 {
        name_authority(&mut request);
    }
    let headers = request.headers_mut();
    headers.insert(CONTENT_TYPE, content_type("application/grpc", &rest));
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.remove(CONTENT_LENGTH);
    // A page can't say `user-agent`: this stands for it.
    if let Some(agent) = headers.remove("x-user-agent") {
        headers.insert(http::header::USER_AGENT, agent);
    }
    headers.remove("x-grpc-web");
    let request = request.map(|body| WebRequest::new(body, form, is_http1));
    let response = frontend.answer(request, client, meter, door).await;
    finish(response.map(|answer| WebAnswer::Web { answer, form }), form, &rest, &cors)
}

/// A request of HTTP/1.1 says in a header what HTTP/2's `:authority` says.
fn name_authority(request: &mut Request<Incoming>) {
    let Some(host) = request.headers_mut().remove(HOST) else { return };
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let uri = host
        .to_str()
        .ok()
        .and_then(|host| Uri::builder().scheme("http").authority(host).path_and_query(path).build().ok());
    if let Some(uri) = uri {
        *request.uri_mut() = uri;
    }
}

/// What a page gets of a call's answer.
fn finish(mut response: Response<WebAnswer>, form: Form, rest: &[u8], cors: &Cors) -> Response<WebAnswer> {
    if response.status() == StatusCode::OK {
        let front = match form {
            Form::Binary => "application/grpc-web",
            Form::Text => "application/grpc-web-text",
        };
        response.headers_mut().insert(CONTENT_TYPE, content_type(front, rest));
    }
    cors.allow(response.headers_mut());
    response
}
