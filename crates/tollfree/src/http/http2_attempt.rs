//! One attempt of a call by tonic's own transport, from request to response head.

use std::future::poll_fn;
use std::time::Duration;

use http::{Request, Response};
use tollfree_driver_tokio::now_ns;
use tonic::body::Body;
use tower_service::Service;

use crate::call::attempts::Failed;
use crate::call::deadline::Deadline;
use crate::endpoint::Subchannel;
use crate::http::response_body::ResponseBody;
use crate::message::framing::tell_lengths;
use crate::metadata::{
    GRPC_STATUS, GRPC_TIMEOUT, drop_malformed_details, status_code, status_value, timeout_value,
};
use crate::status;

/// One attempt of a call, by a connection of tonic's.
pub(crate) async fn attempt(
    mut channel: tonic::transport::Channel,
    endpoint: &Subchannel,
    deadline_ns: Option<u64>,
    mut request: Request<Body>,
) -> Result<Response<ResponseBody>, Failed> {
    if let Some(deadline_ns) = deadline_ns {
        let left = Duration::from_nanos(deadline_ns.saturating_sub(now_ns()));
        request.headers_mut().insert(GRPC_TIMEOUT, timeout_value(left));
    }
    let failed = |error: tonic::transport::Error| {
        let unseen = status::is_unseen_by_http2(&error);
        let status = status::in_time(status::http2(error, &endpoint.name), deadline_ns);
        Failed { status, unseen }
    };
    if let Some(limit) = endpoint.server_limit() {
        limit.check(request.uri(), request.headers()).await?;
    }
    poll_fn(|cx| channel.poll_ready(cx)).await.map_err(failed)?;
    let (sent, received) = (endpoint.sharing.clone(), endpoint.sharing.clone());
    let request = request.map(|body| tell_lengths(body, move |_, len| sent.sent_by_http2(len)));
    let response = channel.call(request).await.map_err(failed)?;
    let (mut head, body) = response.into_parts();
    if let Some(code) = status_code(&head.headers) {
        // One that is no code means UNKNOWN, to those that the answer is handed to as well.
        head.headers.insert(GRPC_STATUS, status_value(code));
        drop_malformed_details(&mut head.headers);
    }
    let body = tell_lengths(body, move |_, len| received.received_by_http2(len));
    let body = ResponseBody::http2(&head, body, Deadline::new(deadline_ns));
    Ok(Response::from_parts(head, body))
}
