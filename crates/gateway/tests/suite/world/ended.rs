//! What ended calls leave at a gateway whose backend connection stands still: no share of memory, no place, no task.

use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc as orders;
use tokio::task::JoinSet;
use tollfree_direct_stubs::objects::probe::probe_client::ProbeClient as ObjectClient;
use tollfree_direct_stubs::objects::probe::probe_server::ProbeServer as ObjectServer;
use tollfree_stubs::probe::Ask;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tollfree_stubs::probe::probe_server::ProbeServer;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::{Code, Request, Status};

use super::compression::{MEMORY, only_tables};
use super::egress::via;
use super::lab::{Lab, PATIENCE, backend_connections_of};
use super::nested::{Back, ask};
use super::probe::Probe;

const CALL_COUNT: usize = 80;
const LONG: usize = 1 << 20;
const LIMIT: Duration = Duration::from_millis(400);

/// A backend connection of the default group in a thread of its own, which stands still when it is told to.
struct BackendConnection {
    /// Each has it stand still until the receiver's other end is dropped.
    halt: orders::UnboundedSender<mpsc::Receiver<()>>,
    thread: Option<JoinHandle<()>>,
}

impl BackendConnection {
    async fn attach(lab: &Lab, takes_objects: bool) -> BackendConnection {
        let (halt, mut halts) = orders::unbounded_channel::<mpsc::Receiver<()>>();
        let backends = lab.backends();
        let thread = std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let server = tollfree::Server::builder();
                let server = match takes_objects {
                    true => server.add_service(ObjectServer::new(Back::default())),
                    false => server.add_service(ProbeServer::new(Probe::default())),
                };
                let told = async move {
                    while let Some(until) = halts.recv().await {
                        // Nothing else runs in this runtime meanwhile.
                        _ = until.recv();
                    }
                };
                server.attach(backends).group("default").backend_connections(1).until(told).await.unwrap();
            });
        });
        lab.until_figure(&backend_connections_of("default"), |count| count == 1.0).await;
        BackendConnection { halt, thread: Some(thread) }
    }

    /// Stands still until what this gives is dropped.
    fn halts(&self) -> mpsc::Sender<()> {
        let (goes_on, until) = mpsc::channel();
        self.halt.send(until).unwrap();
        goes_on
    }

    async fn stop(mut self) {
        let BackendConnection { halt, thread } = &mut self;
        *halt = orders::unbounded_channel().0;
        let thread = thread.take().unwrap();
        tokio::task::spawn_blocking(|| thread.join().unwrap()).await.unwrap();
    }
}

fn alive() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// Waits until a group holds nothing, and as many tasks run as before.
async fn nothing_is_left(lab: &Lab, before: usize) {
    lab.until_figure(MEMORY, only_tables).await;
    for figure in ["outstanding", "egress_calls"] {
        lab.until_figure(&format!("tollfree_gateway_{figure}{{group=\"default\"}}"), |held| held == 0.0)
            .await;
    }
    let begun = tokio::time::Instant::now();
    while alive() > before {
        assert!(begun.elapsed() < PATIENCE, "{} tasks, and {before} before", alive());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn within<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(LIMIT);
    request
}

/// A call of each kind in turn, long ones and short ones: they fill the backend connection's ring to the last word.
async fn call<C>(mut client: ProbeClient<C>, number: usize) -> Status
where
    C: GrpcService<Body> + Send + 'static,
    C::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    C::ResponseBody: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    <C::ResponseBody as http_body::Body>::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
{
    let soon = Duration::from_millis(50);
    let messages = |lens: Vec<usize>| {
        let first = stream::once(tokio::time::sleep(soon)).filter_map(async |()| None);
        first.chain(stream::iter(lens).map(|len| Ask { body: vec![5; len], ..Ask::default() }))
    };
    let some = Ask { body: vec![7; if number.is_multiple_of(8) { LONG } else { 1 }], ..Ask::default() };
    if number.is_multiple_of(2) {
        tokio::time::sleep(2 * soon).await;
    }
    let ended = match number % 4 {
        0 => client.unary(within(some)).await.map(drop),
        1 => client.up(within(messages(vec![LONG; 2]))).await.map(drop),
        2 => client.down(within(some)).await.map(drop),
        _ => client.both(within(messages(vec![1; 1000]))).await.map(drop),
    };
    ended.expect_err("the backend connection stands still")
}

/// Makes calls by `client` while the backend connection stands still; each ends by its deadline, or is dropped.
async fn calls_end<C>(lab: &Lab, backend_connection: &BackendConnection, client: ProbeClient<C>)
where
    C: GrpcService<Body> + Clone + Send + 'static,
    C::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    C::ResponseBody: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    <C::ResponseBody as http_body::Body>::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
    C::Future: Send,
{
    client.clone().unary(Ask::default()).await.unwrap();
    let before = alive();
    for is_dropped in [false, true, false] {
        let goes_on = backend_connection.halts();
        let mut calls = JoinSet::new();
        for number in 0..CALL_COUNT {
            let client = client.clone();
            calls.spawn(async move {
                if is_dropped {
                    drop(tokio::time::timeout(LIMIT / 2, call(client, number)).await);
                } else {
                    let status = call(client, number).await;
                    // tonic's own channel says CANCELLED.
                    assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status}");
                }
            });
        }
        while let Some(ended) = calls.join_next().await {
            ended.unwrap();
        }
        // The backend connection still stands still.
        nothing_is_left(lab, before).await;
        drop(goes_on);
        let answer = client.clone().unary(Ask { body: vec![1; LONG], ..Ask::default() }).await;
        assert_eq!(answer.unwrap().into_inner().body.len(), LONG);
        nothing_is_left(lab, before).await;
    }
}

#[tokio::test]
async fn calls_from_outside_that_end_while_their_backend_connection_stands_still_leave_nothing() {
    let lab = Lab::start("").await;
    let backend_connection = BackendConnection::attach(&lab, false).await;
    calls_end(&lab, &backend_connection, lab.client().await).await;
    backend_connection.stop().await;
}

#[tokio::test]
async fn calls_of_processes_that_end_while_the_backend_connection_they_go_to_stands_still_leave_nothing() {
    let lab = Lab::start("").await;
    let backend_connection = BackendConnection::attach(&lab, false).await;
    calls_end(&lab, &backend_connection, via(&lab, "group:default").await).await;
    backend_connection.stop().await;
}

#[tokio::test]
async fn objects_of_calls_that_end_while_their_backend_connection_stands_still_leave_nothing() {
    let lab = Lab::start("").await;
    let backend_connection = BackendConnection::attach(&lab, true).await;
    let channel = tollfree::Channel::via(lab.backends(), "group:default").await.unwrap();
    let mut client = ObjectClient::new(channel);
    for _ in 0..3 {
        client.unary(ask(1)).await.unwrap();
    }
    let before = alive();
    for is_dropped in [false, true] {
        let goes_on = backend_connection.halts();
        let mut calls = JoinSet::new();
        for number in 0..CALL_COUNT {
            let mut client = client.clone();
            calls.spawn(async move {
                let object = ask(if number.is_multiple_of(4) { LONG } else { 500 });
                if is_dropped {
                    drop(tokio::time::timeout(LIMIT / 2, client.unary(object)).await);
                } else {
                    let status =
                        client.unary(within(object)).await.expect_err("the backend connection stands still");
                    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
                }
            });
        }
        while let Some(ended) = calls.join_next().await {
            ended.unwrap();
        }
        nothing_is_left(&lab, before).await;
        drop(goes_on);
        client.unary(ask(LONG)).await.unwrap();
        nothing_is_left(&lab, before).await;
    }
    backend_connection.stop().await;
}
