//! Cases about what goes beside messages.

use std::collections::HashMap;
use std::time::Duration;

use http::HeaderMap;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Request, Response};

use super::{
    Client, Failure, LARGE_REQUEST_LEN, LARGE_RESPONSE_LEN, Outcome, asking, by_hand, check_zeros, ensure,
    large, send,
};
use crate::layers::Seen;
use crate::metrics::find;
use crate::service::{ECHO_INITIAL, ECHO_TRAILING};
use crate::testing::{SimpleRequest, StreamingOutputCallRequest, TestOrcaReport};
use crate::xds::data::orca::v3::OrcaLoadReport;
use crate::xds::service::orca::v3::OrcaLoadReportRequest;
use crate::xds::service::orca::v3::open_rca_service_client::OpenRcaServiceClient;

const INITIAL: &str = "test_initial_metadata_value";
const TRAILING: [u8; 3] = [0xab; 3];

fn attach(metadata: &mut MetadataMap) {
    metadata.insert(ECHO_INITIAL, MetadataValue::from_static(INITIAL));
    metadata.insert_bin(ECHO_TRAILING, MetadataValue::from_bytes(&TRAILING));
}

/// Each came once, and in its own place only.
fn check(headers: HeaderMap, trailers: HeaderMap) -> Outcome {
    let (headers, trailers) = (MetadataMap::from_headers(headers), MetadataMap::from_headers(trailers));
    let initial: Vec<_> = headers.get_all(ECHO_INITIAL).iter().collect();
    ensure!(initial == [INITIAL], "initial metadata hold {ECHO_INITIAL}: {initial:?}");
    let trailing: Vec<_> = trailers.get_all_bin(ECHO_TRAILING).iter().map(|value| value.to_bytes()).collect();
    let is_whole = matches!(&trailing[..], [Ok(value)] if value[..] == TRAILING);
    ensure!(is_whole, "trailing metadata hold {ECHO_TRAILING}: {trailing:?}");
    ensure!(!headers.contains_key(ECHO_TRAILING), "{ECHO_TRAILING} is among the initial metadata");
    ensure!(!trailers.contains_key(ECHO_INITIAL), "{ECHO_INITIAL} is among the trailing metadata");
    Ok(())
}

fn seen<T>(response: &Response<T>) -> Result<Seen, Failure> {
    let seen = response.extensions().get::<Seen>().cloned();
    seen.ok_or_else(|| Failure::Wrong("the client's layer was not asked".to_owned()))
}

pub(super) async fn custom_metadata(client: Client) -> Outcome {
    let mut request = Request::new(large());
    attach(request.metadata_mut());
    let response = client.stub().unary_call(request).await?;
    let beside = seen(&response)?;
    check_zeros(response.into_inner().payload.as_ref(), LARGE_RESPONSE_LEN)?;
    let trailers = beside.trailers.lock().clone();
    check(beside.headers, trailers)?;

    let asked = asking(LARGE_REQUEST_LEN, &[LARGE_RESPONSE_LEN as i32]);
    let mut request = Request::new(tokio_stream::iter([asked]));
    attach(request.metadata_mut());
    let response = client.stub().full_duplex_call(request).await?;
    let beside = seen(&response)?;
    let mut responses = response.into_inner();
    let first = responses.message().await?;
    check_zeros(first.and_then(|response| response.payload).as_ref(), LARGE_RESPONSE_LEN)?;
    ensure!(responses.message().await?.is_none(), "more than one response came");
    let trailers = beside.trailers.lock().clone();
    check(beside.headers, trailers)
}

/// Loads that differ in every number.
fn loads() -> [TestOrcaReport; 2] {
    let named = |name: &str, value| HashMap::from([(name.to_owned(), value)]);
    [
        TestOrcaReport {
            cpu_utilization: 0.8210,
            memory_utilization: 0.5847,
            request_cost: HashMap::new(),
            utilization: named("util", 0.30499),
        },
        TestOrcaReport {
            cpu_utilization: 0.29309,
            memory_utilization: 0.2,
            request_cost: HashMap::new(),
            utilization: named("util", 0.2039),
        },
    ]
}

pub(super) async fn orca_per_rpc(client: Client) -> Outcome {
    let [mut load, _] = loads();
    load.request_cost.insert("cost".to_owned(), 3456.32);
    let request = SimpleRequest { orca_per_query_report: Some(load.clone()), ..SimpleRequest::default() };
    let response = client.stub().unary_call(request).await?;
    let trailers = MetadataMap::from_headers(seen(&response)?.trailers.lock().clone());
    let report = find(&trailers);
    ensure!(report == Some(load.into()), "the trailers report {report:?}");
    Ok(())
}

pub(super) async fn orca_oob(client: Client) -> Outcome {
    let interval = prost_types::Duration::try_from(Duration::from_millis(100)).ok();
    let request = OrcaLoadReportRequest { report_interval: interval, ..OrcaLoadReportRequest::default() };
    let mut reports =
        OpenRcaServiceClient::new(client.channel.clone()).stream_core_metrics(request).await?.into_inner();
    let (sender, request) = by_hand();
    let setting = |load| StreamingOutputCallRequest { orca_oob_report: Some(load), ..asking(0, &[1]) };
    let [first, second] = loads();
    send(&sender, setting(first.clone())).await?;
    let mut responses = client.stub().full_duplex_call(request).await?.into_inner();
    for load in [first, second.clone()] {
        if load == second {
            send(&sender, setting(second.clone())).await?;
        }
        check_zeros(responses.message().await?.and_then(|response| response.payload).as_ref(), 1)?;
        // Reports from before may still be on their way; the case's time is bounded.
        let wanted = OrcaLoadReport::from(load);
        loop {
            match reports.message().await? {
                Some(report) if report == wanted => break,
                Some(_) => {}
                None => return Err(Failure::Wrong("the stream of reports ended".to_owned())),
            }
        }
    }
    drop(sender);
    ensure!(responses.message().await?.is_none(), "more responses came than were asked for");
    Ok(())
}
