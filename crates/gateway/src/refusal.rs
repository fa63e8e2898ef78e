//! What the gateway refuses, why, and in which words.

use http::Response;
use prometheus_client::encoding::EncodeLabelValue;
use tonic::Status;

/// Why something was refused or ended. Its name is a label of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Refusal {
    /// Too many connections.
    Connections,
    /// Too many connections of one address.
    ConnectionsPerAddress,
    /// What a balancer says of a client is missing or of no use, or a connection does not come from a balancer.
    Proxy,
    /// What a proxy says of a call's client is no address.
    Forwarded,
    /// TLS or HTTP/2 did not begin in time, or not well.
    Handshake,
    /// A connection without calls.
    Idle,
    /// A connection has reached its age.
    Age,
    /// Calls that were not over at the end of `limits.drain_ms`.
    Drain,
    /// Too many calls of a connection were reset.
    Resets,
    /// Headers too long.
    Headers,
    /// An answer's headers or trailers too long.
    AnswerHeaders,
    /// A message too long.
    Message,
    /// A group's calls hold too much memory.
    Memory,
    /// A client's share of a group's places is used up.
    Places,
    /// A client's share of a group's memory is used up.
    MemoryShare,
    /// A message comes too slowly.
    Slow,
    /// An answer stands for too long that its client does not read.
    Unread,
    /// Not gRPC.
    NotGrpc,
    /// A page of an origin that may not call.
    Origin,
    /// A `grpc-timeout` that is none.
    Timeout,
    /// Who calls is not known, or shown by a token that is of no use.
    Unauthenticated,
    /// The policy of the listener refuses the caller.
    Denied,
    /// A caller makes more calls than a quota allows in a time.
    Rate,
    /// A caller has more calls under way than a quota allows.
    Quota,
    /// An authorization service does not answer.
    Authorizer,
    /// No such service.
    Unimplemented,
    /// Nobody is attached who serves it.
    Absent,
    /// The deadline was over before the call could be failed over.
    Late,
    /// Too many requests of a group wait for its backend connections.
    Waiting,
    /// A group has as many calls as it may.
    Calls,
    /// A group may not call there.
    Target,
    /// A process may not attach so.
    Attach,
    /// A group has too many targets open.
    EgressTargets,
    /// A group has too many connections to elsewhere.
    EgressConnections,
    /// A group has too many calls under way by way of the gateway.
    EgressCalls,
    /// A target without calls.
    EgressIdle,
}

impl Refusal {
    pub(crate) const ALL: [Refusal; 36] = [
        Refusal::Connections,
        Refusal::ConnectionsPerAddress,
        Refusal::Proxy,
        Refusal::Forwarded,
        Refusal::Handshake,
        Refusal::Idle,
        Refusal::Age,
        Refusal::Drain,
        Refusal::Resets,
        Refusal::Headers,
        Refusal::AnswerHeaders,
        Refusal::Message,
        Refusal::Memory,
        Refusal::Places,
        Refusal::MemoryShare,
        Refusal::Slow,
        Refusal::Unread,
        Refusal::NotGrpc,
        Refusal::Origin,
        Refusal::Timeout,
        Refusal::Unauthenticated,
        Refusal::Denied,
        Refusal::Rate,
        Refusal::Quota,
        Refusal::Authorizer,
        Refusal::Unimplemented,
        Refusal::Absent,
        Refusal::Late,
        Refusal::Waiting,
        Refusal::Calls,
        Refusal::Target,
        Refusal::Attach,
        Refusal::EgressTargets,
        Refusal::EgressConnections,
        Refusal::EgressCalls,
        Refusal::EgressIdle,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Refusal::Connections => "connections",
            Refusal::ConnectionsPerAddress => "connections_per_address",
            Refusal::Proxy => "proxy",
            Refusal::Forwarded => "forwarded",
            Refusal::Handshake => "handshake",
            Refusal::Idle => "idle",
            Refusal::Age => "age",
            Refusal::Drain => "drain",
            Refusal::Resets => "resets",
            Refusal::Headers => "headers",
            Refusal::AnswerHeaders => "answer_headers",
            Refusal::Message => "message",
            Refusal::Memory => "memory",
            Refusal::Places => "places",
            Refusal::MemoryShare => "memory_share",
            Refusal::Slow => "slow",
            Refusal::Unread => "unread",
            Refusal::NotGrpc => "not_grpc",
            Refusal::Origin => "origin",
            Refusal::Timeout => "timeout",
            Refusal::Unauthenticated => "unauthenticated",
            Refusal::Denied => "denied",
            Refusal::Rate => "rate",
            Refusal::Quota => "quota",
            Refusal::Authorizer => "authorizer",
            Refusal::Unimplemented => "unimplemented",
            Refusal::Absent => "absent",
            Refusal::Late => "late",
            Refusal::Waiting => "waiting",
            Refusal::Calls => "calls",
            Refusal::Target => "target",
            Refusal::Attach => "attach",
            Refusal::EgressTargets => "egress_targets",
            Refusal::EgressConnections => "egress_connections",
            Refusal::EgressCalls => "egress_calls",
            Refusal::EgressIdle => "egress_idle",
        }
    }
}

impl EncodeLabelValue for Refusal {
    fn encode(
        &self,
        encoder: &mut prometheus_client::encoding::LabelValueEncoder<'_>,
    ) -> Result<(), std::fmt::Error> {
        self.name().encode(encoder)
    }
}

/// A call that is refused: with which status, and why.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) why: Refusal,
    pub(crate) status: Status,
}

/// The answer to what is no gRPC call at all: HTTP's own words.
pub(crate) fn not_grpc<B: Default>(method: &http::Method) -> Response<B> {
    let mut response = Response::new(B::default());
    if method == http::Method::POST {
        *response.status_mut() = http::StatusCode::UNSUPPORTED_MEDIA_TYPE;
        response.headers_mut().insert("accept-post", http::HeaderValue::from_static("application/grpc"));
    } else {
        *response.status_mut() = http::StatusCode::METHOD_NOT_ALLOWED;
        response.headers_mut().insert(http::header::ALLOW, http::HeaderValue::from_static("POST"));
    }
    response
}
