//! A server's sessions take turns: a client with calls at hand is served as often as the others.
//!
//! What processes get of a processor is the kernel's to say. Here all calls are at hand before the server looks at any, so that it alone
//! decides which come next.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Mutex, mpsc};
use std::task::Poll;
use std::time::Duration;

use tollfree::{Channel, Server};
use tollfree_stubs::greeter::greeter_client::GreeterClient;
use tollfree_stubs::greeter::greeter_server::{Greeter, GreeterServer};
use tollfree_stubs::greeter::{HelloReply, HelloRequest};
use tonic::{Request, Response, Status};

const CLIENT_COUNT: usize = 8;
/// Calls of each client that are at hand at once. They find room in its ring.
const CALL_COUNT: usize = 120;
const LONG: Duration = Duration::from_secs(60);

/// Whose calls were served, in order.
static SERVED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Notes whose call it is, and keeps the server's only thread where the name says so.
struct Noting {
    holds: mpsc::Sender<()>,
    until: Mutex<mpsc::Receiver<()>>,
}

#[tonic::async_trait]
impl Greeter for Noting {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let text = request.into_inner().name;
        match text.parse() {
            Ok(client) => SERVED.lock().unwrap().push(client),
            Err(_) if text == "hold" => {
                self.holds.send(()).unwrap();
                self.until.lock().unwrap().recv_timeout(LONG).unwrap();
            }
            Err(_) => {}
        }
        Ok(Response::new(HelloReply { text }))
    }
}

type Answer = Pin<Box<dyn Future<Output = ()>>>;

fn call(client: &GreeterClient<Channel>, name: String) -> Answer {
    let mut client = client.clone();
    Box::pin(async move {
        let reply = client.hello(HelloRequest { name: name.clone() }).await.unwrap();
        assert_eq!(reply.into_inner().text, name);
    })
}

#[test]
fn clients_with_calls_at_hand_are_served_alike() {
    let dir = tempfile::tempdir().unwrap();
    let uri = format!("shm://{}", dir.path().join("turns.sock").display());
    let (holds, held) = mpsc::channel();
    let (release, until) = mpsc::channel();
    let server =
        Server::builder().add_service(GreeterServer::new(Noting { holds, until: Mutex::new(until) }));
    let (address, (stop, stopped)) = (uri.clone(), tokio::sync::oneshot::channel::<()>());
    let serving = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(server.serve_with_shutdown(&address, async { drop(stopped.await) })).unwrap();
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let connect = async || loop {
            // The server's thread may not have bound its socket yet.
            match Channel::connect(&uri).await {
                Ok(channel) => return GreeterClient::new(channel),
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        let mut clients = Vec::new();
        for _ in 0..CLIENT_COUNT {
            let client = tokio::time::timeout(LONG, connect()).await.expect("the server listens");
            call(&client, "begins".to_owned()).await;
            clients.push(client);
        }
        let holding = connect().await;
        let mut holding = call(&holding, "hold".to_owned());
        let _ = poll_fn(|cx| Poll::Ready(holding.as_mut().poll(cx))).await;
        let held = tokio::task::spawn_blocking(move || held.recv_timeout(LONG));
        held.await.unwrap().expect("the server's thread is kept");
        let mut calls = Vec::new();
        for _ in 0..CALL_COUNT {
            calls.extend(clients.iter().enumerate().map(|(idx, client)| call(client, idx.to_string())));
        }
        // Once to say what is to be said, and again to send what was held back for more.
        for _ in 0..3 {
            let polled = poll_fn(|cx| {
                calls
                    .iter_mut()
                    .for_each(|call| assert!(call.as_mut().poll(cx).is_pending(), "nobody serves"));
                Poll::Ready(())
            });
            // All of them, however many: a task is else stopped after some.
            tokio::task::unconstrained(polled).await;
        }
        assert!(SERVED.lock().unwrap().is_empty());
        release.send(()).unwrap();
        let all = async {
            holding.await;
            for call in calls {
                call.await;
            }
        };
        tokio::time::timeout(LONG, all).await.expect("all are served");
    });
    drop(stop);
    serving.join().unwrap();
    let served = SERVED.lock().unwrap();
    assert_eq!(served.len(), CLIENT_COUNT * CALL_COUNT);
    let mut counts = [0; CLIENT_COUNT];
    for client in served.iter() {
        counts[*client] += 1;
        if counts[*client] == CALL_COUNT {
            break;
        }
    }
    let least = counts.iter().min().unwrap();
    assert!(least * 10 >= CALL_COUNT * 8, "when one had all its calls served, they had {counts:?}");
}
