//! Calls by way of the gateway whose first message is yet to come: they keep nobody from a group's backend connections, whichever backend listener they came by.

use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tollfree::Server;
use tollfree_direct_stubs::objects::probe::probe_client::ProbeClient as ObjectsClient;
use tollfree_direct_stubs::objects::probe::probe_server::ProbeServer as ObjectsServer;
use tollfree_driver_tokio::{
    Attachment, Certificates, Config, End, Ending, Opening, Outgoing, OutgoingMessage, Purpose, Stream,
};
use tollfree_stubs::probe::Ask;
use tonic::Code;

use super::egress;
use super::lab::{Lab, PATIENCE, PROBE};
use super::nested::{self, Back};
use super::raw::{self, headers};
use super::stream::{device, start};

/// Longer than a call takes on a busy machine.
const PROMPT: Duration = Duration::from_secs(20);

/// Longer than what a session takes of a message at once.
const LEN: usize = 3 << 20;

/// A call whose message has come in part.
struct Half {
    stream: Stream,
    rest: Outgoing,
}

impl Half {
    async fn begin(session: &Attachment, method: &str) -> Half {
        let path = format!("/{PROBE}/{method}");
        // `Ask.body`, field 1.
        let mut message = vec![10];
        prost::encoding::encode_varint((LEN - 5) as u64, &mut message);
        message.resize(LEN, 7);
        let mut rest = Outgoing {
            message: Some(OutgoingMessage::plain(Bytes::from(message).into())),
            ..headers(Bytes::new())
        };
        let opening = Opening { path: &path, deadline_ns: 0 };
        let mut opener = session.open();
        let stream = poll_fn(|cx| opener.poll_open(cx, opening, &mut rest)).await.unwrap();
        let begun = tokio::time::Instant::now();
        // The first of a session's long messages waits for its area.
        while !rest.message.as_ref().expect("the rest stays here").is_begun() {
            let is_sent = poll_fn(|cx| Poll::Ready(stream.poll_send(cx, &mut rest).is_ready())).await;
            assert!(!is_sent && begun.elapsed() < PATIENCE, "a part of it goes");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Half { stream, rest }
    }

    /// Sends the rest, and what the call ends with.
    async fn finish(mut self) -> (Code, String) {
        self.rest.ending = Some(Ending::HalfClose);
        poll_fn(|cx| self.stream.poll_send(cx, &mut self.rest)).await.unwrap();
        self.end().await
    }

    async fn end(&self) -> (Code, String) {
        let ended = async {
            loop {
                match poll_fn(|cx| self.stream.poll_incoming(cx)).await.unwrap().into_part().end {
                    Some(End::Trailers { code, block }) => {
                        let words = String::from_utf8_lossy(&block).replace("%20", " ");
                        return (Code::from_i32(code.into()), words);
                    }
                    Some(end) => panic!("{end:?}"),
                    None => {}
                }
            }
        };
        tokio::time::timeout(PATIENCE, ended).await.expect("the call ends")
    }
}

fn figure(name: &str, group: &str) -> String {
    format!("tollfree_gateway_{name}{{group=\"{group}\"}}")
}

/// Fills a group of depth 2 with halves, calls beside them, and has them go on.
async fn halves_leave_room(lab: &Lab, session: &Attachment, group: &str) {
    let mut halves = Vec::new();
    for count in 0..6 {
        halves.push(Half::begin(session, if count % 2 == 0 { "Unary" } else { "Up" }).await);
    }
    // Parts of them are there.
    lab.until_figure(&figure("memory_bytes", group), |bytes| bytes > 12_000.0).await;
    assert_eq!(lab.figure(&figure("outstanding", group)).await, 0.0, "half a message has no place");
    let mut inside = egress::via(lab, &format!("group:{group}")).await;
    let mut world = lab.client().await;
    for _ in 0..5 {
        let calls = async {
            inside.unary(Ask::default()).await.expect("by way of the gateway");
            world.unary(Ask::default()).await.expect("from the world");
        };
        tokio::time::timeout(PROMPT, calls).await.expect("others are served");
    }
    for half in halves {
        assert_eq!(half.finish().await.0, Code::Ok, "it is whole");
    }
}

#[tokio::test]
async fn unfinished_calls_of_this_host_leave_a_group_with_depth_to_others() {
    let lab = Lab::start("load_balancing.depth = 2\n").await;
    let attached = lab.attach("default").await;
    let session = raw::via(&lab, "group:default").await;
    halves_leave_room(&lab, &session, "default").await;
    assert_eq!(attached.probe.begun.load(Ordering::SeqCst), 6 + 10);
}

#[tokio::test]
async fn unfinished_calls_of_another_host_leave_a_group_with_depth_to_others() {
    let groups = format!(
        "[groups.open]\nusers = [{}]\nsubjects = [\"CN=the backends\"]\nload_balancing.depth = 2\n",
        rustix::process::geteuid().as_raw()
    );
    let (lab, _authority, stream) = start(&groups).await;
    let _attached = lab.attach("open").await;
    let [ca, certificate, key] = ["ca.pem", "backends.pem", "backends.key"].map(|name| lab.file(name));
    let purpose = Purpose::Via("group:open".into());
    let (address, files) = (device(&stream).parse().unwrap(), Certificates { ca, certificate, key });
    let session = Attachment::connect_over(&address, &files, &Config::default(), purpose).await.unwrap();
    halves_leave_room(&lab, &session, "open").await;
}

/// Nobody takes the rest of such a message before somebody is there who serves it.
#[tokio::test]
async fn unfinished_calls_that_came_before_the_backend_connections_leave_them_to_others() {
    let lab = Lab::start("load_balancing.depth = 1\nlimits.attach_wait_ms = 60000\n").await;
    let session = raw::via(&lab, "group:default").await;
    let half = Half::begin(&session, "Unary").await;
    let mut world = lab.client().await;
    // It waits for the same, and shows when that is over.
    let waits = tokio::spawn(async move { world.unary(Ask::default()).await.map(drop) });
    let _attached = lab.attach("default").await;
    tokio::time::timeout(PROMPT, waits).await.expect("it is served").unwrap().unwrap();
    lab.until_figure(&figure("memory_bytes", "default"), |bytes| bytes > 2_000.0).await;
    assert_eq!(lab.figure(&figure("outstanding", "default")).await, 0.0, "half a message has no place");
    assert_eq!(half.finish().await.0, Code::Ok);
}

#[tokio::test]
async fn a_message_that_comes_too_slowly_ends_its_call_before_a_backend_connection_has_seen_it() {
    let lab = Lab::start("load_balancing.depth = 2\nlimits.arrival_grace_ms = 300\n").await;
    let attached = lab.attach("default").await;
    let session = raw::via(&lab, "group:default").await;
    let mut halves = Vec::new();
    for method in ["Unary", "Down", "Up", "Both"] {
        halves.push(Half::begin(&session, method).await);
    }
    for half in halves {
        let (code, words) = half.end().await;
        assert!(
            code == Code::ResourceExhausted && words.contains("limits.min_bytes_per_s"),
            "{code:?}: {words}"
        );
    }
    assert_eq!(lab.refused("slow").await, 4.0);
    let by_class = "tollfree_gateway_client_refusals_total{reason=\"slow\",client=\"backend\"}";
    assert_eq!(lab.figure(by_class).await, 4.0);
    assert_eq!(attached.probe.begun.load(Ordering::SeqCst), 0, "no backend connection has begun one");
    assert_eq!(session.live_count(), 0);
}

/// An object waits beside the body, and goes on as it came.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_pass_where_backend_connections_have_a_depth() {
    let lab = Lab::start("load_balancing.depth = 1\n").await;
    let service = ObjectsServer::new(Back::default());
    let backends = nested::attach(&lab, "default", Server::builder().add_service(service)).await;
    let channel = nested::via(&lab, "default").await;
    let mut client = ObjectsClient::new(channel.clone());
    nested::until_all_are_objects(&mut client, &channel).await;
    let handed = super::objects::objects("default", "request", "object");
    let (before, received) = (lab.figure(&handed).await, backends.payloads.counts().received_objects);
    // In one record, in several, and longer than the window of a stream.
    let lens = [1, 9_000, 200_000, 2_000_000];
    for len in lens {
        let answer = client.unary(nested::ask(len)).await.unwrap().into_inner();
        assert!(answer.view().body() == vec![len as u8; len], "{len} bytes");
    }
    let count = lens.len();
    assert_eq!(lab.figure(&handed).await - before, count as f64, "none of them was encoded");
    assert_eq!(backends.payloads.counts().received_objects - received, count as u64);
}
