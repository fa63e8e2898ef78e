//! Services and methods that are not there.

use crate::stubs::probe::{Answer, Ask};
use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::{Code, Request, Status};

use super::lab::{Lab, Way};

async fn call(lab: &Lab, path: &str) -> Result<Answer, Status> {
    let mut grpc = Grpc::new(lab.channel.clone());
    grpc.ready().await.map_err(|error| Status::unknown(error.to_string()))?;
    let codec = tonic_prost::ProstCodec::<Ask, Answer>::default();
    let path: PathAndQuery = path.parse().expect("a path for http");
    Ok(grpc.unary(Request::new(Ask::default()), path, codec).await?.into_inner())
}

async fn what_is_not_there_is_unimplemented(way: Way) {
    let lab = Lab::start(way).await;
    assert!(call(&lab, "/tollfree.probe.v1.Probe/Unary").await.is_ok());
    let paths = [
        "/tollfree.probe.v1.Probe/Missing",
        "/tollfree.probe.v1.Probe/unary",
        "/tollfree.probe.v1.Nobody/Unary",
        "/Probe/Unary",
        "/tollfree.probe.v1.Probe",
        "/tollfree.probe.v1.Probe/",
        "/tollfree.probe.v1.Probe/Unary/More",
        "//Unary",
        "/",
    ];
    for path in paths {
        let status = call(&lab, path).await.expect_err(path);
        assert_eq!(status.code(), Code::Unimplemented, "{path}: {status}");
    }
    assert!(call(&lab, "/tollfree.probe.v1.Probe/Unary").await.is_ok());
}

crate::rows!(what_is_not_there_is_unimplemented);

#[tokio::test]
async fn a_service_that_is_not_there_is_named() {
    let lab = Lab::start(Way::Shm).await;
    let status = call(&lab, "/tollfree.probe.v1.Nobody/Unary").await.unwrap_err();
    assert!(status.message().contains("/tollfree.probe.v1.Nobody/Unary"), "{status}");
    let long = format!("/{}/Method", "x".repeat(2000));
    let status = call(&lab, &long).await.unwrap_err();
    assert!(status.message().contains("2008 bytes"), "{status}");
    for number in 0..5_000 {
        // More names than a session interns.
        let status = call(&lab, &format!("/nobody.Here/Method{number}")).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
    }
    assert!(call(&lab, "/tollfree.probe.v1.Probe/Unary").await.is_ok());
}
