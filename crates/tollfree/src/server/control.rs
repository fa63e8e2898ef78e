//! What a gateway asks of a process that has attached to it, beside the calls that it hands in.

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use tollfree_driver_tokio::LocalPeer;
use tollfree_layout::description::{
    DESCRIBE, DESCRIPTION_HEAD_LEN, DescriptionHead, INVITATION_HEADER, JOIN, METHOD_HEADER, POOL_HEADER,
};
use tollfree_layout::moving::MOVE;
use tonic::Status;
use tonic::body::Body;

use crate::endpoint::direct_connection::ADMIT;
use crate::message::compression::Encodings;
use crate::message::form::Types;
use crate::metadata::{GRPC, GRPC_STATUS};
use crate::server::direct_connection::Admitting;
use crate::server::http_handle::{ErasedService, HandlerFuture};
use crate::server::joining::Joining;
use crate::server::moving::Moving;
use crate::server::session_task::Services;

/// Whether a call is the gateway's own.
pub(crate) fn is_control(path: &[u8]) -> bool {
    [ADMIT, DESCRIBE, JOIN, MOVE].iter().any(|own| path == own.as_bytes())
}

/// What only a gateway of this host may ask for: that one of the host's processes is let in, and that memory of the host is shared.
pub(crate) struct LocalRights {
    admitting: Admitting,
    /// Set where the gateway is trusted.
    joining: Option<Joining>,
}

impl LocalRights {
    /// Those of a gateway that the kernel has named.
    pub(crate) fn of(_: LocalPeer, admitting: Admitting, joining: Option<Joining>) -> LocalRights {
        LocalRights { admitting, joining }
    }

    fn join(&self, request: &Request<Body>) -> HandlerFuture {
        let text = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        let address = text(POOL_HEADER).and_then(|text| text.parse().ok());
        let invitation = text(INVITATION_HEADER).and_then(|text| text.parse().ok());
        let joining = self.joining.clone();
        Box::pin(async move {
            let joined = match (joining, address, invitation) {
                (None, ..) => {
                    Err(Status::failed_precondition("this process does not trust its gateway's objects"))
                }
                (_, None, _) => Err(Status::invalid_argument("tollfree-pool is no address")),
                (.., None) => Err(Status::invalid_argument("tollfree-invitation is no invitation")),
                (Some(joining), Some(address), Some(invitation)) => joining.join(address, invitation).await,
            };
            joined.map_or_else(Status::into_http, |()| answer(Bytes::new()))
        })
    }
}

/// Answers those calls.
pub(crate) struct Control {
    services: Services,
    moving: Moving,
    /// `None`: the gateway is one of another host.
    local: Option<LocalRights>,
}

impl Control {
    pub(crate) fn new(services: Services, moving: Moving, local: Option<LocalRights>) -> Control {
        Control { services, moving, local }
    }

    fn describe(&self, request: &Request<Body>) -> Result<Response<Body>, Status> {
        let path = request.headers().get(METHOD_HEADER).and_then(|value| value.to_str().ok());
        let (service, method) = path
            .and_then(|path| path.strip_prefix('/')?.split_once('/'))
            .ok_or_else(|| Status::invalid_argument("tollfree-method names no method"))?;
        let direct = self.services.get(service).and_then(|served| served.direct.as_ref());
        let types = direct.and_then(|found| found.direct.types(method)).ok_or_else(|| {
            Status::not_found(format!("/{service}/{method} is not served with objects here"))
        })?;
        let encodings = direct.map(|found| found.direct.encodings()).unwrap_or_default();
        let description = describe(&types, encodings);
        let mut framed = BytesMut::with_capacity(5 + description.len());
        framed.put_u8(0);
        framed.put_u32(description.len() as u32);
        framed.put_slice(&description);
        Ok(answer(framed.freeze()))
    }
}

/// How a method's types are told, from the process that serves it to its gateway: a [`Description`](tollfree_layout::description::Description).
fn describe(types: &Types, encodings: Encodings) -> Bytes {
    let Types { request, reply, .. } = types;
    let head = DescriptionHead {
        request_idx: request.type_idx.into(),
        reply_idx: reply.type_idx.into(),
        request_len: (request.blob.len() as u32).into(),
        accepts: encodings.accepts,
        sends: encodings.sends,
        reserved: 0.into(),
    };
    let mut bytes = BytesMut::with_capacity(DESCRIPTION_HEAD_LEN + request.blob.len());
    bytes.put_slice(&head.to_bytes());
    bytes.put_slice(request.blob);
    if !std::ptr::eq(request.blob, reply.blob) {
        bytes.put_slice(reply.blob);
    }
    bytes.freeze()
}

/// An answer with status OK, and these bytes of messages.
fn answer(framed: Bytes) -> Response<Body> {
    let ok = HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static("0"))]);
    let body = Full::new(framed).with_trailers(std::future::ready(Some(Ok(ok))));
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(http::header::CONTENT_TYPE, GRPC);
    response
}

impl ErasedService for Control {
    fn handle(&self, request: Request<Body>) -> HandlerFuture {
        let answered = match (request.uri().path(), &self.local) {
            (DESCRIBE, _) => self.describe(&request).unwrap_or_else(Status::into_http),
            (JOIN, Some(local)) => return local.join(&request),
            (MOVE, _) => {
                let moving = self.moving.clone();
                return Box::pin(async move {
                    moving.move_on().await.map_or_else(Status::into_http, |()| answer(Bytes::new()))
                });
            }
            (_, Some(local)) => return local.admitting.handle(request),
            (_, None) => Status::failed_precondition(
                "the gateway is on another host: it lets in no process of this one, and shares no memory with it",
            )
            .into_http(),
        };
        Box::pin(std::future::ready(answered))
    }
}
