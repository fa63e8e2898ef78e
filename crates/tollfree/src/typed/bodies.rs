//! tonic's own client around a service, with bodies of ours: tonic says and reads what stands in heads, and no message passes through it.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Extensions, StatusCode};
use http_body::Body as HttpBody;
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use tonic::Status;
use tonic::body::Body;
use tonic::client::GrpcService;
use tower_service::Service;

use crate::message::streaming::{is_plain, tonic_body};
use crate::metadata::status_code;
use crate::typed::Named;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A service by reference, so that tonic's client can be made around it for one call.
pub(crate) struct Borrowed<'a, T> {
    service: &'a mut T,
    /// What goes out instead of the body that tonic has made.
    body: Option<Body>,
}

impl<'a, T> Borrowed<'a, T> {
    /// A service that is ready for a call of a method, and will send this body.
    ///
    /// # Errors
    /// UNKNOWN, with the reason, where it can't be called.
    pub(crate) async fn ready(
        service: &'a mut T,
        extensions: &mut Extensions,
        method: &impl Named,
        body: Option<Body>,
    ) -> Result<Borrowed<'a, T>, Status>
    where
        T: GrpcService<Body>,
        <T as GrpcService<Body>>::Error: Into<BoxError>,
    {
        method.note(extensions);
        let ready = poll_fn(|cx| GrpcService::poll_ready(service, cx)).await;
        ready.map_err(|error| Status::unknown(format!("Service was not ready: {}", error.into())))?;
        Ok(Borrowed { service, body })
    }

    /// The same, with the answer's body kept from tonic where no message in it is compressed.
    pub(crate) fn taking(self) -> (Taking<'a, T>, Taken) {
        let taken = Taken::default();
        (Taking { inner: self, taken: taken.clone() }, taken)
    }
}

impl<T: GrpcService<Body>> Service<http::Request<Body>> for Borrowed<'_, T> {
    type Response = http::Response<T::ResponseBody>;
    type Error = T::Error;
    type Future = T::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), T::Error>> {
        GrpcService::poll_ready(self.service, cx)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> T::Future {
        if let Some(body) = self.body.take() {
            *request.body_mut() = body;
        }
        GrpcService::call(self.service, request)
    }
}

/// The body of an answer that was kept from tonic.
#[derive(Clone, Default)]
pub(crate) struct Taken(Arc<Mutex<Option<Body>>>);

impl Taken {
    pub(crate) fn take(&self) -> Option<Body> {
        self.0.lock().take()
    }
}

/// As [`Borrowed`], and keeps the answer's body.
pub(crate) struct Taking<'a, T> {
    inner: Borrowed<'a, T>,
    taken: Taken,
}

impl<T> Service<http::Request<Body>> for Taking<'_, T>
where
    T: GrpcService<Body>,
    T::ResponseBody: HttpBody + Send + 'static,
    <T::ResponseBody as HttpBody>::Error: Into<BoxError>,
{
    type Response = http::Response<Body>;
    type Error = T::Error;
    type Future = Answering<T::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), T::Error>> {
        Service::poll_ready(&mut self.inner, cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Answering { future: Service::call(&mut self.inner, request), taken: self.taken.clone() }
    }
}

pin_project! {
    /// Keeps the body of an answer once its head is there.
    pub(crate) struct Answering<F> {
        #[pin]
        future: F,
        taken: Taken,
    }
}

impl<F, B, E> Future for Answering<F>
where
    F: Future<Output = Result<http::Response<B>, E>>,
    B: HttpBody + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Output = Result<http::Response<Body>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let (parts, body) = ready!(this.future.poll(cx))?.into_parts();
        let body = tonic_body(body);
        // A status in the head is all of the answer, and another HTTP status than 200 is for tonic to read.
        let is_kept = is_plain(&parts.headers)
            && parts.status == StatusCode::OK
            && status_code(&parts.headers).is_none();
        if !is_kept {
            return Poll::Ready(Ok(http::Response::from_parts(parts, body)));
        }
        *this.taken.0.lock() = Some(body);
        Poll::Ready(Ok(http::Response::from_parts(parts, Body::empty())))
    }
}
