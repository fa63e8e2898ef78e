//! Unusual names, types and settings, compiled and called.

use std::sync::Arc;

use tonic::{Code, Request, Response, Status};

// A method's name is its proto's business.
#[allow(unreachable_pub, dead_code, clippy::new_ret_no_self, clippy::wrong_self_convention)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/unusual/all.rs"));
}

use generated::golden::kinds::v1::kinds_client::KindsClient;
use generated::golden::kinds::v1::kinds_server::{Kinds, KindsServer};
use generated::golden::kinds::v1::{Chat, chat};
use generated::{Thing, bare_service_client::BareServiceClient, bare_service_server};

struct Service;

#[tonic::async_trait]
impl Kinds for Service {
    async fn say(self: Arc<Self>, request: Request<Chat>) -> Result<Response<Chat>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    async fn ping(self: Arc<Self>, _: Request<()>) -> Result<Response<prost_types::Timestamp>, Status> {
        Ok(Response::new(prost_types::Timestamp { seconds: 7, nanos: 0 }))
    }

    async fn is(self: Arc<Self>, request: Request<String>) -> Result<Response<bool>, Status> {
        Ok(Response::new(request.into_inner() == "it"))
    }
}

#[tonic::async_trait]
impl bare_service_server::BareService for Service {
    async fn r#do(self: Arc<Self>, request: Request<Thing>) -> Result<Response<Thing>, Status> {
        let mut thing = request.into_inner();
        thing.count += 1;
        Ok(Response::new(thing))
    }
}

#[tokio::test]
async fn unusual_names_types_and_settings_work() {
    let directory = tempfile::tempdir().unwrap();
    let uri = format!("shm://{}", directory.path().join("s.sock").display());
    let server = tollfree::Server::builder()
        .add_service(KindsServer::new(Service))
        .add_service(bare_service_server::BareServiceServer::new(Service));
    let serving = uri.clone();
    let server = tokio::spawn(async move { server.serve(&serving).await });
    let channel = loop {
        match tollfree::Channel::connect(&*uri).await {
            Ok(channel) => break channel,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    let mut kinds = KindsClient::new(channel.clone());
    let lines = vec![chat::Line { text: "hello".into() }];
    let said = Chat { lines, who: None, raw: prost::bytes::Bytes::from_static(b"raw") };
    assert_eq!(kinds.say(said.clone()).await.unwrap().into_inner(), said);
    assert_eq!(kinds.ping(()).await.unwrap().into_inner().seconds, 7);
    assert!(kinds.is("it".to_owned()).await.unwrap().into_inner());
    #[allow(deprecated)]
    let status = kinds.r#type(Chat::default()).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unimplemented, "Not yet implemented"));
    let status = kinds.listen(Chat::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    let mut bare = BareServiceClient::new(channel);
    assert_eq!(bare.r#do(Thing { count: 1, part: None }).await.unwrap().into_inner().count, 2);
    server.abort();
}
