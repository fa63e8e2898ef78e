//! A call from outside on its way to a backend connection and back.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use tollfree::Channel;
use tollfree::gateway::{CallRules, Dispatch, Http2RequestBody, header_list, remove_ours};
use tonic::body::Body;
use tonic::{Code, Status};
use tower_service::Service;

use crate::access_log::AccessLog;
use crate::arrival;
use crate::backend_connection::Handover;
use crate::backend_connections::{BackendConnections, Wanted};
use crate::bodies::{Answer, Asked, Logged, Passage, Record};
use crate::client::Client;
use crate::config::Config;
use crate::connection::Meter;
use crate::connections::Connections;
use crate::conversion::says_encoding;
use crate::deadline;
use crate::health::Health;
use crate::inside::Inside;
use crate::metrics::Metrics;
use crate::mirror::{Mirror, Tapped};
use crate::monitor::{Stage, Timeline};
use crate::policy::{Admission, ListenerEdge, ListenerPolicies, Route};
use crate::reflection::Reflection;
use crate::refusal::{Refusal, Refused, not_grpc};
use crate::reload::Current;
use crate::routing::service_of;
use crate::space::Space;
use crate::traces::Traces;

const HEALTH: &str = "grpc.health.v1.Health";

/// The body of a request: as hyper received it, or made of that.
pub(crate) trait RequestBody:
    HttpBody<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static>
    + Unpin
    + Send
    + 'static
{
}

impl<B> RequestBody for B where
    B: HttpBody<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static>
        + Unpin
        + Send
        + 'static
{
}

/// What all calls need.
pub(crate) struct Frontend {
    pub(crate) config: Current,
    pub(crate) policies: Arc<ListenerPolicies>,
    pub(crate) backend_connections: Arc<BackendConnections>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) traces: Option<Traces>,
    pub(crate) access_log: Option<Arc<AccessLog>>,
    pub(crate) health: Health,
}

impl Frontend {
    /// Answers a call, or refuses it where its door says so already. Dropping the future, or the body that it gives, cancels the call.
    pub(crate) async fn answer<B: RequestBody>(
        &self,
        mut request: Request<B>,
        client: &Arc<Client>,
        meter: Arc<Meter>,
        door: Result<(), Refused>,
    ) -> Response<Answer> {
        // One config for all of the call.
        let config = self.config.load_full();
        let path = request.uri().path().strip_prefix('/').unwrap_or_default().to_owned();
        let edge = self.policies.of_listener(client.listener());
        let real = edge.as_ref().map(|edge| edge.client_of(client, request.headers_mut()));
        let (client, unclear) = match real {
            Some(Ok(real)) => (real, None),
            Some(Err(refused)) => (client.clone(), Some(refused)),
            None => (client.clone(), None),
        };
        let client = &client;
        let route = self.policies.route(&path, request.headers());
        let passage = Arc::new(Passage::new(client));
        let began = Instant::now();
        let mut record = Record {
            began,
            timeline: Timeline::of(began),
            call: self.metrics.common.serve(&path),
            path,
            passage,
            metrics: self.metrics.clone(),
            meter,
            span: self.traces.as_ref().map(|traces| traces.begin(request.headers_mut())),
            logged: self.access_log.as_ref().map(|log| Logged::new(log, request.headers())),
            admission: Admission::default(),
            answered_by: None,
            sent_bytes: 0,
            is_served: false,
            code: None,
        };
        if !is_grpc(&request) {
            self.metrics.refused(Refusal::NotGrpc, client, &record.path, "it is no call of gRPC's");
            record.timeline.end();
            record.code = Some(Code::Unknown);
            let (parts, body) = not_grpc(request.method()).into_parts();
            let answer = Answer::new(body, config, record, &parts.headers);
            return Response::from_parts(parts, answer);
        }
        if let Some(policy) = edge.as_ref().and_then(|edge| edge.policy()) {
            record.admission = Admission::of_policy(policy);
        }
        let admitted = match unclear.or(door.err()) {
            Some(refused) => Err(refused),
            None => {
                let place = (&*record.path, route.group.as_deref(), began);
                self.admit(edge.as_deref(), request.headers(), client, place).await
            }
        };
        match admitted {
            Ok(admission) => {
                admission.edit_request(request.headers_mut());
                record.admission = admission;
            }
            Err(Refused { why, status }) => {
                self.metrics.refused(why, client, &record.path, status.message());
                record.timeline.end();
                return own(status.into_http(), config, record);
            }
        }
        let rules = self.backend_connections.rules_of(&record.path, route.group.as_deref());
        let most = rules.as_ref().and_then(|rules| rules.timeout(request.uri().path()));
        let limited = deadline::limit(request.headers_mut(), most);
        let own_service = match service_of(&record.path) {
            HEALTH => Some(OwnService::Health(&self.health)),
            service if Reflection::is(service) => {
                self.backend_connections.reflection().map(OwnService::Reflection)
            }
            _ => None,
        };
        let refused = match limited.and_then(|()| deadline::end_of(request.headers(), began)) {
            Ok(deadline) => match own_service {
                Some(service) => {
                    record.timeline.end();
                    let answer = own(service.answer(request).await, config, record);
                    return answer.map(|answer| answer.until(deadline));
                }
                None => {
                    match self.hand_on(request, client, &config, &mut record, (deadline, rules, route)).await
                    {
                        Ok((response, place)) => {
                            let answer = handed(response, config, record);
                            return answer.map(|answer| answer.at(place).until(deadline));
                        }
                        Err(refused) => refused,
                    }
                }
            },
            Err(refused) => refused,
        };
        let Refused { why, status } = refused;
        self.metrics.refused(why, client, &record.path, status.message());
        record.timeline.end();
        own(status.into_http(), config, record)
    }

    /// Holds a call to the policy of its listener.
    async fn admit(
        &self,
        edge: Option<&ListenerEdge>,
        headers: &http::HeaderMap,
        client: &Client,
        (path, group, began): (&str, Option<&str>, Instant),
    ) -> Result<Admission, Refused> {
        let Some(policy) = edge.and_then(ListenerEdge::policy) else {
            return Ok(Admission::default());
        };
        let group = group.map(str::to_owned).or_else(|| self.backend_connections.group_of(path));
        // It may wait for keys, or for a service.
        let deadline = deadline::end_of(headers, began)?;
        let admission = policy.admit(client, path, headers, group.as_deref());
        deadline::in_time(deadline, admission).await?
    }

    /// Has a backend connection answer.
    async fn hand_on<B: RequestBody>(
        &self,
        request: Request<B>,
        client: &Arc<Client>,
        config: &Arc<Config>,
        record: &mut Record,
        (deadline, rules, route): (Option<Instant>, Option<Arc<CallRules>>, Route),
    ) -> Result<(Response<Body>, crate::backend_connections::Place), Refused> {
        let limits = &config.limits;
        let (mut parts, body) = request.into_parts();
        let len = header_list::len_of_request(&parts.uri, &parts.headers);
        if len > limits.header_bytes as usize {
            let limit = limits.header_bytes;
            let status = Status::resource_exhausted(format!(
                "the request's headers have {len} bytes; limits.header_bytes allows {limit}"
            ));
            return Err(Refused { why: Refusal::Headers, status });
        }
        record.timeline.reached(Stage::Checked, &self.metrics.monitor);
        let passage = record.passage.clone();
        let mut wanted = Wanted {
            path: &record.path,
            group: route.group.as_deref(),
            client,
            owner: client.owner(),
            has_message: false,
            began: record.began,
            deadline,
        };
        let body = Http2RequestBody::new(body, wanted.deadline);
        let body = match route.mirror {
            None => Tapped::none(body),
            Some(place) => {
                let mirror = Mirror {
                    backend_connections: self.backend_connections.clone(),
                    metrics: self.metrics.clone(),
                    config: config.clone(),
                    client: client.clone(),
                };
                mirror.begin(place, &parts, body, deadline)
            }
        };
        let asked = |charge| Asked::new(body, config.clone(), passage.clone(), charge);
        let (place, asked) =
            arrival::place(&self.backend_connections, &mut wanted, (&passage, limits), asked).await?;
        let bound = record.admission.bind(&record.path, place.group())?;
        wanted.group = bound.as_deref().or(wanted.group);
        record.timeline.reached(Stage::Placed, &self.metrics.monitor);
        client.sign(&mut parts.headers);
        deadline::shrink(&mut parts.headers, record.began)?;
        let dispatch = Dispatch::new(Request::from_parts(parts, Body::new(asked)));
        let dispatch = dispatch.count_holdings(passage.clone());
        let space = says_encoding(dispatch.headers()).then(|| {
            let charges = [place.charge(), place.charge()];
            Arc::new(Space::new(config.clone(), record.passage.clone(), self.metrics.clone(), charges))
        });
        let handover = Handover::new(dispatch, space.clone().map(|space| space as _), rules);
        record.timeline.reached(Stage::Handed, &self.metrics.monitor);
        let (handed, place) = self.backend_connections.hand(&wanted, place, handover).await?;
        if let Some(refused) = record.passage.refused(limits) {
            return Err(refused);
        }
        record.passage.answered();
        space.iter().for_each(|space| space.answered());
        record.timeline.reached(Stage::Answered, &self.metrics.monitor);
        let response = match handed {
            Ok(mut response) => {
                // Not before: a client may make up a method's name, and be gone before the backend connection says so.
                record.is_served = true;
                remove_ours(response.headers_mut());
                record.admission.edit_answer(response.headers_mut());
                let max = record.meter.header_list_max(limits.header_bytes);
                header_list::check(response.headers(), max)
                    .map_err(|status| Refused { why: Refusal::AnswerHeaders, status })?;
                response
            }
            Err(inside) => {
                record.answered_by(&place);
                let status = inside.told(place.group(), &record.path);
                self.metrics.monitor.failed("backend_connection", &record.path, status.message());
                let mut response = status.into_http();
                record.admission.edit_answer(response.headers_mut());
                response
            }
        };
        Ok((response, place))
    }
}

/// A service that the gateway itself answers for.
enum OwnService<'f> {
    Health(&'f Health),
    Reflection(Reflection),
}

impl OwnService<'_> {
    async fn answer<B: RequestBody>(self, request: Request<B>) -> Response<Body> {
        match self {
            OwnService::Health(health) => health.answer(request).await,
            OwnService::Reflection(reflection) => reflection.answer(request).await,
        }
    }
}

/// An answer of the gateway's own.
fn own(mut response: Response<Body>, config: Arc<Config>, record: Record) -> Response<Answer> {
    record.admission.edit_answer(response.headers_mut());
    handed(response, config, record)
}

fn handed(response: Response<Body>, config: Arc<Config>, record: Record) -> Response<Answer> {
    let (parts, body) = response.into_parts();
    let answer = Answer::new(body, config, record, &parts.headers);
    Response::from_parts(parts, answer)
}

/// Makes a call by a channel.
pub(crate) async fn call(mut channel: Channel, request: Request<Body>) -> Result<Response<Body>, Inside> {
    std::future::poll_fn(|cx| channel.poll_ready(cx)).await?;
    let mut response = channel.call(request).await?.map(Body::new);
    remove_ours(response.headers_mut());
    Ok(response)
}

fn is_grpc<B>(request: &Request<B>) -> bool {
    let kind = request.headers().get(http::header::CONTENT_TYPE).map(|value| value.as_bytes());
    let rest = kind.and_then(|kind| kind.strip_prefix(b"application/grpc"));
    // `application/grpc-web` is something else.
    request.method() == http::Method::POST
        && rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}
