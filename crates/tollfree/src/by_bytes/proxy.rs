//! Calls passed on to another server.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::{FutureExt as _, Stream, StreamExt as _};
use http_body::Body as HttpBody;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::{Request, Response, Status};

use crate::by_bytes::{Client, Method, Trailers};
use crate::message::streaming::Streaming;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The messages of an answer that is passed on.
#[derive(Debug)]
pub struct PassedOn {
    /// `None` behind the end.
    messages: Option<Streaming<Bytes>>,
    trailers: Trailers,
}

impl<T> Client<T>
where
    T: GrpcService<Body>,
    T::ResponseBody: HttpBody + Send + 'static,
    <T::ResponseBody as HttpBody>::Error: Into<BoxError>,
{
    /// Passes on a call that an [`AnyMethod`](crate::by_bytes::AnyMethod) serves, whatever its kind: metadata, deadline and messages there;
    /// metadata, messages, status and trailing metadata back. A call that its client leaves is left, and its request not ended.
    ///
    /// # Errors
    /// The call's status.
    pub async fn pass_on(
        &mut self,
        method: &Method,
        request: Request<Streaming<Bytes>>,
    ) -> Result<Response<PassedOn>, Status> {
        // Where the client goes, this call is dropped. Its request was not complete.
        let whole = |messages: Streaming<Bytes>| {
            messages.then(async |message| match message {
                Ok(message) => message,
                Err(_) => std::future::pending().await,
            })
        };
        let trailers = Trailers::default();
        let answer = self.streaming(method, request.map(whole)).await?;
        let mut answer =
            answer.map(|messages| PassedOn { messages: Some(messages), trailers: trailers.clone() });
        answer.extensions_mut().insert(trailers);
        Ok(answer)
    }
}

impl Stream for PassedOn {
    type Item = Result<Bytes, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(messages) = &mut self.messages else { return Poll::Ready(None) };
        let next = ready!(messages.poll_next_unpin(cx));
        if next.is_none()
            && let Some(mut messages) = self.messages.take()
            // They are here: nothing is waited for.
            && let Some(Ok(Some(trailers))) = messages.trailers().now_or_never()
        {
            self.trailers.set(trailers);
        }
        Poll::Ready(next)
    }
}
