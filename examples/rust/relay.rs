//! Passes calls on to another server, with one OpenTelemetry trace through all: `relay <address> [<next address>]`. It serves until its input ends.
//!
//! Spans go to `OTEL_EXPORTER_OTLP_ENDPOINT`. `make demo-go` runs it between programs in other languages.

use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{SpanKind, Status as Outcome, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{HeaderExtractor, HeaderInjector};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tollfree_stubs::relay::relay_client::RelayClient;
use tollfree_stubs::relay::relay_server::{Relay, RelayServer};
use tollfree_stubs::relay::{PassReply, PassRequest};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

const METHOD: &str = "tollfree.relay.v1.Relay/Pass";

struct Passing {
    tracer: SdkTracer,
    next: Option<RelayClient<tollfree::Channel>>,
}

impl Passing {
    /// Begins a span of one end of a call.
    fn span(&self, kind: SpanKind, parent: &Context) -> Context {
        let attributes = [
            KeyValue::new("rpc.system", "grpc"),
            KeyValue::new("rpc.service", "tollfree.relay.v1.Relay"),
            KeyValue::new("rpc.method", "Pass"),
        ];
        let span = self.tracer.span_builder(METHOD).with_kind(kind).with_attributes(attributes);
        parent.with_span(span.start_with_context(&self.tracer, parent))
    }

    /// Calls the next server, if there is one.
    async fn call(&self, server: &Context) -> Result<PassReply, Status> {
        let Some(mut next) = self.next.clone() else { return Ok(PassReply::default()) };
        let client = self.span(SpanKind::Client, server);
        let mut request = Request::new(PassRequest {});
        let mut headers = http::HeaderMap::new();
        TraceContextPropagator::new().inject_context(&client, &mut HeaderInjector(&mut headers));
        *request.metadata_mut() = MetadataMap::from_headers(headers);
        let result = next.pass(request).await.map(Response::into_inner);
        end(&client, &result);
        result
    }
}

/// Ends a span with the outcome of its call.
fn end<T>(span: &Context, result: &Result<T, Status>) {
    let code = result.as_ref().map_or_else(|status| status.code(), |_| tonic::Code::Ok);
    span.span().set_attribute(KeyValue::new("rpc.grpc.status_code", i64::from(code as i32)));
    if let Err(status) = result {
        span.span().set_status(Outcome::error(status.message().to_owned()));
    }
    span.span().end();
}

#[tonic::async_trait]
impl Relay for Passing {
    async fn pass(&self, request: Request<PassRequest>) -> Result<Response<PassReply>, Status> {
        let headers = request.into_parts().0.into_headers();
        let parent =
            TraceContextPropagator::new().extract_with_context(&Context::new(), &HeaderExtractor(&headers));
        let server = self.span(SpanKind::Server, &parent);
        let result = self.call(&server).await.map(|mut reply| {
            let name = std::env::var("OTEL_SERVICE_NAME").unwrap_or_else(|_| "relay".to_owned());
            reply.passed.insert(0, format!("{name}, process {}", std::process::id()));
            Response::new(reply)
        });
        end(&server, &result);
        result
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut addresses = std::env::args().skip(1);
    let address = addresses.next().ok_or("an address is needed, and that of the next server may follow")?;
    let next = addresses.next().map(|next| tollfree::Channel::builder(next).connect_lazy()).transpose()?;
    let exporter = SpanExporter::builder().with_tonic().build()?;
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).build();
    let service = Passing { tracer: provider.tracer("relay"), next: next.map(RelayClient::new) };

    // Polled once the socket is bound.
    let input_end = async {
        println!("ready");
        // Nothing is expected there but its end, which an error is, too.
        let _ = tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await;
    };
    let server = tollfree::Server::builder().add_service(RelayServer::new(service));
    server.serve_with_shutdown(address, input_end).await?;
    provider.shutdown()?;
    Ok(())
}
