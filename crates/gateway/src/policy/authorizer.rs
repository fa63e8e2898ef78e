//! An authorization service elsewhere: Envoy's `ext_authz`, by gRPC.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue};
use tollfree::gateway::{RateLimitedLog, read_file};
use tonic::client::Grpc;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use super::authz_messages::{
    AppendAction, AttributeAddress, AttributeContext, AttributePeer, AttributeRequest, CheckRequest,
    CheckResponse, HeaderValueOption, HttpRequest, HttpResponse, SocketAddress,
};
use super::caller::CallerIdentity;
use super::edits::editable;
use crate::config::{AccessAction, ExtAuthz};
use crate::metrics::Metrics;
use crate::refusal::{Refusal, Refused};
use crate::tls::CERTIFICATE_LEN_MAX;

const CHECK: PathAndQuery = PathAndQuery::from_static("/envoy.service.auth.v3.Authorization/Check");

static FAILED: RateLimitedLog = RateLimitedLog::new();

/// A call as the service is told of it.
pub(super) struct AskedCall<'c> {
    pub(super) caller: &'c CallerIdentity<'c>,
    pub(super) path: &'c str,
    pub(super) headers: &'c HeaderMap,
    pub(super) group: Option<&'c str>,
}

/// The service, and what becomes of calls that it says nothing of.
pub(crate) struct Authorizer {
    endpoint: Endpoint,
    /// Made with the first call, in a runtime.
    channel: OnceLock<Channel>,
    timeout: Duration,
    on_failure: AccessAction,
    metrics: Option<Arc<Metrics>>,
}

/// Headers that the service edits.
#[derive(Default)]
pub(crate) struct AuthorizedEdits {
    request: Vec<(HeaderName, HeaderValue, AppendAction)>,
    remove: Vec<HeaderName>,
    answer: Vec<(HeaderName, HeaderValue, AppendAction)>,
}

impl AuthorizedEdits {
    pub(super) fn edit_request(&self, headers: &mut HeaderMap) {
        for name in &self.remove {
            headers.remove(name);
        }
        edit(&self.request, headers);
    }

    pub(super) fn edit_answer(&self, headers: &mut HeaderMap) {
        edit(&self.answer, headers);
    }
}

fn edit(edits: &[(HeaderName, HeaderValue, AppendAction)], headers: &mut HeaderMap) {
    for (name, value, action) in edits {
        let is_there = headers.contains_key(name);
        match (action, is_there) {
            (AppendAction::AddIfAbsent, true) | (AppendAction::OverwriteIfExists, false) => {}
            (AppendAction::AppendIfExistsOrAdd, _) => _ = headers.append(name.clone(), value.clone()),
            _ => _ = headers.insert(name.clone(), value.clone()),
        }
    }
}

/// Those that may be edited. `default` is what becomes of a header that says nothing of it.
fn edits(
    options: Vec<HeaderValueOption>,
    default: AppendAction,
) -> Vec<(HeaderName, HeaderValue, AppendAction)> {
    let one = |option: HeaderValueOption| {
        let said = option.append_action();
        let action = match (option.append, said) {
            (Some(append), _) if append.value => AppendAction::AppendIfExistsOrAdd,
            (Some(_), _) => AppendAction::OverwriteIfExistsOrAdd,
            (None, AppendAction::AppendIfExistsOrAdd) => default,
            (None, said) => said,
        };
        let header = option.header?;
        let value = if header.value.is_empty() { header.raw_value } else { header.value.into_bytes() };
        let name = editable(&header.key.to_ascii_lowercase()).ok()?;
        Some((name, HeaderValue::from_bytes(&value).ok()?, action))
    };
    options.into_iter().filter_map(one).collect()
}

impl Authorizer {
    /// Reads its files. Blocks the thread.
    ///
    /// # Errors
    /// The key that is wrong, and why.
    pub(super) fn prepare(config: &ExtAuthz) -> Result<Authorizer, (&'static str, String)> {
        let endpoint = Endpoint::from_shared(config.target.clone());
        let mut endpoint = endpoint.map_err(|error| ("target", error.to_string()))?;
        let timeout = Duration::from_millis(config.timeout_ms);
        endpoint = endpoint.connect_timeout(timeout);
        if let Some(ca) = &config.ca {
            let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authorities(ca)?));
            endpoint = endpoint.tls_config(tls).map_err(|error| ("ca", error.to_string()))?;
        }
        Ok(Authorizer {
            endpoint,
            channel: OnceLock::new(),
            timeout,
            on_failure: config.on_failure,
            metrics: None,
        })
    }

    pub(super) fn counted_by(self, metrics: Option<&Arc<Metrics>>) -> Authorizer {
        Authorizer { metrics: metrics.cloned(), ..self }
    }

    /// # Errors
    /// The service refuses the call, or does not answer in time and has to.
    pub(super) async fn check(&self, call: &AskedCall<'_>) -> Result<AuthorizedEdits, Refused> {
        let channel = self.channel.get_or_init(|| self.endpoint.connect_lazy()).clone();
        let asked = async {
            let mut grpc = Grpc::new(channel);
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let codec = ProstCodec::<CheckRequest, CheckResponse>::default();
            grpc.unary(Request::new(call.request()), CHECK, codec).await
        };
        let problem = match tokio::time::timeout(self.timeout, asked).await {
            Ok(Ok(answer)) => return decided(answer.into_inner()),
            Ok(Err(status)) => status.to_string(),
            Err(_) => format!("no answer within {} ms", self.timeout.as_millis()),
        };
        self.metrics.iter().for_each(|metrics| _ = metrics.authorizer_failures.inc());
        if let Some(unsaid) = FAILED.turn() {
            let (target, on_failure) = (self.endpoint.uri(), self.on_failure);
            tracing::error!(%target, problem, ?on_failure, unsaid, "an authorization service does not answer");
        }
        match self.on_failure {
            AccessAction::Allow => Ok(AuthorizedEdits::default()),
            AccessAction::Deny => Err(Refused {
                why: Refusal::Authorizer,
                status: Status::unavailable("the authorization service does not answer; try again later"),
            }),
        }
    }
}

fn authorities(path: &Path) -> Result<Vec<u8>, (&'static str, String)> {
    read_file(path, CERTIFICATE_LEN_MAX).map_err(|error| ("ca", format!("{}: {error}", path.display())))
}

impl AskedCall<'_> {
    fn request(&self) -> CheckRequest {
        let client = self.caller.client();
        let path = format!("/{}", self.path);
        let mut headers: HashMap<String, String> =
            [(":method".to_owned(), "POST".to_owned()), (":path".to_owned(), path.clone())].into();
        for name in self.headers.keys() {
            let values: Vec<_> = self.headers.get_all(name).iter().map(|value| value.as_bytes()).collect();
            let value = String::from_utf8_lossy(&values.join(&b',')).into_owned();
            headers.insert(name.as_str().to_owned(), value);
        }
        let host = headers.get("host").cloned().unwrap_or_default();
        let address = client.ip().map(|ip| AttributeAddress {
            socket_address: Some(SocketAddress { address: ip.to_string(), port_value: client.port().into() }),
        });
        let mut context_extensions = HashMap::from([("listener".to_owned(), client.listener().to_owned())]);
        if let Some(group) = self.group {
            context_extensions.insert("group".to_owned(), group.to_owned());
        }
        let principal = self.caller.name().unwrap_or_default();
        CheckRequest {
            attributes: Some(AttributeContext {
                source: Some(AttributePeer { address, principal }),
                request: Some(AttributeRequest {
                    http: Some(HttpRequest {
                        method: "POST".into(),
                        headers,
                        path,
                        host,
                        scheme: "http".into(),
                        size: -1,
                        protocol: "HTTP/2".into(),
                    }),
                }),
                context_extensions,
            }),
        }
    }
}

fn decided(answer: CheckResponse) -> Result<AuthorizedEdits, Refused> {
    let status = answer.status.unwrap_or_default();
    match (status.code, answer.http_response) {
        (0, Some(HttpResponse::Ok(ok))) => {
            let remove =
                ok.headers_to_remove.iter().filter_map(|name| editable(&name.to_ascii_lowercase()).ok());
            Ok(AuthorizedEdits {
                remove: remove.collect(),
                request: edits(ok.headers, AppendAction::OverwriteIfExistsOrAdd),
                answer: edits(ok.response_headers_to_add, AppendAction::AppendIfExistsOrAdd),
            })
        }
        (0, None) => Ok(AuthorizedEdits::default()),
        (code, response) => {
            let denied = match response {
                Some(HttpResponse::Denied(denied)) => denied,
                _ => Default::default(),
            };
            let code = match (denied.status.map(|status| status.code), Code::from_i32(code)) {
                (Some(401), _) => Code::Unauthenticated,
                (Some(429), _) => Code::ResourceExhausted,
                (Some(_), _) | (None, Code::Ok | Code::Unknown) => Code::PermissionDenied,
                (None, code) => code,
            };
            let words = [denied.body, status.message].into_iter().find(|words| !words.is_empty());
            let words = words.unwrap_or_else(|| "the authorization service refuses the call".into());
            let mut refused = Status::new(code, words);
            let mut more = HeaderMap::new();
            edit(&edits(denied.headers, AppendAction::OverwriteIfExistsOrAdd), &mut more);
            *refused.metadata_mut() = tonic::metadata::MetadataMap::from_headers(more);
            Err(Refused { why: Refusal::Denied, status: refused })
        }
    }
}
