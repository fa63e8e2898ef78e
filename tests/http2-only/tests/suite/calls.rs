//! Calls of all four kinds, with stubs of all three levels and with blocking ones, over TCP and a Unix socket.

use std::pin::Pin;

use tokio_stream::{Stream, StreamExt as _, iter};
use tollfree::{Channel, Server, Transport, Upgrade};
use tonic::{Request, Response, Status, Streaming};

use crate::{addresses, until_served};

/// A server of messages that are structs, and what a client of the same stubs gets from it.
macro_rules! with_structs {
    ($level:ident, $($stubs:ident)::+) => {
        mod $level {
            use super::*;
            use $($stubs)::+::sensors_client::SensorsClient;
            use $($stubs)::+::sensors_server::{Sensors, SensorsServer};
            use $($stubs)::+::{Sample, Sensor, Summary};

            type Samples = Pin<Box<dyn Stream<Item = Result<Sample, Status>> + Send>>;

            struct Station;

            #[tonic::async_trait]
            impl Sensors for Station {
                type WatchStream = Samples;
                type CorrectStream = Samples;

                async fn read(&self, request: Request<Sensor>) -> Result<Response<Sample>, Status> {
                    Ok(Response::new(Sample { value: request.get_ref().name.len() as f64 }))
                }

                async fn watch(&self, request: Request<Sensor>) -> Result<Response<Samples>, Status> {
                    let count = request.get_ref().name.len();
                    let samples = (0..count).map(|value| Ok(Sample { value: value as f64 }));
                    Ok(Response::new(Box::pin(iter(samples))))
                }

                async fn report(
                    &self,
                    request: Request<Streaming<Sample>>,
                ) -> Result<Response<Summary>, Status> {
                    let (mut samples, mut count, mut sum) = (request.into_inner(), 0, 0.0);
                    while let Some(sample) = samples.message().await? {
                        count += 1;
                        sum += sample.value;
                    }
                    Ok(Response::new(Summary { count, mean: sum / f64::from(count) }))
                }

                async fn correct(
                    &self,
                    request: Request<Streaming<Sample>>,
                ) -> Result<Response<Samples>, Status> {
                    let corrected =
                        request.into_inner().map(|sample| Ok(Sample { value: sample?.value + 0.5 }));
                    Ok(Response::new(Box::pin(corrected)))
                }
            }

            pub(super) fn server() -> Server {
                Server::builder().add_service(SensorsServer::new(Station))
            }

            pub(super) async fn call(channel: Channel) {
                let mut client = SensorsClient::new(channel);
                let north = || Sensor { name: "north".into() };
                let samples = || iter([1.0, 2.0].map(|value| Sample { value }));
                assert_eq!(client.read(north()).await.unwrap().get_ref().value, 5.0);
                let watched = client.watch(north()).await.unwrap().into_inner();
                assert_eq!(
                    watched.map(|sample| sample.unwrap().value).collect::<Vec<_>>().await,
                    [0.0, 1.0, 2.0, 3.0, 4.0]
                );
                assert_eq!(client.report(samples()).await.unwrap().get_ref().mean, 1.5);
                let corrected = client.correct(samples()).await.unwrap().into_inner();
                assert_eq!(
                    corrected.map(|sample| sample.unwrap().value).collect::<Vec<_>>().await,
                    [1.5, 2.5]
                );
            }
        }
    };
}

with_structs!(level_1, tollfree_stubs::sensors);
with_structs!(level_2, tollfree_direct_stubs::sensors);

mod level_3 {
    use super::*;
    use tollfree_direct_stubs::objects::sensors::sensors_client::SensorsClient;
    use tollfree_direct_stubs::objects::sensors::sensors_server::{Sensors, SensorsServer};
    use tollfree_direct_stubs::objects::views::tollfree::sensors::v1::{Sample, Sensor, Summary};
    use tollfree_processor::typed::Owned;

    type Samples = Pin<Box<dyn Stream<Item = Result<Owned<Sample>, Status>> + Send>>;

    struct Station;

    fn sample(value: f64) -> Owned<Sample> {
        Owned::<Sample>::build(|sample| sample.set_value(value)).unwrap()
    }

    #[tonic::async_trait]
    impl Sensors for Station {
        type WatchStream = Samples;
        type CorrectStream = Samples;

        async fn read(&self, request: Request<Owned<Sensor>>) -> Result<Response<Owned<Sample>>, Status> {
            Ok(Response::new(sample(request.get_ref().view().name().len() as f64)))
        }

        async fn watch(&self, request: Request<Owned<Sensor>>) -> Result<Response<Samples>, Status> {
            let count = request.get_ref().view().name().len();
            Ok(Response::new(Box::pin(iter((0..count).map(|value| Ok(sample(value as f64)))))))
        }

        async fn report(
            &self,
            request: Request<Streaming<Owned<Sample>>>,
        ) -> Result<Response<Owned<Summary>>, Status> {
            let (mut samples, mut count, mut sum) = (request.into_inner(), 0, 0.0);
            while let Some(sample) = samples.message().await? {
                count += 1;
                sum += sample.view().value();
            }
            let mean = sum / f64::from(count);
            Ok(Response::new(Owned::<Summary>::build(|summary| {
                summary.set_count(count)?;
                summary.set_mean(mean)
            })?))
        }

        async fn correct(
            &self,
            request: Request<Streaming<Owned<Sample>>>,
        ) -> Result<Response<Samples>, Status> {
            let corrected = request.into_inner().map(|received| Ok(sample(received?.view().value() + 0.5)));
            Ok(Response::new(Box::pin(corrected)))
        }
    }

    pub(super) fn server() -> Server {
        Server::builder().add_service(SensorsServer::new(Station))
    }

    pub(super) async fn call(channel: Channel) {
        let mut client = SensorsClient::new(channel);
        let north = || Owned::<Sensor>::build(|sensor| sensor.set_name("north")).unwrap();
        let samples = || iter([1.0, 2.0].map(sample));
        assert_eq!(client.read(north()).await.unwrap().get_ref().view().value(), 5.0);
        let watched = client.watch(north()).await.unwrap().into_inner();
        assert_eq!(
            watched.map(|sample| sample.unwrap().view().value()).collect::<Vec<_>>().await,
            [0.0, 1.0, 2.0, 3.0, 4.0]
        );
        assert_eq!(client.report(samples()).await.unwrap().get_ref().view().mean(), 1.5);
        let corrected = client.correct(samples()).await.unwrap().into_inner();
        assert_eq!(
            corrected.map(|sample| sample.unwrap().view().value()).collect::<Vec<_>>().await,
            [1.5, 2.5]
        );
    }
}

#[tokio::test]
async fn calls_of_all_kinds_go_over_tcp_and_unix_sockets_at_all_levels() {
    for server in [level_1::server, level_2::server, level_3::server] {
        let directory = tempfile::tempdir().unwrap();
        for address in addresses(directory.path()) {
            let serving = tokio::spawn(server().serve(address.clone()));
            let channel = Channel::builder(address).wait_for_ready(true).connect_lazy().unwrap();
            level_1::call(channel.clone()).await;
            level_2::call(channel.clone()).await;
            level_3::call(channel.clone()).await;
            assert!(channel.path().endpoints.iter().all(|endpoint| endpoint.transport == Transport::Http2));
            serving.abort();
        }
    }
}

#[test]
fn blocking_clients_and_servers_work_over_tcp_and_unix_sockets() {
    use tollfree_direct_stubs::greeter::HelloReply;
    use tollfree_direct_stubs::greeter::HelloRequest;
    use tollfree_direct_stubs::greeter::greeter_blocking_client::GreeterBlockingClient;
    use tollfree_direct_stubs::greeter::greeter_server::{Greeter, GreeterServer};

    struct Polite;

    #[tonic::async_trait]
    impl Greeter for Polite {
        async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
            Ok(Response::new(HelloReply { text: format!("Hello, {}!", request.get_ref().name) }))
        }
    }

    let directory = tempfile::tempdir().unwrap();
    for address in addresses(directory.path()) {
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let serving = address.clone();
        let server = std::thread::spawn(move || {
            let ended = async move { ended.await.unwrap_or_default() };
            Server::builder()
                .add_service(GreeterServer::new(Polite))
                .serve_blocking_with_shutdown(serving, ended)
        });
        let connected = until_served(|| Channel::builder(address.as_str()).connect_blocking());
        let mut client = GreeterBlockingClient::new(connected);
        let reply = client.hello(HelloRequest { name: "laptop".into() }).unwrap();
        assert_eq!(reply.get_ref().text, "Hello, laptop!");
        drop((client, end));
        server.join().unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_channel_that_may_move_to_shared_memory_stays_on_tcp() {
    let directory = tempfile::tempdir().unwrap();
    let [address, _] = addresses(directory.path());
    let serving = tokio::spawn(level_2::server().serve(address.clone()));
    let channel = Channel::builder(address)
        .wait_for_ready(true)
        .upgrade(Upgrade::Preferred)
        .upgrade_directory(directory.path())
        .connect_lazy()
        .unwrap();
    level_2::call(channel.clone()).await;
    let path = channel.path().to_string();
    assert!(path.contains("built with HTTP/2 alone"), "{path}");
    serving.abort();
}
