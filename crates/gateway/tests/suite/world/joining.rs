//! Joining a gateway: what is refused for good is an error, and what belongs to every server is no group's own; the gateway's socket and
//! its reflection.

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use prost::Message;
use prost_types::FileDescriptorSet;
use tokio_stream::StreamExt;
use tollfree::{PeerPolicy, Server};
use tollfree_stubs::probe::probe_server::ProbeServer;
use tonic::Code;
use tonic_reflection::pb::{v1, v1alpha};

use super::lab::{Lab, PATIENCE, PROBE, backend_connections_of};
use super::probe::Probe;
use super::reload::reload;

fn server() -> Server {
    Server::builder().add_service(ProbeServer::new(Probe::default()))
}

/// A server as most are: with health and reflection beside its service.
fn whole_server() -> Server {
    let (_, health) = tonic_health::server::health_reporter();
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(tollfree_stubs::FILE_DESCRIPTOR_SET)
    };
    server()
        .add_service(health)
        .add_service(reflection().build_v1().unwrap())
        .add_service(reflection().build_v1alpha().unwrap())
}

/// What attaching ends with, which it does without trying again.
async fn refusal(attaching: tollfree::Attaching) -> String {
    let ended = tokio::time::timeout(PATIENCE, attaching.into_future()).await.expect("it ends");
    ended.unwrap_err().to_string()
}

#[tokio::test]
async fn what_is_refused_for_good_is_an_error_that_names_group_and_service() {
    let lab = Lab::start(&format!(
        "[groups.a]\nservices = [\"{PROBE}\"]\n[groups.b]\nservices = [\"x.Other\"]\n[groups.c]\n[groups.d]\nusers = [4000000000]\n"
    ))
    .await;
    let cases = [
        ("b", format!("service {PROBE} is group a's, not b's")),
        ("c", format!("service {PROBE} is group a's, not c's")),
        ("nowhere", "the gateway's config has no group nowhere".to_owned()),
        ("d", "is not in the users of group d".to_owned()),
    ];
    for (nth, (group, words)) in (1..).zip(cases) {
        let said = refusal(server().attach(lab.backends()).group(group)).await;
        assert!(said.contains(&words) && said.contains("backends.sock"), "{group}: {said}");
        assert_eq!(lab.refused("attach").await, f64::from(nth));
        assert_eq!(lab.figure(&backend_connections_of(group)).await, 0.0);
    }
    let other = Server::builder().add_service(tonic_health::server::health_reporter().1);
    let long = "service-of-a-long-name-".repeat(8);
    let long = refusal(other.attach(lab.backends()).group(&long[..60])).await;
    assert!(long.contains("no group service-of-a-long-name-"), "{long}");
}

#[tokio::test]
async fn health_and_reflection_are_let_in_with_every_group() {
    let lab =
        Lab::start(&format!("[groups.a]\nservices = [\"{PROBE}\"]\n[groups.b]\nservices = [\"x.Other\"]\n"))
            .await;
    let attaching = tokio::spawn(whole_server().attach(lab.backends()).group("a").into_future());
    lab.until_figure(&backend_connections_of("a"), |count| count == 1.0).await;
    assert_eq!(lab.health(PROBE).await, Ok(1));
    // Without descriptors in the config, the backend answers.
    assert!(services_v1(&lab).await.unwrap().contains(PROBE));
    attaching.abort();
}

#[tokio::test]
async fn a_program_names_the_user_of_its_gateway() {
    let lab = Lab::start("").await;
    let own = rustix::process::geteuid().as_raw();
    let nobody = || server().peers(PeerPolicy::Users(Vec::new()));
    let said = refusal(nobody().attach(lab.backends())).await;
    assert!(said.contains("Server::peers"), "{said}");
    let attaching = tokio::spawn(nobody().attach(lab.backends()).gateway_user(own.to_string()).into_future());
    lab.until_figure(&backend_connections_of("default"), |count| count == 1.0).await;
    attaching.abort();
    let said = refusal(server().attach(lab.backends()).gateway_user("no-such-name")).await;
    assert!(said.contains("Attaching::gateway_user") && said.contains("no-such-name"), "{said}");
}

#[tokio::test]
async fn the_socket_has_the_mode_and_group_of_the_config() {
    let group = rustix::process::getegid().as_raw();
    let lab = Lab::start(&format!("backends.mode = \"0660\"\nbackends.group = {group}\n")).await;
    let file = std::fs::metadata(lab.file("backends.sock")).unwrap();
    assert_eq!((file.permissions().mode() & 0o7777, file.gid()), (0o660, group));
    let kept = reload(&lab, "backends.mode = \"0600\"\n").await.unwrap();
    assert_eq!(kept, ["backends.group", "backends.mode"], "they change with a restart only");
    let _attached = lab.attach("default").await;
}

async fn services_v1(lab: &Lab) -> Result<BTreeSet<String>, Code> {
    use v1::server_reflection_request::MessageRequest;
    use v1::server_reflection_response::MessageResponse;
    let mut client = v1::server_reflection_client::ServerReflectionClient::new(lab.channel().await);
    let ask = v1::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let answers = client.server_reflection_info(tokio_stream::once(ask)).await;
    let mut answers = answers.map_err(|status| status.code())?.into_inner();
    let answer = answers.next().await.unwrap().map_err(|status| status.code())?;
    match answer.message_response.unwrap() {
        MessageResponse::ListServicesResponse(list) => {
            Ok(list.service.into_iter().map(|service| service.name).collect())
        }
        other => panic!("{other:?}"),
    }
}

/// The messages of the file that has a symbol, and whether there is one.
async fn messages_v1alpha(lab: &Lab, symbol: &str) -> Option<Vec<String>> {
    use v1alpha::server_reflection_request::MessageRequest;
    use v1alpha::server_reflection_response::MessageResponse;
    let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(lab.channel().await);
    let ask = v1alpha::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::FileContainingSymbol(symbol.into())),
    };
    let mut answers = client.server_reflection_info(tokio_stream::once(ask)).await.unwrap().into_inner();
    match answers.next().await.unwrap() {
        Err(status) => {
            assert_eq!(status.code(), Code::NotFound, "{status}");
            None
        }
        Ok(answer) => match answer.message_response.unwrap() {
            MessageResponse::FileDescriptorResponse(files) => {
                let file =
                    prost_types::FileDescriptorProto::decode(&files.file_descriptor_proto[0][..]).unwrap();
                Some(file.message_type.into_iter().map(|message| message.name().to_owned()).collect())
            }
            other => panic!("{other:?}"),
        },
    }
}

/// A set with another package, for another group.
fn renamed_set() -> Vec<u8> {
    let mut set = FileDescriptorSet::decode(tollfree_stubs::FILE_DESCRIPTOR_SET).unwrap();
    set.file.retain(|file| file.package() == "tollfree.probe.v1");
    for file in &mut set.file {
        file.name = Some("another.proto".into());
        file.package = Some("another.v1".into());
        let rename = |name: &mut Option<String>| {
            if let Some(name) = name {
                *name = name.replace(".tollfree.probe.v1.", ".another.v1.");
            }
        };
        file.message_type
            .iter_mut()
            .flat_map(|message| &mut message.field)
            .for_each(|field| rename(&mut field.type_name));
        for method in file.service.iter_mut().flat_map(|service| &mut service.method) {
            rename(&mut method.input_type);
            rename(&mut method.output_type);
        }
    }
    set.encode_to_vec()
}

#[tokio::test]
async fn reflection_answers_for_all_groups_by_their_descriptors() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    std::fs::write(path("probe.binpb"), tollfree_stubs::FILE_DESCRIPTOR_SET).unwrap();
    std::fs::write(path("another.binpb"), renamed_set()).unwrap();
    let both = format!(
        "[groups.a]\ndescriptors = \"{}\"\n[groups.b]\ndescriptors = \"{}\"\n",
        path("probe.binpb"),
        path("another.binpb")
    );
    let lab = Lab::start(&both).await;
    let services = services_v1(&lab).await.unwrap();
    for service in [PROBE, "another.v1.Probe", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"]
    {
        assert!(services.contains(service), "{service} is not in {services:?}");
    }
    for symbol in [PROBE, "another.v1.Ask", "another.v1.Probe.Unary"] {
        let messages = messages_v1alpha(&lab, symbol).await.expect(symbol);
        assert!(messages.contains(&"Ask".to_owned()), "{messages:?}");
    }
    for symbol in ["grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"] {
        messages_v1alpha(&lab, symbol).await.expect(symbol);
    }
    assert_eq!(messages_v1alpha(&lab, "another.v1.Nothing").await, None);
    reload(&lab, &format!("[groups.a]\ndescriptors = \"{}\"\n", path("probe.binpb"))).await.unwrap();
    assert!(!services_v1(&lab).await.unwrap().contains("another.v1.Probe"), "a reload renews them");
    reload(&lab, "limits.attach_wait_ms = 1\n[groups.a]\n").await.unwrap();
    assert_eq!(services_v1(&lab).await, Err(Code::Unimplemented), "nobody answers any more");
}
