//! Which pages may call, as browsers ask and are told (the Fetch standard's CORS protocol).

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, VARY,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use tonic::Status;

use crate::config::WebConfig;
use crate::refusal::{Refusal, Refused};
use crate::web::WebAnswer;

/// What a browser may always show of a response.
const ALWAYS_SHOWN: [&str; 5] = ["cache-control", "content-language", "content-type", "expires", "pragma"];
/// What a page needs beside what the response has: the status may come behind it.
const STATUS: [&str; 3] = ["grpc-status", "grpc-message", "grpc-status-details-bin"];

/// What is said to the page that a request comes from.
pub(super) enum Cors {
    /// It comes from no page of another origin.
    None,
    /// The page may call.
    Allowed { origin: HeaderValue, has_credentials: bool, max_age_ms: u32 },
    /// It may not.
    Refused { origin: HeaderValue },
}

impl Cors {
    pub(super) fn of(origin: Option<&HeaderValue>, config: &WebConfig) -> Cors {
        let Some(origin) = origin.cloned() else { return Cors::None };
        match origin.to_str().is_ok_and(|origin| config.allows(origin)) {
            false => Cors::Refused { origin },
            true => {
                Cors::Allowed { origin, has_credentials: config.credentials, max_age_ms: config.max_age_ms }
            }
        }
    }

    /// # Errors
    /// The page may not call.
    pub(super) fn check(&self) -> Result<(), Refused> {
        let Cors::Refused { origin } = self else { return Ok(()) };
        let origin = String::from_utf8_lossy(origin.as_bytes());
        let words = format!("the page's origin {origin} is not among those that may call");
        Err(Refused { why: Refusal::Origin, status: Status::permission_denied(words) })
    }

    /// The answer to a browser that asks before it lets a page call.
    pub(super) fn preflight(&self, asked: &HeaderMap) -> Response<WebAnswer> {
        let mut response = Response::new(WebAnswer::default());
        let Cors::Allowed { max_age_ms, .. } = self else {
            *response.status_mut() = match self {
                Cors::Refused { .. } => StatusCode::FORBIDDEN,
                // No browser's question.
                _ => StatusCode::METHOD_NOT_ALLOWED,
            };
            response.headers_mut().insert(http::header::ALLOW, HeaderValue::from_static("POST"));
            return response;
        };
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        if asked.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
            headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST"));
            // Any name may be one of metadata.
            if let Some(names) = asked.get(ACCESS_CONTROL_REQUEST_HEADERS) {
                headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
            }
            headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from(*max_age_ms / 1000));
        }
        self.say(headers);
        let vary = "origin, access-control-request-method, access-control-request-headers";
        headers.insert(VARY, HeaderValue::from_static(vary));
        response
    }

    /// Lets the page read an answer, with all of its headers.
    pub(super) fn allow(&self, headers: &mut HeaderMap) {
        let Cors::Allowed { .. } = self else { return };
        let names = headers.keys().map(http::HeaderName::as_str);
        let names = names.filter(|name| !ALWAYS_SHOWN.contains(name) && !STATUS.contains(name));
        let names = names.chain(STATUS).collect::<Vec<_>>().join(", ");
        if let Ok(names) = HeaderValue::try_from(names) {
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, names);
        }
        self.say(headers);
        headers.append(VARY, HeaderValue::from_static("origin"));
    }

    fn say(&self, headers: &mut HeaderMap) {
        let Cors::Allowed { origin, has_credentials, .. } = self else { return };
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        if *has_credentials {
            headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
    }
}
