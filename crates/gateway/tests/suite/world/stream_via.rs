//! Calls of backends of other hosts by way of the gateway: whose certificate lets them call where, and what becomes of calls
//! when the stream or the gateway ends.

use std::path::Path;
use std::sync::atomic::Ordering;

use futures_util::StreamExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tollfree::{Channel, ChannelBuilder, ChannelError, Transport};
use tollfree_direct_stubs::objects::probe::probe_client::ProbeClient as ObjectsClient;
use tollfree_direct_stubs::objects::probe::probe_server::ProbeServer as ObjectsServer;
use tollfree_stubs::probe::Ask;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tonic::Code;

use super::egress::serve;
use super::identity::callers;
use super::lab::{Lab, PATIENCE, backend_connections_of};
use super::nested::{self, Back};
use super::reload::reload;
use super::stream::{attach, device, start};

/// A channel by way of a gateway of another host, with a certificate of a name.
fn by(directory: &Path, address: &str, name: &str, target: &str) -> ChannelBuilder {
    let file = |end: &str| directory.join(end);
    Channel::builder(address)
        .certificates(file("ca.pem"), file(&format!("{name}.pem")), file(&format!("{name}.key")))
        .via(target)
}

async fn via(lab: &Lab, stream: &str, name: &str, target: &str) -> ProbeClient<Channel> {
    let channel = by(lab.directory.path(), &device(stream), name, target).connect().await.unwrap();
    ProbeClient::new(channel)
}

fn group(via: &str) -> String {
    format!("[groups.open]\nsubjects = [\"CN=the backends\"]\ndirect_connections = true\nvia = [{via}]\n")
}

fn egress_calls(group: &str) -> String {
    format!("tollfree_gateway_egress_calls{{group=\"{group}\"}}")
}

#[tokio::test]
async fn calls_of_all_kinds_reach_targets_and_groups_and_the_path_says_how() {
    let (address, probe) = serve(tollfree::Server::builder()).await;
    let target = format!("http://{address}");
    let (lab, _authority, stream) = start(&group(&format!("\"{target}\""))).await;
    let _backends = attach(&lab, &stream, "open");
    lab.until_figure(&backend_connections_of("open"), |count| count == 1.0).await;
    for target in [&*target, "group:open"] {
        let channel = by(lab.directory.path(), &device(&stream), "backends", target).connect().await.unwrap();
        let mut client = ProbeClient::new(channel.clone());
        let body = vec![1; 100_000];
        let answer = client.unary(Ask { body: body.clone(), ..Ask::default() }).await.unwrap().into_inner();
        assert_eq!(answer.body, body);
        let asks =
            || futures_util::stream::iter((0..20).map(|_| Ask { body: vec![1; 3_000], ..Ask::default() }));
        assert_eq!(client.up(asks()).await.unwrap().into_inner().seen_len, 60_000);
        let lens = Ask { lens: vec![3_000; 20], ..Ask::default() };
        assert_eq!(client.down(lens).await.unwrap().into_inner().count().await, 20);
        assert_eq!(client.both(asks()).await.unwrap().into_inner().count().await, 20);
        let path = channel.path();
        assert_eq!((path.endpoints[0].transport, path.endpoints[0].peer), (Transport::Stream, None));
        let words = path.to_string();
        for part in [
            "TCP with TLS to the device at device+tls://localhost:",
            &format!("calls {target} via"),
            "no direct connection",
        ] {
            assert!(words.contains(part), "{part}: {words}");
        }
        let told = callers(&answer.headers);
        if target == "group:open" {
            let [caller] = &told[..] else { panic!("{told:?}") };
            assert!(caller.contains("Remote(127.0.0.1:") && caller.contains("CN=the backends"), "{caller}");
        } else {
            assert!(told.is_empty(), "{told:?}");
        }
    }
    assert!(probe.begun.load(Ordering::SeqCst) == 4);
    assert_eq!(lab.figure("tollfree_gateway_direct_connections_total").await, 0.0);
    lab.until_figure(&egress_calls("open"), |count| count == 0.0).await;
}

/// A process of this host, and one that calls it from another.
#[tokio::test]
async fn objects_go_over_the_stream_as_they_are() {
    let (lab, _authority, stream) = start(&group("")).await;
    let service = ObjectsServer::new(Back::default());
    let backends = nested::attach(&lab, "open", tollfree::Server::builder().add_service(service)).await;
    let channel =
        by(lab.directory.path(), &device(&stream), "backends", "group:open").connect().await.unwrap();
    let payloads = channel.payloads();
    let mut client = ObjectsClient::new(channel);
    nested::until_objects(&mut client, &payloads).await;
    let counts = || [payloads.counts(), backends.payloads.counts()];
    let [caller, callee] = counts();
    for len in [1, 9_000, 200_000] {
        let answer = client.unary(nested::ask(len)).await.unwrap().into_inner();
        assert!(answer.view().body() == vec![len as u8; len]);
    }
    let [caller_now, callee_now] = counts();
    assert_eq!(caller_now.sent_objects - caller.sent_objects, 3);
    assert_eq!(callee_now.received_objects - callee.received_objects, 3);
    assert_eq!(caller_now.received_objects - caller.received_objects, 3);
}

#[tokio::test]
async fn a_certificate_calls_where_its_group_may_and_no_other_calls_anywhere() {
    let (address, probe) = serve(tollfree::Server::builder()).await;
    let target = format!("http://{address}");
    let (lab, authority, stream) = start(&group(&format!("\"{target}\""))).await;
    via(&lab, &stream, "backends", &target).await.unary(Ask::default()).await.unwrap();
    // A certificate of the same authority that no group names, and a target that the group doesn't name.
    for (name, target) in [("other", &*target), ("other", "group:open"), ("backends", "http://127.0.0.1:1")] {
        let refused = lab.refused("target").await;
        let status = via(&lab, &stream, name, target).await.unary(Ask::default()).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{name}, {target}: {status}");
        assert!(lab.refused("target").await > refused);
    }
    // One of another authority doesn't even come in, and one for another host's name is not talked to.
    let strangers = super::tls::Authority::new();
    let (certificate, key) = strangers.sign("backends");
    std::fs::write(lab.file("foreign.pem"), certificate).unwrap();
    std::fs::write(lab.file("foreign.key"), key).unwrap();
    let address = device(&stream);
    by(lab.directory.path(), &address, "foreign", &target).connect().await.expect_err("it is not let in");
    let address = address.replace("localhost", "127.0.0.1");
    let error = by(lab.directory.path(), &address, "backends", &target).connect().await.unwrap_err();
    assert!(error.to_string().contains("TLS"), "{error}");
    assert_eq!(probe.begun.load(Ordering::SeqCst), 1);
    drop(authority);
}

#[test]
fn what_is_missing_is_said() {
    let place = "device+tls://localhost:1";
    let words = |error: ChannelError| error.to_string();
    let lazy = |builder: ChannelBuilder| words(builder.connect_lazy().unwrap_err());
    assert!(lazy(Channel::builder(place).via("group:a")).contains("certificates()"));
    let files = |builder: ChannelBuilder| builder.certificates("a", "b", "c");
    assert!(lazy(files(Channel::builder(place))).contains("via()"));
    assert!(lazy(files(Channel::builder("device+tls://localhost").via("group:a"))).contains("host:port"));
    let blocking = files(Channel::builder(place).via("group:a")).connect_blocking().unwrap_err();
    assert!(words(blocking).contains("block"));
    let blocking = files(Channel::builder(place)).connect_blocking().unwrap_err();
    assert!(words(blocking).contains("via()"));
}

#[tokio::test]
async fn a_right_that_is_taken_away_ends_and_comes_back() {
    let (address, _probe) = serve(tollfree::Server::builder()).await;
    let target = format!("http://{address}");
    let (lab, _authority, stream) = start(&group(&format!("\"{target}\""))).await;
    let mut client = via(&lab, &stream, "backends", &target).await;
    client.unary(Ask::default()).await.unwrap();
    reload(&lab, &format!("{stream}[groups.open]\n")).await.unwrap();
    let begun = tokio::time::Instant::now();
    loop {
        match client.unary(Ask::default()).await {
            Err(status) if status.code() == Code::PermissionDenied => break,
            outcome => assert!(begun.elapsed() < PATIENCE, "{outcome:?}"),
        }
    }
    reload(&lab, &format!("{stream}{}", group(&format!("\"{target}\"")))).await.unwrap();
    while let Err(status) = client.unary(Ask::default()).await {
        assert!(begun.elapsed() < PATIENCE, "{status}");
    }
}

/// A way to the gateway that can be cut.
struct Way {
    port: u16,
    passing: std::sync::Arc<parking_lot::Mutex<Vec<JoinHandle<()>>>>,
    task: JoinHandle<()>,
}

impl Way {
    async fn to(address: &str) -> Way {
        let target = address.strip_prefix("device+tls://").unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, passing) = (listener.local_addr().unwrap().port(), std::sync::Arc::default());
        let of_all: std::sync::Arc<parking_lot::Mutex<Vec<_>>> = std::sync::Arc::clone(&passing);
        let task = tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let target = target.clone();
                of_all.lock().push(tokio::spawn(async move {
                    if let Ok(mut far) = TcpStream::connect(target).await {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                    }
                }));
            }
        });
        Way { port, passing, task }
    }

    fn cut(&self) {
        self.passing.lock().drain(..).for_each(|passing| passing.abort());
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.cut();
        self.task.abort();
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_ends_the_call_under_way_and_the_next_is_made_by_another() {
    let (address, probe) = serve(tollfree::Server::builder()).await;
    let target = format!("http://{address}");
    let (lab, _authority, stream) = start(&group(&format!("\"{target}\""))).await;
    let way = Way::to(&device(&stream)).await;
    let address = format!("device+tls://localhost:{}", way.port);
    let channel = by(lab.directory.path(), &address, "backends", &target).connect().await.unwrap();
    let mut client = ProbeClient::new(channel);
    client.unary(Ask::default()).await.unwrap();
    let under_way = tokio::spawn({
        let mut client = client.clone();
        async move { client.unary(Ask { wait_ms: 1, ..Ask::default() }).await }
    });
    lab.until_figure(&egress_calls("open"), |count| count == 1.0).await;
    let begun = tokio::time::Instant::now();
    while probe.live.load(Ordering::SeqCst) == 0 {
        assert!(begun.elapsed() < PATIENCE, "the call does not come");
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    way.cut();
    let status = tokio::time::timeout(PATIENCE, under_way).await.expect("it ends").unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    // The gateway has cancelled it, and counts it no more.
    lab.until_figure(&egress_calls("open"), |count| count == 0.0).await;
    while probe.live.load(Ordering::SeqCst) > 0 {
        assert!(begun.elapsed() < PATIENCE, "the call goes on elsewhere");
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    let begun_before = probe.begun.load(Ordering::SeqCst);
    client.unary(Ask::default()).await.expect("by the next stream");
    assert_eq!(probe.begun.load(Ordering::SeqCst), begun_before + 1, "nothing was made again by itself");
}

#[tokio::test]
async fn a_channel_comes_back_to_the_next_gateway() {
    let (address, _probe) = serve(tollfree::Server::builder()).await;
    let target = format!("http://{address}");
    let groups = group(&format!("\"{target}\""));
    let (lab, _authority, stream) = start(&groups).await;
    // The files outlive the first gateway.
    let files = tempfile::tempdir().unwrap();
    for name in ["ca.pem", "localhost.pem", "localhost.key", "backends.pem", "backends.key"] {
        std::fs::copy(lab.file(name), files.path().join(name)).unwrap();
    }
    let builder = by(files.path(), &device(&stream), "backends", &target).wait_for_ready(true);
    let mut client = ProbeClient::new(builder.connect().await.unwrap());
    client.unary(Ask::default()).await.unwrap();
    let before = lab.directory.path().display().to_string();
    lab.stopped().await;
    let during = tokio::spawn({
        let mut client = client.clone();
        async move { client.unary(Ask::default()).await }
    });
    let stream = stream.replace(&before, &files.path().display().to_string());
    let _next = Lab::start(&format!("{stream}{groups}")).await;
    tokio::time::timeout(PATIENCE, during).await.expect("it waits for the next").unwrap().unwrap();
    client.unary(Ask::default()).await.unwrap();
}
