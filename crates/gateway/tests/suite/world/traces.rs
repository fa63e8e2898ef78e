//! Spans of calls, as a collector gets them.

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::sync::mpsc;
use tollfree_stubs::probe::{Ask, Fault};
use tonic::{Code, Request, Response, Status};

use super::lab::{Lab, PATIENCE};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";
const UNARY: &str = "tollfree.probe.v1.Probe/Unary";

struct Collector(mpsc::UnboundedSender<Span>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for of_resource in request.into_inner().resource_spans {
            let resource = of_resource.resource.unwrap_or_default();
            assert!(resource.attributes.iter().any(|pair| pair.key == "service.name"), "{resource:?}");
            for span in of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                // The test may be over.
                drop(self.0.send(span));
            }
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// A gateway whose calls are told, and what is told of them.
async fn told() -> (Lab, mpsc::UnboundedReceiver<Span>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, spans) = mpsc::unbounded_channel();
    let server = tonic::transport::Server::builder().add_service(TraceServiceServer::new(Collector(sender)));
    tokio::spawn_for_test(server.serve_with_incoming(tonic::transport::server::TcpIncoming::from(listener)));
    (Lab::start(&format!("traces.endpoint = \"http://{address}\"\n")).await, spans)
}

async fn parent_at_backends(lab: &Lab, traceparent: &str) -> String {
    let mut request = Request::new(Ask::default());
    request.metadata_mut().insert("traceparent", traceparent.parse().unwrap());
    let headers = lab.client().await.unary(request).await.unwrap().into_inner().headers;
    let found: Vec<_> = headers.iter().filter_map(|line| line.strip_prefix("traceparent: ")).collect();
    assert_eq!(found.len(), 1, "{headers:?}");
    found[0].to_owned()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_span_stands_between_the_caller_and_the_backend() {
    let (mut lab, mut spans) = told().await;
    let _attached = lab.attach("default").await;
    let parent = parent_at_backends(&lab, &format!("00-{TRACE}-{CALLER}-01")).await;
    let parts: Vec<_> = parent.split('-').collect();
    assert_eq!((parts[0], parts[1], parts[3]), ("00", TRACE, "01"), "{parent}");
    assert_ne!(parts[2], CALLER);
    // What the caller does not want told isn't, and its choice is passed on.
    let untold = parent_at_backends(&lab, &format!("00-{TRACE}-{CALLER}-00")).await;
    assert!(untold.starts_with(&format!("00-{TRACE}-")) && untold.ends_with("-00"), "{untold}");
    let fault = Fault { code: Code::Internal.into(), ..Fault::default() };
    lab.client().await.unary(Ask { fault: Some(fault), ..Ask::default() }).await.unwrap_err();
    lab.begin_stop();
    lab.stopped().await;
    let mut told = Vec::new();
    while let Ok(Some(span)) = tokio::time::timeout(PATIENCE, spans.recv()).await {
        told.push(span);
        if told.len() == 2 {
            break;
        }
    }
    told.sort_by_key(|span| span.start_time_unix_nano);
    let code = |span: &Span| {
        let pair = span.attributes.iter().find(|pair| pair.key == "rpc.grpc.status_code").unwrap();
        format!("{:?}", pair.value)
    };
    let first = &told[0];
    assert_eq!((hex(&first.trace_id), hex(&first.parent_span_id)), (TRACE.into(), CALLER.into()));
    assert_eq!((hex(&first.span_id), &*first.name), (parts[2].to_owned(), UNARY));
    assert!(code(first).contains("IntValue(0)"), "{first:?}");
    let second = &told[1];
    assert!(code(second).contains("IntValue(13)") && second.status.as_ref().unwrap().code == 2, "{second:?}");
    assert!(spans.try_recv().is_err(), "the call that was not to be told was told");
}

/// A stream is one span, which lasts as long as it, however many messages it has and batches they travel in.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_one_span_whatever_travels_in_it() {
    const COUNT: usize = 300;
    let (mut lab, mut spans) = told().await;
    let _attached = lab.attach("default").await;
    let mut client = lab.client().await;
    let asks = || tokio_stream::iter(vec![Ask { body: vec![7; 10], ..Ask::default() }; COUNT]);
    let ask = Ask { lens: vec![10; COUNT], ..Ask::default() };
    let mut down = client.down(ask).await.unwrap().into_inner();
    let mut count = 0;
    while down.message().await.unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, COUNT);
    client.up(asks()).await.unwrap();
    let mut both = client.both(asks()).await.unwrap().into_inner();
    while both.message().await.unwrap().is_some() {}
    // Left in the middle.
    let ask = Ask { lens: vec![1000; 100 * COUNT], ..Ask::default() };
    let mut left = client.down(ask).await.unwrap().into_inner();
    left.message().await.unwrap();
    drop((left, down, both, client));
    lab.begin_stop();
    lab.stopped().await;
    let mut told = Vec::new();
    while told.len() < 4
        && let Ok(Some(span)) = tokio::time::timeout(PATIENCE, spans.recv()).await
    {
        told.push(span);
    }
    assert!(spans.try_recv().is_err(), "one span a call");
    told.sort_by_key(|span| span.start_time_unix_nano);
    let code = |span: &Span| {
        let pair = span.attributes.iter().find(|pair| pair.key == "rpc.grpc.status_code").unwrap();
        format!("{:?}", pair.value)
    };
    for (span, (method, said)) in told.iter().zip([("Down", 0), ("Up", 0), ("Both", 0), ("Down", 1)]) {
        assert_eq!(span.name, format!("tollfree.probe.v1.Probe/{method}"));
        assert!(code(span).contains(&format!("IntValue({said})")), "{span:?}");
        assert!(span.events.is_empty() && span.dropped_events_count == 0, "{span:?}");
    }
    assert_eq!(told.len(), 4);
}

#[tokio::test]
async fn without_a_collector_in_the_config_traces_pass_as_they_are() {
    let lab = Lab::start("").await;
    let _attached = lab.attach("default").await;
    let sent = format!("00-{TRACE}-{CALLER}-01");
    assert_eq!(parent_at_backends(&lab, &sent).await, sent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_harms_no_call() {
    let away = tollfree_testkit::free_address();
    let mut lab = Lab::start(&format!("traces.endpoint = \"http://{away}\"\n")).await;
    let _attached = lab.attach("default").await;
    parent_at_backends(&lab, &format!("00-{TRACE}-{CALLER}-01")).await;
    lab.begin_stop();
    lab.stopped().await;
}
