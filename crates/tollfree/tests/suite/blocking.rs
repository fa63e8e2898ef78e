//! Calls that block their thread, and threads that serve.

use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tollfree::blocking::{Channel, Streaming};
use tollfree::{Server, WaitPolicy};
use tonic::Code;
use tonic_health::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_health::server::HealthReporter;

/// A thread that serves the health service until it is told to stop.
struct Worker {
    uri: String,
    reporter: HealthReporter,
    stop: tokio::sync::oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Worker {
    fn start(uri: &str) -> Worker {
        let (reporter, service) = tonic_health::server::health_reporter();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let address = uri.to_owned();
        let (ready, listening) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let path = address.strip_prefix("shm://").unwrap().to_owned();
            let signal = async move {
                while !std::path::Path::new(&path).exists() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                ready.send(()).unwrap();
                let _ = stopped.await;
            };
            Server::builder().add_service(service).serve_blocking_with_shutdown(&address, signal).unwrap();
        });
        listening.recv().expect("it listens");
        Worker { uri: uri.to_owned(), reporter, stop, thread }
    }

    fn channel(&self) -> Channel {
        Channel::connect(&self.uri).unwrap()
    }

    fn stop(self) {
        drop(self.stop);
        self.thread.join().unwrap();
    }
}

fn address() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let uri = format!("shm://{}", dir.path().join("worker.sock").display());
    (dir, uri)
}

fn check(channel: &Channel, service: &str) -> Result<HealthCheckResponse, tonic::Status> {
    let mut client = HealthClient::new(channel.get_ref().clone());
    let request = HealthCheckRequest { service: service.to_owned() };
    channel.run(client.check(request)).map(|reply| reply.into_inner())
}

#[test]
fn calls_return_their_replies_and_statuses() {
    let (_dir, uri) = address();
    let worker = Worker::start(&uri);
    let channel = worker.channel();
    assert!(channel.path().to_string().contains("shared memory"), "{}", channel.path());
    for _ in 0..1000 {
        assert_eq!(check(&channel, "").unwrap().status, ServingStatus::Serving as i32);
    }
    assert_eq!(check(&channel, "nobody").unwrap_err().code(), Code::NotFound);
    drop(channel);
    worker.stop();
}

#[test]
fn a_server_that_was_replaced_while_nobody_called_is_called_anew() {
    let (_dir, uri) = address();
    let worker = Worker::start(&uri);
    let channel = worker.channel();
    check(&channel, "").unwrap();
    worker.stop();
    let worker = Worker::start(&uri);
    check(&channel, "")
        .expect("the call goes to the new server, since the old one's end was there to be seen");
    drop(channel);
    worker.stop();
}

#[test]
fn nobody_there_is_an_error_and_not_a_hang() {
    let (_dir, uri) = address();
    let error = Channel::connect(&uri).unwrap_err();
    assert!(error.to_string().contains("worker.sock"), "{error}");
    let worker = Worker::start(&uri);
    let channel = worker.channel();
    worker.stop();
    assert_eq!(check(&channel, "").unwrap_err().code(), Code::Unavailable);
}

#[test]
fn streams_block_for_the_next_message_and_time_out() {
    let (_dir, uri) = address();
    let worker = Worker::start(&uri);
    let channel = worker.channel();
    let mut client = HealthClient::new(channel.get_ref().clone());
    let mut request = tonic::Request::new(HealthCheckRequest { service: String::new() });
    request.set_timeout(Duration::from_secs(1));
    let watched = channel.run(client.watch(request)).unwrap().into_inner();
    let mut messages = Streaming::new(channel.clone(), watched);
    let first = messages.next().expect("the present state comes at once").unwrap();
    assert_eq!(first.status, ServingStatus::Serving as i32);
    let reporter = worker.reporter.clone();
    let setter = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(reporter.set_service_status("", ServingStatus::NotServing));
    });
    let second = messages.message().unwrap().expect("the change comes");
    assert_eq!(second.status, ServingStatus::NotServing as i32);
    setter.join().unwrap();
    let began = Instant::now();
    let late = messages.message().unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded);
    assert!(began.elapsed() < Duration::from_secs(20));
    drop((messages, client, channel));
    worker.stop();
}

#[test]
fn threads_can_share_a_channel_or_have_their_own() {
    let (_dir, uri) = address();
    let worker = Worker::start(&uri);
    let shared = worker.channel();
    std::thread::scope(|scope| {
        for nth in 0..4 {
            let channel = if nth < 2 { shared.clone() } else { worker.channel() };
            scope.spawn(move || {
                for _ in 0..200 {
                    check(&channel, "").unwrap();
                }
            });
        }
    });
    drop(shared);
    worker.stop();
}

#[test]
fn one_that_must_not_spin_parks() {
    let (_dir, uri) = address();
    let worker = Worker::start(&uri);
    let channel = tollfree::Channel::builder(&uri).wait(WaitPolicy::Park).connect_blocking().unwrap();
    for _ in 0..100 {
        check(&channel, "").unwrap();
    }
    drop(channel);
    worker.stop();
}
