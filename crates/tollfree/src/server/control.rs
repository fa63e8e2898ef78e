//! What a shepherd asks of a process that has attached to it, beside the calls that it hands in.

use bytes::{BufMut, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use tonic::Status;
use tonic::body::Body;

use crate::endpoint::shortcut::ADMIT;
use crate::message::translation::describe;
use crate::metadata::{GRPC, GRPC_STATUS};
use crate::server::http_handle::{Handler, HandlerFuture};
use crate::server::session_task::Services;
use crate::server::shortcut::Admitting;

/// By which a shepherd asks for the types of a method that is served here with objects.
pub(crate) const DESCRIBE: &str = "/tollfree.Objects/Describe";
/// The method's path.
pub(crate) const METHOD: HeaderName = HeaderName::from_static("tollfree-method");

/// Whether a call is the shepherd's own.
pub(crate) fn is_control(path: &[u8]) -> bool {
    path == ADMIT.as_bytes() || path == DESCRIBE.as_bytes()
}

/// Answers those calls.
pub(crate) struct Control {
    admitting: Admitting,
    services: Services,
}

impl Control {
    pub(crate) fn new(admitting: Admitting, services: Services) -> Control {
        Control { admitting, services }
    }

    fn describe(&self, request: &Request<Body>) -> Result<Response<Body>, Status> {
        let path = request.headers().get(METHOD).and_then(|value| value.to_str().ok());
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
        let ok = HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static("0"))]);
        let body = Full::new(framed.freeze()).with_trailers(std::future::ready(Some(Ok(ok))));
        let mut response = Response::new(Body::new(body));
        response.headers_mut().insert(http::header::CONTENT_TYPE, GRPC);
        Ok(response)
    }
}

impl Handler for Control {
    fn handle(&self, request: Request<Body>) -> HandlerFuture {
        if request.uri().path() != DESCRIBE {
            return self.admitting.handle(request);
        }
        let response = self.describe(&request).unwrap_or_else(Status::into_http);
        Box::pin(std::future::ready(response))
    }
}
