//! What handlers learn of their callers, and that nobody else can say it.

use tollfree_stubs::probe::Ask;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tollfree_stubs::probe::probe_server::ProbeServer;
use tonic::Request;

use super::lab::Lab;
use super::probe::Probe;

/// What a handler was told by Tollfree: callers, and headers that only a gateway may send.
pub(crate) fn callers(headers: &[String]) -> Vec<&String> {
    headers.iter().filter(|line| line.starts_with("tollfree-") || line.starts_with("caller: ")).collect()
}

#[tokio::test]
async fn handlers_are_told_the_address_and_nothing_forged() {
    let lab = Lab::start("").await;
    let _attached = lab.attach("default").await;
    let mut request = Request::new(Ask::default());
    for (name, value) in [
        ("tollfree-client-address", "192.0.2.1:1"),
        ("tollfree-client-subject", "CN=admin"),
        ("tollfree-offer", "1"),
        ("x-kept", "yes"),
    ] {
        request.metadata_mut().insert(name, value.parse().unwrap());
    }
    let answer = lab.client().await.unary(request).await.unwrap().into_inner();
    let [caller] = &callers(&answer.headers)[..] else { panic!("{:?}", answer.headers) };
    assert!(caller.contains("address: Inet(127.0.0.1:") && caller.contains("subject: None"), "{caller}");
    assert!(answer.headers.contains(&"x-kept: yes".to_owned()), "{:?}", answer.headers);
}

/// The same headers, by clients of an address of the process's own: there they are what any client may write.
#[tokio::test]
async fn nobody_but_a_gateway_names_a_caller() {
    let lab = Lab::start("").await;
    let uri = format!("shm://{}", lab.file("own.sock").display());
    let server = tollfree::Server::builder().add_service(ProbeServer::new(Probe::default()));
    let serving = tokio::spawn_for_test(server.serve(uri.clone()));
    let channel = tollfree::Channel::builder(&uri).wait_for_ready(true).connect_lazy().unwrap();
    let mut client = ProbeClient::new(channel);
    for _ in 0..3 {
        let mut request = Request::new(Ask::default());
        request.metadata_mut().insert("tollfree-client-address", "192.0.2.1:1".parse().unwrap());
        let headers = client.unary(request).await.unwrap().into_inner().headers;
        assert!(!headers.iter().any(|line| line.starts_with("caller: ")), "{headers:?}");
    }
    serving.abort();
}

#[tokio::test]
async fn timeouts_are_passed_on_shorter() {
    let lab = Lab::start("").await;
    let _attached = lab.attach("default").await;
    let mut request = Request::new(Ask::default());
    request.set_timeout(std::time::Duration::from_secs(90));
    let answer = lab.client().await.unary(request).await.unwrap().into_inner();
    let timeout =
        answer.headers.iter().find_map(|line| line.strip_prefix("grpc-timeout: ")).expect("a timeout");
    let nanos: u64 = match timeout.split_at(timeout.len() - 1) {
        (count, "n") => count.parse().unwrap(),
        (count, "u") => count.parse::<u64>().unwrap() * 1_000,
        (count, "m") => count.parse::<u64>().unwrap() * 1_000_000,
        other => panic!("{other:?}"),
    };
    assert!(nanos < 90_000_000_000, "{timeout}");
}

#[tokio::test]
async fn the_user_agent_is_the_clients() {
    let lab = Lab::start("").await;
    let _attached = lab.attach("default").await;
    let answer = lab.client().await.unary(Ask::default()).await.unwrap().into_inner();
    let agents: Vec<_> = answer.headers.iter().filter(|line| line.starts_with("user-agent: ")).collect();
    assert!(agents.len() == 1 && agents[0].starts_with("user-agent: tonic/"), "{agents:?}");
}
