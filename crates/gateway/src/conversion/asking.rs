//! What the gateway asks of a process that has attached, beside the calls that it hands to it (`spec/wire.md`, section 24).

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderName, HeaderValue, Request, Uri};
use http_body::Body as _;
use tollfree::Channel;
use tollfree::gateway::{Attached, Held};
use tollfree_layout::description::{DESCRIBE, INVITATION_HEADER, JOIN, METHOD_HEADER, POOL_HEADER};
use tonic::body::Body;
use tonic::{Code, Status};
use tower_service::Service as _;

use crate::conversion::PREFIX_LEN;
use crate::conversion::group_pools::GroupPool;

/// An answer must have come within this time.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest description of a method that is taken, in bytes.
const DESCRIPTION_LEN_MAX: usize = 4 << 20;

/// A description as it came, which is counted.
pub(super) struct Description {
    pub(super) bytes: Bytes,
    pub(super) _held: Held,
}

/// The description of a method, as its process tells it. What comes of it is `held` from then on.
///
/// # Errors
/// Why there is none.
pub(super) async fn describe(attached: &Attached, path: &str, mut held: Held) -> Result<Description, String> {
    let method = HeaderValue::from_str(path).map_err(|_| "the method's path is no header".to_owned())?;
    let mut bytes = ask(attached, DESCRIBE, [(METHOD_HEADER, method)], &mut held).await?;
    if bytes.len() < PREFIX_LEN {
        return Err("the answer has no message".into());
    }
    bytes.advance(PREFIX_LEN);
    Ok(Description { bytes, _held: held })
}

/// Has a process join the pool of its group.
///
/// # Errors
/// Why it has not.
pub(super) async fn join(attached: &Attached, place: &GroupPool, mut held: Held) -> Result<(), String> {
    let invited = [(POOL_HEADER, place.address.clone()), (INVITATION_HEADER, place.invite()?)];
    ask(attached, JOIN, invited, &mut held).await.map(drop)
}

/// Asks a process for something, within a time limit: all that it answers, which is `held` from then on.
async fn ask(
    attached: &Attached,
    what: &'static str,
    headers: impl IntoIterator<Item = (&'static str, HeaderValue)>,
    held: &mut Held,
) -> Result<Bytes, String> {
    let answer =
        tokio::time::timeout(PATIENCE, answer(attached.channel(), control_request(what, headers), held))
            .await;
    answer.unwrap_or_else(|_| Err(format!("the answer has taken longer than {PATIENCE:?}")))
}

/// A call of the gateway's own.
pub(crate) fn control_request(
    path: &'static str,
    headers: impl IntoIterator<Item = (&'static str, HeaderValue)>,
) -> Request<Body> {
    let mut request = Request::new(Body::empty());
    *request.method_mut() = http::Method::POST;
    *request.version_mut() = http::Version::HTTP_2;
    *request.uri_mut() = Uri::from_static(path);
    request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    let headers = headers.into_iter().map(|(name, value)| (HeaderName::from_static(name), value));
    request.headers_mut().extend(headers);
    request
}

async fn answer(mut channel: Channel, request: Request<Body>, held: &mut Held) -> Result<Bytes, String> {
    let (parts, mut body) = channel.call(request).await.map_err(|status| status.to_string())?.into_parts();
    // An answer without a message may have its status at once.
    if let Some(status) = Status::from_header_map(&parts.headers).filter(|status| status.code() != Code::Ok) {
        return Err(status.to_string());
    }
    let mut message = BytesMut::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame.map_err(|status| status.to_string())?;
        if let Ok(data) = frame.into_data() {
            if message.len() + data.len() > DESCRIPTION_LEN_MAX {
                return Err(format!("the description has more than {DESCRIPTION_LEN_MAX} bytes"));
            }
            held.add(data.len())?;
            message.extend_from_slice(&data);
        }
    }
    Ok(message.freeze())
}
