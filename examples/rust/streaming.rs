//! All four kinds of calls, server and client in one process: `cargo run --example streaming`.

use std::pin::Pin;

use tokio_stream::{Stream, StreamExt};
use tollfree_stubs::sensors::sensors_client::SensorsClient;
use tollfree_stubs::sensors::sensors_server::{Sensors, SensorsServer};
use tollfree_stubs::sensors::{Sample, Sensor, Summary};
use tonic::{Request, Response, Status, Streaming};

type Samples = Pin<Box<dyn Stream<Item = Result<Sample, Status>> + Send>>;

struct Station;

#[tonic::async_trait]
impl Sensors for Station {
    async fn read(&self, request: Request<Sensor>) -> Result<Response<Sample>, Status> {
        match request.into_inner().name.as_str() {
            "outside" => Ok(Response::new(Sample { value: 11.5 })),
            name => Err(Status::not_found(format!("no sensor is called {name}"))),
        }
    }

    type WatchStream = Samples;

    async fn watch(&self, _: Request<Sensor>) -> Result<Response<Samples>, Status> {
        let samples = (0..).map(|step| Ok(Sample { value: 11.5 + f64::from(step) }));
        Ok(Response::new(Box::pin(tokio_stream::iter(samples))))
    }

    async fn report(&self, request: Request<Streaming<Sample>>) -> Result<Response<Summary>, Status> {
        let mut samples = request.into_inner();
        let (mut count, mut sum) = (0, 0.0);
        while let Some(sample) = samples.message().await? {
            count += 1;
            sum += sample.value;
        }
        Ok(Response::new(Summary { count, mean: sum / f64::from(count.max(1)) }))
    }

    type CorrectStream = Samples;

    async fn correct(&self, request: Request<Streaming<Sample>>) -> Result<Response<Samples>, Status> {
        let corrected = request.into_inner().map(|sample| Ok(Sample { value: sample?.value - 0.5 }));
        Ok(Response::new(Box::pin(corrected)))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let address = format!("shm://{}/sensors.sock", directory.path().display());
    let server = tollfree::Server::builder().add_service(SensorsServer::new(Station));
    let serving = address.clone();
    tokio::spawn(async move { server.serve(&serving).await.expect("the directory is ours") });
    // The first call waits until the server is there.
    let channel = tollfree::Channel::builder(address).wait_for_ready(true).connect_lazy()?;
    let mut client = SensorsClient::new(channel);

    let outside = Sensor { name: "outside".into() };
    let sample = client.read(outside.clone()).await?.into_inner();
    println!("read: {}", sample.value);
    let missing = client.read(Sensor { name: "attic".into() }).await.expect_err("there is none");
    println!("read: {}: {}", missing.code(), missing.message());

    let mut watched = client.watch(outside).await?.into_inner();
    for _ in 0..3 {
        if let Some(sample) = watched.message().await? {
            println!("watch: {}", sample.value);
        }
    }
    drop(watched); // cancels the call at the server

    let samples = [1.0, 2.0, 6.0].map(|value| Sample { value });
    let summary = client.report(tokio_stream::iter(samples)).await?.into_inner();
    println!("report: {} samples, mean {}", summary.count, summary.mean);

    let mut corrected = client.correct(tokio_stream::iter(samples)).await?.into_inner();
    while let Some(sample) = corrected.message().await? {
        println!("correct: {}", sample.value);
    }
    Ok(())
}
