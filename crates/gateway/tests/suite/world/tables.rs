//! Tables that the config names by descriptor sets: those of processes that say the same are not asked for.

use prost::Message;
use prost_types::FileDescriptorSet;
use tollfree::{Payloads, Server};
use tollfree_direct_stubs::objects::probe::probe_server::ProbeServer;
use tollfree_gateway::{Config, Gateway};
use tollfree_stubs::probe as structs;
use tonic::codec::CompressionEncoding::Gzip;

use super::lab::{Lab, backend_connections_of};
use super::nested;
use super::objects::{objects, until_objects};
use super::reload::reload;
use super::taker::Taker;

fn ask(body: &[u8]) -> structs::Ask {
    structs::Ask { body: body.to_vec(), ..structs::Ask::default() }
}

/// The set of the probe's services, in which a field of a request has another number.
fn other_set() -> Vec<u8> {
    let mut set = FileDescriptorSet::decode(tollfree_stubs::FILE_DESCRIPTOR_SET).unwrap();
    let messages = set.file.iter_mut().flat_map(|file| &mut file.message_type);
    let asks = messages.filter(|message| message.name() == "Ask");
    let bodies = asks.flat_map(|ask| &mut ask.field).filter(|field| field.name() == "body");
    assert_eq!(bodies.map(|field| field.number = Some(77)).count(), 1);
    set.encode_to_vec()
}

/// A directory with descriptor sets: the right one, another, and what is none.
fn sets() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let write = |name, set: &[u8]| std::fs::write(directory.path().join(name), set).unwrap();
    write("right.binpb", tollfree_stubs::FILE_DESCRIPTOR_SET);
    write("other.binpb", &other_set());
    write("none.binpb", b"\x0a\xffnothing");
    write("empty.binpb", b"");
    directory
}

fn descriptors(group: &str, directory: &tempfile::TempDir, name: &str) -> String {
    format!("[groups.{group}]\ndescriptors = \"{}\"\n", directory.path().join(name).display())
}

async fn attach(lab: &Lab, group: &str) -> (Payloads, tokio::task::JoinHandle<()>) {
    let server = Server::builder().add_service(ProbeServer::new(Taker));
    let payloads = server.payloads();
    let attaching = server.attach(lab.backends()).group(group).backend_connections(1);
    let task = tokio::spawn(async move { drop(attaching.await) });
    lab.until_figure(&backend_connections_of(group), |count| count == 1.0).await;
    (payloads, task)
}

#[tokio::test]
async fn a_process_is_not_asked_for_tables_that_the_config_has() {
    let sets = sets();
    let lab = Lab::start(&descriptors("default", &sets, "right.binpb")).await;
    let (payloads, attached) = attach(&lab, "default").await;
    let mut client = lab.client().await;
    until_objects(&mut client, &payloads).await;
    let before = payloads.counts().received_objects;
    for len in [1, 1000, 100_000] {
        let body = vec![7; len];
        assert!(client.unary(ask(&body)).await.unwrap().into_inner().body == body, "{len} bytes");
    }
    assert_eq!(payloads.counts().received_objects, before + 3);
    assert_eq!(lab.figure(&objects("default", "request", "first")).await, 0.0);
    assert_eq!(lab.figure(&objects("default", "request", "asked")).await, 0.0);
    attached.abort();
}

/// Descriptors say nothing of compression.
#[tokio::test]
async fn a_process_whose_tables_the_config_has_is_asked_for_its_encodings() {
    let sets = sets();
    let lab = Lab::start(&descriptors("default", &sets, "right.binpb")).await;
    let service = ProbeServer::new(Taker).accept_compressed(Gzip).send_compressed(Gzip);
    let backends = nested::attach(&lab, "default", Server::builder().add_service(service)).await;
    let mut client = lab.client().await.send_compressed(Gzip).accept_compressed(Gzip);
    until_objects(&mut client, &backends.payloads).await;
    let before = backends.payloads.counts().received_objects;
    assert!(client.unary(ask(&[7; 5000])).await.unwrap().metadata().contains_key("grpc-encoding"));
    assert_eq!(backends.payloads.counts().received_objects, before + 1);
    assert_eq!(lab.figure(&objects("default", "request", "first")).await, 0.0);
}

/// As after a change of the service that the config has not followed yet.
#[tokio::test]
async fn a_process_of_other_types_than_the_config_says_is_asked_for_its_own() {
    let sets = sets();
    let lab = Lab::start(&descriptors("default", &sets, "other.binpb")).await;
    let (payloads, attached) = attach(&lab, "default").await;
    let mut client = lab.client().await;
    until_objects(&mut client, &payloads).await;
    assert_eq!(lab.figure(&objects("default", "request", "first")).await, 1.0);
    assert!(client.unary(ask(b"its own")).await.unwrap().into_inner().body == b"its own");
    attached.abort();
}

#[tokio::test]
async fn two_tenants_with_the_same_type_names_and_different_tables_get_their_own() {
    let sets = sets();
    let (a, b) = (descriptors("a", &sets, "right.binpb"), descriptors("b", &sets, "other.binpb"));
    let routes = "[routes]\n\"tollfree.probe.v1.Probe\" = \"a\"\n\"tollfree.probe.v1.Probe/Up\" = \"b\"\n";
    let lab = Lab::start(&format!("{a}{b}{routes}")).await;
    let (payloads_a, attached_a) = attach(&lab, "a").await;
    let (payloads_b, attached_b) = attach(&lab, "b").await;
    let mut client = lab.client().await;
    until_objects(&mut client, &payloads_a).await;
    let began = tokio::time::Instant::now();
    while payloads_b.counts().received_objects == 0 {
        let answer = client.up(tokio_stream::iter([ask(b"of "), ask(b"b")])).await.unwrap();
        assert!(answer.into_inner().body == b"of b");
        assert!(began.elapsed() < super::lab::PATIENCE, "no request came as an object");
    }
    assert!(client.unary(ask(b"of a")).await.unwrap().into_inner().body == b"of a");
    let firsts = [
        lab.figure(&objects("a", "request", "first")).await,
        lab.figure(&objects("b", "request", "first")).await,
    ];
    assert_eq!(firsts, [0.0, 1.0]);
    attached_a.abort();
    attached_b.abort();
}

#[tokio::test]
async fn a_set_that_comes_by_a_new_config_is_used_and_one_of_no_use_changes_nothing() {
    let sets = sets();
    let lab = Lab::start("").await;
    let (payloads, attached) = attach(&lab, "default").await;
    let mut client = lab.client().await;
    until_objects(&mut client, &payloads).await;
    for (name, said) in
        [("none.binpb", "malformed"), ("empty.binpb", "no service"), ("gone.binpb", "No such file")]
    {
        let refused = reload(&lab, &descriptors("default", &sets, name)).await.unwrap_err().to_string();
        assert!(refused.contains("groups.default.descriptors") && refused.contains(said), "{refused}");
    }
    for name in ["right.binpb", "other.binpb", "right.binpb"] {
        reload(&lab, &descriptors("default", &sets, name)).await.unwrap();
        let before = payloads.counts().received_objects;
        let began = tokio::time::Instant::now();
        while payloads.counts().received_objects == before {
            assert!(client.unary(ask(b"on")).await.unwrap().into_inner().body == b"on");
            assert!(began.elapsed() < super::lab::PATIENCE, "no request came as an object");
        }
    }
    // Before the first set, and of the other one.
    assert_eq!(lab.figure(&objects("default", "request", "first")).await, 2.0);
    attached.abort();
}

#[tokio::test]
async fn a_gateway_does_not_start_with_a_set_of_no_use() {
    let sets = sets();
    let socket = format!("backends.socket = \"shm://{}\"\n", sets.path().join("backends.sock").display());
    let config = Config::from_toml(&format!("{socket}{}", descriptors("shop", &sets, "none.binpb"))).unwrap();
    let refused = Gateway::bind(config).await.unwrap_err().to_string();
    assert!(refused.contains("groups.shop.descriptors") && refused.contains("none.binpb"), "{refused}");
}
