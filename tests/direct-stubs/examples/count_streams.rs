//! One thread that is client and server: what a small message of a stream costs. Meant to be counted, as `count` is (`make bench-check`).
//!
//! `cargo run --release -p tollfree-direct-stubs --example count_streams -- stubs-|direct-down|up|both [MESSAGES]`
//!
//! `down` and `up` are one call with that many messages in its one direction; in `both` each message is answered before the next.

use std::time::{Duration, Instant};

use tokio_stream::{Stream, StreamExt, iter};
use tollfree::{Channel, Server, WaitPolicy};
use tollfree_direct_stubs::sensors::sensors_server::SensorsServer as DirectServer;
use tollfree_stubs::sensors::sensors_server::SensorsServer as StubsServer;
use tonic::{Request, Response, Status, Streaming};

/// What each message says.
const VALUE: f64 = 1.5;

/// Answers as it is asked.
struct Steady;

/// The same of both generators' stubs: the service, and a client's calls.
macro_rules! of {
    ($level:ident, $generated:ident) => {
        mod $level {
            use super::*;
            use $generated::sensors::sensors_client::SensorsClient;
            use $generated::sensors::sensors_server::Sensors;
            use $generated::sensors::{Sample, Sensor, Summary};

            type Samples = std::pin::Pin<Box<dyn Stream<Item = Result<Sample, Status>> + Send>>;

            #[tonic::async_trait]
            impl Sensors for Steady {
                type WatchStream = Samples;
                type CorrectStream = Samples;

                async fn read(&self, _: Request<Sensor>) -> Result<Response<Sample>, Status> {
                    Ok(Response::new(Sample { value: VALUE }))
                }

                async fn watch(&self, request: Request<Sensor>) -> Result<Response<Samples>, Status> {
                    let count: u32 = request.get_ref().name.parse().expect("a number of messages");
                    Ok(Response::new(Box::pin(iter((0..count).map(|_| Ok(Sample { value: VALUE }))))))
                }

                async fn report(
                    &self,
                    request: Request<Streaming<Sample>>,
                ) -> Result<Response<Summary>, Status> {
                    let (mut samples, mut count, mut sum) = (request.into_inner(), 0, 0.0);
                    while let Some(sample) = samples.message().await? {
                        (count, sum) = (count + 1, sum + sample.value);
                    }
                    Ok(Response::new(Summary { count, mean: sum / f64::from(count) }))
                }

                async fn correct(
                    &self,
                    request: Request<Streaming<Sample>>,
                ) -> Result<Response<Samples>, Status> {
                    Ok(Response::new(Box::pin(request.into_inner())))
                }
            }

            pub(super) async fn call(channel: Channel, way: &str, count: u32) {
                let mut client = SensorsClient::new(channel);
                match way {
                    "down" => {
                        let asked = client.watch(Sensor { name: count.to_string() }).await;
                        let (mut samples, mut came) = (asked.expect("it is served").into_inner(), 0);
                        while let Some(sample) = samples.message().await.expect("it goes on") {
                            assert_eq!(sample.value, VALUE);
                            came += 1;
                        }
                        assert_eq!(came, count);
                    }
                    "up" => {
                        let samples = iter((0..count).map(|_| Sample { value: VALUE }));
                        let summary = client.report(samples).await.expect("it is served").into_inner();
                        assert_eq!((summary.count, summary.mean), (count, VALUE));
                    }
                    _ => {
                        let (sender, receiver) = tokio::sync::mpsc::channel(1);
                        let samples = tokio_stream::wrappers::ReceiverStream::new(receiver);
                        let mut answers = client.correct(samples).await.expect("it is served").into_inner();
                        for _ in 0..count {
                            sender.send(Sample { value: VALUE }).await.expect("the call goes on");
                            let answer = answers.next().await.expect("an answer").expect("it goes on");
                            assert_eq!(answer.value, VALUE);
                        }
                    }
                }
            }
        }
    };
}

of!(stubs, tollfree_stubs);
of!(direct, tollfree_direct_stubs);

async fn connect(uri: &str) -> Channel {
    loop {
        match Channel::builder(uri).wait(WaitPolicy::Poll).connect().await {
            Ok(channel) => return channel,
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

async fn call(uri: String, is_direct: bool, way: String, count: u32) -> Duration {
    let channel = connect(&uri).await;
    // From here on timers stand still, and nobody goes to sleep: the counts don't depend on how fast the machine is.
    tokio::time::pause();
    let began = Instant::now();
    match is_direct {
        true => direct::call(channel, &way, count).await,
        false => stubs::call(channel, &way, count).await,
    }
    began.elapsed()
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let what = std::env::args().nth(1).unwrap_or_default();
    let count: u32 = std::env::args().nth(2).and_then(|arg| arg.parse().ok()).unwrap_or(100_000);
    let server = Server::builder().wait(WaitPolicy::Poll);
    let (level, way) = what.split_once('-').unwrap_or_default();
    let server = match (level, way) {
        ("stubs", "down" | "up" | "both") => server.add_service(StubsServer::new(Steady)),
        ("direct", "down" | "up" | "both") => server.add_service(DirectServer::new(Steady)),
        _ => {
            eprintln!(
                "count_streams: say what: stubs (tonic's) or direct (our own), and a way, as stubs-down, direct-up or direct-both"
            );
            std::process::exit(2);
        }
    };
    let uri = format!("shm-abstract:tollfree-count-{}", std::process::id());
    let serving = uri.clone();
    tokio::spawn(async move { server.serve(&serving).await });
    // Both ends are tasks: a runtime's first future has its turn only after many of theirs.
    let took = tokio::spawn(call(uri, level == "direct", way.to_owned(), count)).await.expect("calls end");
    println!("{} ns a message", took.as_nanos() / u128::from(count));
}
