//! What users lean on without saying so: types that can be sent and shared, errors with sources.

use std::error::Error;
use std::fmt::Debug;

fn shared<T: Send + Sync + Debug + 'static>() {}

#[test]
fn public_types_can_be_sent_shared_and_printed() {
    fn cloned<T: Clone>() {}
    shared::<tollfree::Channel>();
    shared::<tollfree::ChannelBuilder>();
    shared::<tollfree::Server>();
    shared::<tollfree::Path>();
    shared::<tollfree::PeerIdentity>();
    cloned::<tollfree::Channel>();
    cloned::<tollfree::Server>();
    fn future<T: Send>(_: &T) {}
    future(&tollfree::Channel::connect("shm:///x"));
    future(&tollfree::Server::builder().serve("shm:///x"));
    fn error<T: Error + Send + Sync + 'static>() {}
    error::<tollfree::ChannelError>();
    error::<tollfree::ServeError>();
    error::<tollfree::ConnectError>();
}

#[tokio::test]
async fn errors_lead_to_their_causes() {
    let error = tollfree::Server::builder().serve("unix:/no/such/directory/x.sock").await.unwrap_err();
    let source = error.source().expect("the kernel's word");
    assert!(source.downcast_ref::<std::io::Error>().is_some(), "{source}");
    assert!(error.to_string().contains("unix:/no/such/directory/x.sock"), "{error}");
    let error = tollfree::Channel::connect("shm:///no/such/x.sock").await.unwrap_err();
    let tollfree::ChannelError::Connect(connect) = &error else { panic!("{error:?}") };
    assert_eq!(connect.address.to_string(), "shm:///no/such/x.sock");
    let source = connect.source().expect("what happened");
    assert!(
        source.to_string().contains("does not exist") && !source.to_string().contains("shm:"),
        "{source}"
    );
}

#[tokio::test]
async fn services_may_be_optional() {
    let (_, health) = tonic_health::server::health_reporter();
    let server = tollfree::Server::builder().add_optional_service(Some(health.clone()));
    let server = server.add_optional_service(None::<tonic_health::pb::health_server::HealthServer<Never>>);
    assert!(format!("{server:?}").contains("grpc.health.v1.Health"), "{server:?}");
}

/// Never made.
enum Never {}

#[tonic::async_trait]
impl tonic_health::pb::health_server::Health for Never {
    async fn check(
        &self,
        _: tonic::Request<tonic_health::pb::HealthCheckRequest>,
    ) -> Result<tonic::Response<tonic_health::pb::HealthCheckResponse>, tonic::Status> {
        match *self {}
    }

    type WatchStream = tokio_stream::Pending<Result<tonic_health::pb::HealthCheckResponse, tonic::Status>>;

    async fn watch(
        &self,
        _: tonic::Request<tonic_health::pb::HealthCheckRequest>,
    ) -> Result<tonic::Response<Self::WatchStream>, tonic::Status> {
        match *self {}
    }
}
