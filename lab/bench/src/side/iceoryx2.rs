//! iceoryx2's request-response: a peer that passes bytes through shared memory, both ends polling without a pause.
//!
//! It has no methods, statuses, deadlines, cancellation or metadata, and nothing is encoded: what stands beside it does
//! more for each call. A body is copied into a loaned request, from there into a loaned response, and out of it.
//!
//! Its names are in a directory of the run, and in `/dev/shm` under a prefix of their own. Who measured sweeps up: a process
//! that ends by its leash leaves them behind.

use std::collections::VecDeque;
use std::fmt::Display;
use std::path::Path as FilePath;
use std::time::Instant;

use iceoryx2::pending_response::PendingResponse;
use iceoryx2::port::client::Client;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::request_response::PortFactory as Factory;

use super::floor::PATIENT_POLLS;
use crate::latency::Latencies;
use crate::load::body_of;
use crate::order::{Load, Measured, Serve, Serving};
use crate::plan::{Case, Placement};

/// The name of the one service.
const SERVICE: &str = "tollfree/bench/echo";
/// Where the system keeps shared memory that has a name.
const SHARED: &str = "/dev/shm";

type Requests = Factory<ipc::Service, [u8], (), [u8], ()>;
type Sent = PendingResponse<ipc::Service, [u8], (), [u8], ()>;

fn trouble<E: Display>(what: &str) -> impl FnOnce(E) -> String {
    move |error| format!("{what}: {error}")
}

/// Settings with which two processes meet whose directory is the same, and nobody else.
fn config(dir: &FilePath) -> Result<Config, String> {
    let mut config = Config::default();
    let path = Path::new(dir.as_os_str().as_encoded_bytes()).map_err(trouble("no path for iceoryx2"))?;
    config.global.set_root_path(&path);
    config.global.prefix = FileName::new(prefix(dir).as_bytes()).map_err(trouble("no prefix"))?;
    Ok(config)
}

/// What all names begin with that are not in the directory: the directory's own name.
fn prefix(dir: &FilePath) -> String {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    name.chars().filter(char::is_ascii_alphanumeric).chain(['_']).collect()
}

pub(crate) fn node(dir: &FilePath) -> Result<Node<ipc::Service>, String> {
    set_log_level(LogLevel::Error);
    // What ends this process is its starter, not a signal that a library takes for itself.
    NodeBuilder::new()
        .config(&config(dir)?)
        .signal_handling_mode(SignalHandlingMode::Disabled)
        .create::<ipc::Service>()
        .map_err(trouble("cannot make a node"))
}

fn requests(node: &Node<ipc::Service>, case: Case) -> Result<Requests, String> {
    let name = ServiceName::new(SERVICE).map_err(trouble("no name for the service"))?;
    node.service_builder(&name)
        .request_response::<[u8], [u8]>()
        .max_active_requests_per_client(case.inflight)
        .max_clients(1)
        .max_servers(1)
        .open_or_create()
        .map_err(trouble("cannot open the service"))
}

/// A loan of nothing isn't possible.
fn loan_len(case: Case) -> usize {
    case.size.max(1)
}

/// Waits between two polls: not at all, unless the other process may need this core.
struct Patience {
    polls: u32,
    polls_left: u32,
}

impl Patience {
    fn new(case: Case) -> Self {
        let polls = if case.placement == Placement::SameCore { 0 } else { PATIENT_POLLS };
        Self { polls, polls_left: polls }
    }

    fn wait(&mut self) {
        match self.polls_left.checked_sub(1) {
            Some(polls_left) => {
                self.polls_left = polls_left;
                std::hint::spin_loop();
            }
            None => std::thread::yield_now(),
        }
    }

    fn begin_anew(&mut self) {
        self.polls_left = self.polls;
    }
}

/// Echoes until the process ends.
pub(super) fn serve(order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), String> {
    serve_while(|| true, order, ready)
}

/// Echoes for as long as it is told to go on.
fn serve_while(goes_on: impl Fn() -> bool, order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), String> {
    let node = node(&order.dir)?;
    let requests = requests(&node, order.case)?;
    let server = requests
        .server_builder()
        .initial_max_slice_len(loan_len(order.case))
        .create()
        .map_err(trouble("cannot make a server"))?;
    ready(Serving { address: order.dir.display().to_string() });
    let mut patience = Patience::new(order.case);
    while goes_on() {
        let Some(request) = server.receive().map_err(trouble("cannot receive a request"))? else {
            patience.wait();
            continue;
        };
        patience.begin_anew();
        let body = request.payload();
        let response = request.loan_slice_uninit(body.len()).map_err(trouble("no memory for a response"))?;
        response.write_from_slice(body).send().map_err(trouble("cannot send a response"))?;
    }
    Ok(())
}

fn send(client: &Client<ipc::Service, [u8], (), [u8], ()>, body: &[u8]) -> Result<Sent, String> {
    let request = client.loan_slice_uninit(body.len()).map_err(trouble("no memory for a request"))?;
    request.write_from_slice(body).send().map_err(trouble("cannot send a request"))
}

fn receive(sent: &Sent, body: &mut [u8], patience: &mut Patience) -> Result<(), String> {
    patience.begin_anew();
    loop {
        if let Some(response) = sent.receive().map_err(trouble("cannot receive a response"))? {
            let reply = response.payload();
            if reply.len() != body.len() {
                return Err(format!("sent {} bytes, {} came back", body.len(), reply.len()));
            }
            body.copy_from_slice(reply);
            return Ok(());
        }
        patience.wait();
    }
}

/// Keeps as many requests under way as the case has calls in flight, and times each from its sending to its response.
pub(super) fn measure(load: &Load) -> Result<Measured, String> {
    let node = node(FilePath::new(&load.address))?;
    let requests = requests(&node, load.case)?;
    let client = requests
        .client_builder()
        .initial_max_slice_len(loan_len(load.case))
        .create()
        .map_err(trouble("cannot make a client"))?;
    let mut patience = Patience::new(load.case);
    let sent = body_of(loan_len(load.case));
    let mut body = vec![0; sent.len()];
    receive(&send(&client, &sent)?, &mut body, &mut patience)?;
    if body != sent {
        return Err("the reply is not what was sent".to_owned());
    }

    let from = Instant::now() + load.warm_up;
    let until = from + load.measure;
    let mut latencies = Latencies::default();
    let mut under_way = VecDeque::with_capacity(load.case.inflight);
    for _ in 0..load.case.inflight {
        under_way.push_back((Instant::now(), send(&client, &body)?));
    }
    let mut ended = until;
    while let Some((began, sent)) = under_way.pop_front() {
        receive(&sent, &mut body, &mut patience)?;
        // Before the next request: no more of them can be under way.
        drop(sent);
        let now = Instant::now();
        if now >= from && (now < until || latencies.count() == 0) {
            latencies.record(now - began);
            // None came back inside the window, which is stretched to the first.
            ended = ended.max(now);
        }
        if now >= until {
            break;
        }
        under_way.push_back((now, send(&client, &body)?));
    }
    Ok(Measured {
        latencies,
        used: None,
        elapsed_ns: (ended - from).as_nanos().try_into().unwrap_or(u64::MAX),
    })
}

/// Removes what processes left behind that met in this directory and are gone: what has their prefix.
pub(crate) fn sweep(dir: &FilePath) -> Result<(), String> {
    let prefix = prefix(dir);
    for entry in
        std::fs::read_dir(SHARED).map_err(trouble("cannot look for what is left in /dev/shm"))?.flatten()
    {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            std::fs::remove_file(entry.path()).map_err(trouble("something is left in /dev/shm"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::plan::{RuntimeKind, Side};
    use crate::workdir::Workdir;

    #[test]
    fn bodies_come_back_and_nothing_stays() {
        let dir = Workdir::create().unwrap();
        let case = Case::probe(Side::Iceoryx2, 100, 3, RuntimeKind::Current);
        let serve = Serve { case, dir: dir.path().to_owned() };
        let (ready, serving) = std::sync::mpsc::channel();
        let enough = Arc::new(AtomicBool::new(false));
        let goes_on = enough.clone();
        let server = std::thread::spawn(move || {
            let goes_on = || !goes_on.load(Ordering::Relaxed);
            serve_while(goes_on, &serve, |serving| ready.send(serving.address).unwrap())
        });
        let (warm_up, measured) = (Duration::from_millis(20), Duration::from_millis(100));
        let load = Load::new(case, serving.recv().unwrap(), warm_up, measured);
        let measured = measure(&load).unwrap();
        assert!(measured.latencies.count() > 0);
        enough.store(true, Ordering::Relaxed);
        server.join().unwrap().unwrap();
        sweep(dir.path()).unwrap();
        let left = std::fs::read_dir(SHARED).unwrap().map(|entry| entry.unwrap().file_name());
        let ours = prefix(dir.path());
        assert!(left.into_iter().all(|name| !name.to_string_lossy().starts_with(&ours)));
    }
}
