//! Answers that a client of the world does not read, and what they hold of the gateway: nothing after their deadline.

use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::SendRequest;
use prost::Message as _;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tollfree_direct_stubs::objects::probe::probe_server::ProbeServer as ObjectServer;
use tollfree_stubs::probe::Ask;

use super::compression::only_tables;
use super::lab::{Attached, Lab, PATIENCE, backend_connections_of};
use super::nested::Back;

const LONG: u32 = 1 << 20;
const CALL_COUNT: usize = 8;
/// As it travels.
const DEADLINE: &str = "1500m";
const MEMORY: &str = "tollfree_gateway_memory_bytes{group=\"default\"}";
const OUTSTANDING: &str = "tollfree_gateway_outstanding{group=\"default\"}";
const CONNECTED: &str = "tollfree_gateway_connections";

/// A client that gives each call so much of a window, and no more before it reads.
async fn client(lab: &Lab, window: u32) -> SendRequest<Bytes> {
    let socket = TcpStream::connect(lab.socket_address()).await.unwrap();
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(window).initial_connection_window_size(16 << 20);
    let (client, connection) = builder.handshake(socket).await.unwrap();
    tokio::spawn(connection);
    client.ready().await.unwrap()
}

/// Begins a call. Its answer comes when the window allows it.
async fn begin(
    client: &SendRequest<Bytes>,
    method: &str,
    ask: &Ask,
    deadline: Option<&str>,
) -> h2::client::ResponseFuture {
    let mut client = client.clone().ready().await.unwrap();
    let mut request = http::Request::post(format!("http://localhost/tollfree.probe.v1.Probe/{method}"))
        .header("content-type", "application/grpc");
    if let Some(deadline) = deadline {
        request = request.header("grpc-timeout", deadline);
    }
    let (answer, mut stream) = client.send_request(request.body(()).unwrap(), false).unwrap();
    let message = ask.encode_to_vec();
    let mut body = vec![0];
    body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend(message);
    stream.send_data(body.into(), true).unwrap();
    answer
}

/// Calls with a long answer each, or a stream of them, that have begun to be answered.
async fn calls(client: &SendRequest<Bytes>, deadline: Option<&str>) -> Vec<RecvStream> {
    let mut answers = Vec::new();
    for number in 0..CALL_COUNT {
        let (method, count) = if number.is_multiple_of(2) { ("Unary", 1) } else { ("Down", 3) };
        let ask = Ask { lens: vec![LONG; count], ..Ask::default() };
        answers.push(begin(client, method, &ask, deadline).await);
    }
    let mut bodies = Vec::new();
    for answer in answers {
        bodies.push(answer.await.unwrap().into_body());
    }
    bodies
}

/// Reads to the end: how much has come, and whether that is all.
async fn read(mut body: RecvStream) -> (usize, Result<(), h2::Error>) {
    let mut len = 0;
    loop {
        let data = tokio::time::timeout(PATIENCE, body.data()).await.expect("more, or an end");
        match data {
            None => return (len, body.trailers().await.map(drop)),
            Some(Err(error)) => return (len, Err(error)),
            Some(Ok(data)) => {
                len += data.len();
                body.flow_control().release_capacity(data.len()).unwrap();
            }
        }
    }
}

/// An answer of a client that reads.
async fn check_call(client: &SendRequest<Bytes>) {
    let ask = Ask { lens: vec![LONG], ..Ask::default() };
    let (len, end) = read(begin(client, "Unary", &ask, None).await.await.unwrap().into_body()).await;
    end.unwrap();
    assert!(len > LONG as usize, "{len}");
}

fn alive() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// Nothing of any call is left, and the connection stands.
async fn until_nothing_is_left(lab: &Lab, attached: &Attached, before: usize) {
    lab.until_figure(OUTSTANDING, |count| count == 0.0).await;
    lab.until_figure(MEMORY, |bytes| bytes == 0.0).await;
    let begun = tokio::time::Instant::now();
    while alive() > before || attached.probe.live.load(std::sync::atomic::Ordering::SeqCst) > 0 {
        assert!(begun.elapsed() < PATIENCE, "{} tasks, and {before} before", alive());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(lab.figure(CONNECTED).await, 1.0);
}

/// Windows of no byte, of less than a piece, and as HTTP/2 has them by default.
const WINDOWS: [u32; 3] = [0, 1000, 65_535];

async fn answers_that_are_not_read_leave_nothing(more: &str, deadline: Option<&str>, ended: f64) {
    let lab = Lab::start(more).await;
    let attached = lab.attach("default").await;
    let mut refused = 0.0;
    for window in WINDOWS {
        let client = client(&lab, window).await;
        // What a connection needs is there by then.
        drop(calls(&client, None).await);
        lab.until_figure(OUTSTANDING, |count| count == 0.0).await;
        lab.until_figure(MEMORY, |bytes| bytes == 0.0).await;
        let before = alive();
        let bodies = calls(&client, deadline).await;
        lab.until_figure(OUTSTANDING, |count| count == CALL_COUNT as f64).await;
        // What has come of them and waits is charged, however little of a window there is.
        lab.until_figure(MEMORY, |bytes| bytes >= (CALL_COUNT << 10) as f64).await;
        until_nothing_is_left(&lab, &attached, before).await;
        refused += ended;
        assert_eq!(lab.refused("unread").await, refused);
        for body in bodies {
            let (len, end) = read(body).await;
            assert!(end.is_err_and(|error| error.is_reset()), "{len} bytes are not all of it");
            // HTTP/2 has had no more of it than the window, and a piece.
            assert!(len < window as usize + (16 << 10), "{len} with a window of {window}");
        }
        if window > 0 {
            check_call(&client).await;
        }
        drop(client);
        lab.until_figure(CONNECTED, |count| count == 0.0).await;
    }
}

#[tokio::test]
async fn answers_that_nobody_reads_hold_nothing_after_their_deadline() {
    answers_that_are_not_read_leave_nothing("", Some(DEADLINE), 0.0).await;
}

#[tokio::test]
async fn answers_without_a_deadline_that_nobody_reads_end_after_a_time() {
    answers_that_are_not_read_leave_nothing("limits.unread_ms = 1000\n", None, CALL_COUNT as f64).await;
}

/// An answer that is an object at its backend connection comes as one piece of bytes, which HTTP/2 would keep, whatever becomes of the call.
#[tokio::test]
async fn http2_is_given_no_more_of_a_whole_answer_than_a_piece() {
    let lab = Lab::start("").await;
    let server = tollfree::Server::builder().add_service(ObjectServer::new(Back::default()));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let attaching = server.attach(lab.backends()).group("default").backend_connections(1);
    let backend_connection = tokio::spawn(attaching.until(async { drop(stopped.await) }).into_future());
    lab.until_figure(&backend_connections_of("default"), |count| count == 1.0).await;
    let client = client(&lab, 1000).await;
    let ask = Ask { body: vec![7; 1 << 18], ..Ask::default() };
    let mut bodies = Vec::new();
    for _ in 0..CALL_COUNT {
        let answer = begin(&client, "Unary", &ask, Some(DEADLINE)).await;
        bodies.push(answer.await.unwrap().into_body());
    }
    // All of it that HTTP/2 has not is charged.
    let waits = (CALL_COUNT / 2 * ask.body.len()) as f64;
    lab.until_figure(MEMORY, |bytes| bytes >= waits).await;
    lab.until_figure(OUTSTANDING, |count| count == 0.0).await;
    lab.until_figure(MEMORY, only_tables).await;
    for body in bodies {
        let (len, end) = read(body).await;
        assert!(len < 1000 + (16 << 10), "{len} bytes of {}", ask.body.len());
        assert!(end.is_err_and(|error| error.is_reset()));
    }
    drop((client, stop));
    backend_connection.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_client_that_reads_slowly_and_a_stream_that_is_idle_live() {
    let lab = Lab::start("limits.unread_ms = 400\n").await;
    let _attached = lab.attach("default").await;
    let client = client(&lab, 65_535).await;
    // A stream of which nothing waits for anybody, though it had to wait for a window before.
    let (asks, asked) = tokio::sync::mpsc::channel(1);
    let mut stock = lab.client().await;
    asks.send(Ask { body: vec![1; 3_000_000], ..Ask::default() }).await.unwrap();
    let asked = tokio_stream::wrappers::ReceiverStream::new(asked);
    let mut idle = stock.both(asked).await.unwrap().into_inner();
    assert_eq!(idle.message().await.unwrap().unwrap().body.len(), 3_000_000);
    let ask = Ask { lens: vec![LONG; 2], ..Ask::default() };
    let mut slow = begin(&client, "Down", &ask, None).await.await.unwrap().into_body();
    let (begun, mut len, mut unread) = (tokio::time::Instant::now(), 0, 0);
    while let Some(data) = slow.data().await {
        let data = data.expect("it comes slowly, and it comes");
        (len, unread) = (len + data.len(), unread + data.len());
        if unread >= 48 << 10 {
            tokio::time::sleep(Duration::from_millis(30)).await;
            slow.flow_control().release_capacity(std::mem::take(&mut unread)).unwrap();
        }
    }
    slow.trailers().await.unwrap();
    assert!(len > 2 * LONG as usize && begun.elapsed() > 2 * Duration::from_millis(400), "{len}");
    asks.send(Ask { body: vec![1; 2000], ..Ask::default() }).await.unwrap();
    assert_eq!(idle.message().await.unwrap().unwrap().body.len(), 2000);
    drop(asks);
    assert!(idle.message().await.unwrap().is_none());
    assert_eq!(lab.refused("unread").await, 0.0);
}
