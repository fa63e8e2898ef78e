//! What handlers learn of their callers, and that nobody else can say it.

use tollfree_stubs::probe::Ask;
use tonic::Request;

use crate::lab::Lab;

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
    let ours: Vec<_> = answer.headers.iter().filter(|line| line.starts_with("tollfree-")).collect();
    assert_eq!(ours.len(), 1, "{ours:?}");
    assert!(ours[0].starts_with("tollfree-client-address: 127.0.0.1:"), "{ours:?}");
    assert!(answer.headers.contains(&"x-kept: yes".to_owned()), "{:?}", answer.headers);
}

#[tokio::test]
async fn timeouts_are_handed_on_shorter() {
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
