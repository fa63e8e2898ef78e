//! A server of all four kinds of calls whose messages are read and built in place. `sensors.rs` is the same with prost's structs.
//! `cargo run --example sensors_objects`.

use std::pin::Pin;

use tokio_stream::{Stream, StreamExt as _};
use tollfree::{Channel, Server};
use tollfree_direct_stubs::objects::sensors::sensors_client::SensorsClient;
use tollfree_direct_stubs::objects::sensors::sensors_server::{Sensors, SensorsServer};
use tollfree_direct_stubs::objects::views::tollfree::sensors::v1::{Sample, Sensor, Summary};
use tollfree_processor::typed::Owned;
use tonic::{Request, Response, Status, Streaming};

type Samples = Pin<Box<dyn Stream<Item = Result<Owned<Sample>, Status>> + Send>>;

struct Station;

fn sample(value: f64) -> Result<Owned<Sample>, Status> {
    Ok(Owned::<Sample>::build(|sample| sample.set_value(value))?)
}

#[tonic::async_trait]
impl Sensors for Station {
    type WatchStream = Samples;
    type CorrectStream = Samples;

    async fn read(&self, request: Request<Owned<Sensor>>) -> Result<Response<Owned<Sample>>, Status> {
        let value = request.get_ref().view().name().len() as f64;
        Ok(Response::new(sample(value)?))
    }

    async fn watch(&self, request: Request<Owned<Sensor>>) -> Result<Response<Samples>, Status> {
        let count = request.get_ref().view().name().len();
        let samples = (0..count).map(|value| sample(value as f64));
        Ok(Response::new(Box::pin(tokio_stream::iter(samples))))
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

    async fn correct(&self, request: Request<Streaming<Owned<Sample>>>) -> Result<Response<Samples>, Status> {
        let corrected = request.into_inner().map(|received| sample(received?.view().value() + 0.5));
        Ok(Response::new(Box::pin(corrected)))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let uri = format!("shm://{}/sensors.sock", directory.path().display());
    let address = uri.clone();
    tokio::spawn(async move {
        let server = Server::builder().add_service(SensorsServer::new(Station));
        server.serve(&address).await.expect("the directory is ours")
    });
    let mut client = SensorsClient::new(Channel::builder(uri).wait_for_ready(true).connect_lazy()?);
    let read = client.read(Owned::<Sensor>::build(|sensor| sensor.set_name("north"))?).await?.into_inner();
    let mut watched =
        client.watch(Owned::<Sensor>::build(|sensor| sensor.set_name("north"))?).await?.into_inner();
    let mut count = 0;
    while watched.message().await?.is_some() {
        count += 1;
    }
    let samples = [1.0, 2.0].map(|value| sample(value).expect("there is room"));
    let summary = client.report(tokio_stream::iter(samples)).await?.into_inner();
    let samples = [1.0, 2.0].map(|value| sample(value).expect("there is room"));
    let mut corrected = client.correct(tokio_stream::iter(samples)).await?.into_inner();
    let first = corrected.message().await?.ok_or("no sample came back")?;
    println!("{} {count} {} {}", read.view().value(), summary.view().mean(), first.view().value());
    Ok(())
}
