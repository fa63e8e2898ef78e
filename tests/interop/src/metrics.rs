//! Load reports of the test server, in the form that xDS gave them (ORCA): with a call's trailers, and as a stream.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use parking_lot::Mutex;
use prost::Message;
use tokio_stream::Stream;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Request, Response, Status};

use crate::testing::TestOrcaReport;
use crate::xds::data::orca::v3::OrcaLoadReport;
use crate::xds::service::orca::v3::OrcaLoadReportRequest;
use crate::xds::service::orca::v3::open_rca_service_server::OpenRcaService;

/// The trailer that holds a call's report.
const TRAILER: &str = "endpoint-load-metrics-bin";

/// A client that asks for more than this gets no more: ten reports a second.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// A client that doesn't say gets a report this often, as gRPC's servers do by default.
const INTERVAL_DEFAULT: Duration = Duration::from_secs(30);

impl From<TestOrcaReport> for OrcaLoadReport {
    fn from(report: TestOrcaReport) -> OrcaLoadReport {
        OrcaLoadReport {
            cpu_utilization: report.cpu_utilization,
            mem_utilization: report.memory_utilization,
            request_cost: report.request_cost,
            utilization: report.utilization,
        }
    }
}

/// Puts a call's report among its trailers.
pub(crate) fn attach(report: &OrcaLoadReport, trailers: &mut MetadataMap) {
    trailers.insert_bin(TRAILER, MetadataValue::from_bytes(&report.encode_to_vec()));
}

/// Finds a call's report among its trailers.
pub(crate) fn find(trailers: &MetadataMap) -> Option<OrcaLoadReport> {
    let bytes = trailers.get_bin(TRAILER)?.to_bytes().ok()?;
    OrcaLoadReport::decode(bytes).ok()
}

/// What the server reports of itself; clones are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics(Arc<Mutex<OrcaLoadReport>>);

impl Metrics {
    pub(crate) fn set(&self, report: OrcaLoadReport) {
        *self.0.lock() = report;
    }
}

#[tonic::async_trait]
impl OpenRcaService for Metrics {
    type StreamCoreMetricsStream = Pin<Box<dyn Stream<Item = Result<OrcaLoadReport, Status>> + Send>>;

    async fn stream_core_metrics(
        &self,
        request: Request<OrcaLoadReportRequest>,
    ) -> Result<Response<Self::StreamCoreMetricsStream>, Status> {
        let wanted = match request.into_inner().report_interval {
            Some(interval) => Duration::try_from(interval)
                .map_err(|_| Status::invalid_argument("the report interval is negative"))?,
            None => INTERVAL_DEFAULT,
        };
        let ticks = tokio::time::interval(wanted.max(INTERVAL_MIN));
        let reports = stream::unfold((ticks, self.clone()), |(mut ticks, metrics)| async move {
            // The first tick is at once.
            ticks.tick().await;
            let report = metrics.0.lock().clone();
            Some((Ok(report), (ticks, metrics)))
        });
        Ok(Response::new(Box::pin(reports)))
    }
}
