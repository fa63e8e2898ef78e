//! Asking a gateway for a direct connection, meeting the process that it names, and noticing when that is over.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::header::{CONTENT_TYPE, TE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri};
use http_body::Body as _;
use tollfree_driver_tokio::{Address, Attachment, Config, PeerPolicy};
use tonic::Status;
use tonic::body::Body;

use crate::endpoint::balance::Picked;
use crate::endpoint::direct_connection::{ASK, DirectConnection, PROCESS, is_process, read_process};
use crate::endpoint::upgrade::OFFER;
use crate::endpoint::{Connection, Subchannel, chance};
use crate::http::call::attempt;
use crate::http::response_body::ResponseBody;
use crate::metadata::GRPC;

/// Asking and the handshake must be over within this time.
const PATIENCE: Duration = Duration::from_secs(10);
/// Before the gateway is asked again; doubled each time up to the maximum.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A direct connection that lasted at least this long has not failed.
const PROVEN: Duration = Duration::from_secs(1);

/// A direct connection as the gateway has it: it stands as long as the body.
struct Met {
    direct: Arc<Attachment>,
    body: ResponseBody,
}

/// Asks in a session with a gateway, as [`Asking`](crate::endpoint::direct_connection::Asking) says.
pub(crate) fn keep(
    endpoint: Weak<Subchannel>,
    gateway: Arc<Attachment>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let mut pause = PAUSE_FIRST;
        while gateway.is_open() {
            let Some(config) = config_of(&endpoint) else { return };
            let asked = tokio::time::timeout(PATIENCE, meet(&gateway, &config)).await;
            let late = |_| Err(format!("meeting the process has taken longer than {PATIENCE:?}"));
            let met = asked.unwrap_or_else(late);
            if !settle(&endpoint, &met) {
                return;
            }
            if let Ok(met) = met {
                let began = tokio::time::Instant::now();
                over(&gateway, &met.direct, met.body).await;
                let Some(endpoint) = endpoint.upgrade() else { return };
                endpoint.retire(&met.direct);
                tracing::info!(address = %endpoint.name, "calls go via the gateway again: the direct connection is over");
                if began.elapsed() >= PROVEN {
                    pause = PAUSE_FIRST;
                }
            }
            tokio::time::sleep(pause.mul_f64(0.8 + 0.4 * chance())).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    })
}

fn direct_connection(endpoint: &Subchannel) -> Option<&DirectConnection> {
    endpoint.direct_connection()
}

fn config_of(endpoint: &Weak<Subchannel>) -> Option<Config> {
    let endpoint = endpoint.upgrade()?;
    let config = &direct_connection(&endpoint)?.config;
    Some(Config { pool: endpoint.sharing.pool_id(), ..config.clone() })
}

/// Has calls go as asking came to. `false`: nobody needs it any more.
fn settle(endpoint: &Weak<Subchannel>, met: &Result<Met, String>) -> bool {
    let Some(endpoint) = endpoint.upgrade() else { return false };
    let Some(direct_connection) = direct_connection(&endpoint) else { return false };
    let outcome = met.as_ref().map(|met| &met.direct).map_err(String::as_str);
    let is_news = direct_connection.settle(outcome);
    match met {
        Ok(met) => {
            endpoint.shorten(&met.direct);
            let peer = met.direct.peer();
            tracing::info!(address = %endpoint.name, ?peer, "calls go by a direct connection that the gateway has named");
        }
        Err(why) if is_news => {
            tracing::info!(address = %endpoint.name, why, "calls go via the gateway, without a direct connection");
        }
        Err(_) => {}
    }
    true
}

/// Resolves when the process, or the gateway, says that it is over, or has gone.
async fn over(gateway: &Attachment, direct: &Attachment, body: ResponseBody) {
    let mut body = pin!(body);
    let said = poll_fn(|cx| {
        // It brings no messages: whatever comes is its end.
        body.as_mut().poll_frame(cx).map(drop)
    });
    tokio::select! {
        () = said => {}
        () = poll_fn(|cx| direct.poll_over(cx)) => {}
        () = poll_fn(|cx| gateway.poll_over(cx)) => {}
    }
}

/// One attempt. `Err`: why there is none.
async fn meet(gateway: &Arc<Attachment>, config: &Config) -> Result<Met, String> {
    let endpoint = Arc::new(Subchannel::attached("the gateway".into(), gateway.clone()));
    let picked = Picked { endpoint, connection: Connection::Session(gateway.clone()) };
    let asked = attempt(&picked, None, request(ASK, None)).await;
    let (parts, body) = asked.map_err(|failed| failed.status.message().to_owned())?.into_parts();
    if let Some(status) = Status::from_header_map(&parts.headers) {
        return Err(status.message().to_owned());
    }
    let (address, process) = offer(&parts.headers).ok_or("the gateway names no process that can be met")?;
    // The gateway has named its user; without it, calls would have gone to the same process.
    let config = Config { peers: PeerPolicy::Users(vec![process.1]), ..config.clone() };
    let direct = Attachment::connect(&address, &config).await.map_err(|error| error.to_string())?;
    if !is_process(direct.peer(), process) {
        return Err(format!("{address} is not that of the process that the gateway has named"));
    }
    Ok(Met { direct: Arc::new(direct), body })
}

/// Where a process is met, and which.
fn offer(headers: &HeaderMap) -> Option<(Address, (i32, u32))> {
    let address = headers.get(OFFER)?.to_str().ok()?.parse().ok()?;
    let process = read_process(headers.get(PROCESS)?.to_str().ok()?)?;
    matches!(address, Address::Abstract(_)).then_some((address, process))
}

/// A request without a message.
pub(crate) fn request(
    path: &'static str,
    headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
) -> Request<Body> {
    let mut request = Request::new(Body::empty());
    *request.method_mut() = http::Method::POST;
    *request.version_mut() = http::Version::HTTP_2;
    *request.uri_mut() = Uri::from_static(path);
    request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
    request.headers_mut().insert(CONTENT_TYPE, GRPC);
    request.headers_mut().extend(headers);
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_no_process_and_no_socket_of_its_own_is_no_offer() {
        let of = |address: &'static str, process: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(OFFER, HeaderValue::from_static(address));
            headers.insert(PROCESS, HeaderValue::from_static(process));
            offer(&headers)
        };
        assert!(of("shm-abstract:tollfree-direct-1", "pid=1,uid=2").is_some());
        for (address, process) in [
            ("shm:///run/another.sock", "pid=1,uid=2"),
            ("http://127.0.0.1:1", "pid=1,uid=2"),
            ("", "pid=1,uid=2"),
            ("shm-abstract:x", "pid=1"),
            ("shm-abstract:x", ""),
        ] {
            assert!(of(address, process).is_none(), "{address:?} {process:?}");
        }
        assert!(offer(&HeaderMap::new()).is_none());
    }
}
