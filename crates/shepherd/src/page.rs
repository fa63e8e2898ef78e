//! The page that shows the figures: `/metrics` by HTTP/1.1.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::metrics::Metrics;

/// Readers at once; further ones wait.
const READERS: usize = 16;
/// How long one may take for everything.
const PATIENCE: Duration = Duration::from_secs(10);
const TEXT: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// Serves until it is dropped.
pub(crate) async fn serve(listener: TcpListener, metrics: Arc<Metrics>) {
    let readers = Arc::new(Semaphore::new(READERS));
    let mut connections = JoinSet::new();
    loop {
        // The semaphore is never closed.
        let Ok(permit) = readers.clone().acquire_owned().await else { return };
        let stream = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let Ok((stream, _)) = stream else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let metrics = metrics.clone();
        connections.spawn(async move {
            let service = service_fn(move |request| {
                let answer = answer(&request, &metrics);
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service);
            _ = tokio::time::timeout(PATIENCE, connection).await;
            drop(permit);
        });
    }
}

fn answer(request: &Request<Incoming>, metrics: &Metrics) -> Response<Full<Bytes>> {
    let refused = |status, words: &'static str| {
        let mut response = Response::new(Full::new(Bytes::from_static(words.as_bytes())));
        *response.status_mut() = status;
        response
    };
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => {
            let mut response = Response::new(Full::new(metrics.text().into()));
            response.headers_mut().insert(http::header::CONTENT_TYPE, TEXT);
            response
        }
        (_, "/metrics") => refused(StatusCode::METHOD_NOT_ALLOWED, "only GET\n"),
        _ => refused(StatusCode::NOT_FOUND, "there is /metrics, and nothing else\n"),
    }
}
