//! A server of all four kinds of calls that takes prost's structs. `sensors_objects.rs` is the same with objects.
//! `cargo run --example sensors`.

use std::pin::Pin;

use tokio_stream::{Stream, StreamExt as _};
use tollfree::{Channel, Server};
use tollfree_direct_stubs::sensors::sensors_client::SensorsClient;
use tollfree_direct_stubs::sensors::sensors_server::{Sensors, SensorsServer};
use tollfree_direct_stubs::sensors::{Sample, Sensor, Summary};
use tonic::{Request, Response, Status, Streaming};

type Samples = Pin<Box<dyn Stream<Item = Result<Sample, Status>> + Send>>;

struct Station;

#[tonic::async_trait]
impl Sensors for Station {
    type WatchStream = Samples;
    type CorrectStream = Samples;

    async fn read(&self, request: Request<Sensor>) -> Result<Response<Sample>, Status> {
        let value = request.get_ref().name.len() as f64;
        Ok(Response::new(Sample { value }))
    }

    async fn watch(&self, request: Request<Sensor>) -> Result<Response<Samples>, Status> {
        let count = request.get_ref().name.len();
        let samples = (0..count).map(|value| Ok(Sample { value: value as f64 }));
        Ok(Response::new(Box::pin(tokio_stream::iter(samples))))
    }

    async fn report(&self, request: Request<Streaming<Sample>>) -> Result<Response<Summary>, Status> {
        let (mut samples, mut count, mut sum) = (request.into_inner(), 0, 0.0);
        while let Some(sample) = samples.message().await? {
            count += 1;
            sum += sample.value;
        }
        let mean = sum / f64::from(count);
        Ok(Response::new(Summary { count, mean }))
    }

    async fn correct(&self, request: Request<Streaming<Sample>>) -> Result<Response<Samples>, Status> {
        let corrected = request.into_inner().map(|sample| {
            let value = sample?.value + 0.5;
            Ok(Sample { value })
        });
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
    let read = client.read(Sensor { name: "north".into() }).await?.into_inner();
    let mut watched = client.watch(Sensor { name: "north".into() }).await?.into_inner();
    let mut count = 0;
    while watched.message().await?.is_some() {
        count += 1;
    }
    let samples = [1.0, 2.0].map(|value| Sample { value });
    let summary = client.report(tokio_stream::iter(samples)).await?.into_inner();
    let samples = [1.0, 2.0].map(|value| Sample { value });
    let mut corrected = client.correct(tokio_stream::iter(samples)).await?.into_inner();
    let first = corrected.message().await?.ok_or("no sample came back")?;
    println!("{} {count} {} {}", read.value, summary.mean, first.value);
    Ok(())
}
