//! A span for each call from the world, told to a collector by OTLP.
//!
//! Without a collector in the config, `traceparent` passes as it is. With one, the gateway's span stands between the caller's and that of
//! the backend, as W3C's Trace Context has it.

use std::time::Duration;

use http::HeaderMap;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{Span as _, SpanKind, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{HeaderExtractor, HeaderInjector};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider, Span};
use tonic::Code;

use crate::config::TracesConfig;

/// How long the collector may take for what is left at the end.
const PATIENCE: Duration = Duration::from_secs(5);
/// What a span is called whose method nobody serves: the world may make up any number of names.
const OTHER: &str = "other";

/// Makes spans.
pub(crate) struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    propagator: TraceContextPropagator,
}

impl Traces {
    /// Must be called in a tokio runtime. The collector need not be there; what it does not take is dropped.
    pub(crate) fn new(endpoint: &str, config: &TracesConfig) -> Result<Traces, ExporterBuildError> {
        let exporter =
            SpanExporter::builder().with_tonic().with_endpoint(endpoint).with_timeout(PATIENCE).build()?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(config.ratio))))
            .with_resource(Resource::builder().with_service_name(config.service.clone()).build())
            .build();
        let tracer = provider.tracer("tollfree-gateway");
        Ok(Traces { provider, tracer, propagator: TraceContextPropagator::new() })
    }

    /// Begins a call's span, whose parent is whom the headers name, and names it in the headers.
    pub(crate) fn begin(&self, headers: &mut HeaderMap) -> CallSpan {
        let parent = self.propagator.extract_with_context(&Context::new(), &HeaderExtractor(headers));
        let span = self
            .tracer
            .span_builder(OTHER)
            .with_kind(SpanKind::Server)
            .start_with_context(&self.tracer, &parent);
        let itself = Context::new().with_remote_span_context(span.span_context().clone());
        self.propagator.inject_context(&itself, &mut HeaderInjector(headers));
        CallSpan(span)
    }

    /// Tells the collector what is left.
    pub(crate) fn end(&self) {
        if let Err(error) = self.provider.shutdown_with_timeout(PATIENCE) {
            tracing::warn!(%error, "the last spans could not be told to the collector");
        }
    }
}

/// A call's span; it ends when it is dropped.
pub(crate) struct CallSpan(Span);

impl CallSpan {
    /// What the call came to, as OpenTelemetry's conventions for gRPC say it.
    pub(crate) fn ended(&mut self, path: &str, is_served: bool, code: Code) {
        self.0.set_attribute(KeyValue::new("rpc.system", "grpc"));
        if is_served {
            let (service, method) = path.split_once('/').unwrap_or((path, ""));
            self.0.update_name(path.to_owned());
            self.0.set_attribute(KeyValue::new("rpc.service", service.to_owned()));
            self.0.set_attribute(KeyValue::new("rpc.method", method.to_owned()));
        }
        self.0.set_attribute(KeyValue::new("rpc.grpc.status_code", i64::from(code as i32)));
        if is_fault(code) {
            self.0.set_status(opentelemetry::trace::Status::error(code.description()));
        }
    }
}

/// Whether a status is the server's fault, and not the client's.
fn is_fault(code: Code) -> bool {
    let faults = [
        Code::Unknown,
        Code::DeadlineExceeded,
        Code::Unimplemented,
        Code::Internal,
        Code::Unavailable,
        Code::DataLoss,
    ];
    faults.contains(&code)
}
