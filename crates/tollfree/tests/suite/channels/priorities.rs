//! Endpoints with priorities and weights.

use tollfree::{Balance, Change, ChannelBuilder, Endpoint, EndpointState};

use super::place::{Host, Place, Street, hello, in_time, until, until_ready};

fn at(uri: &str) -> Endpoint {
    Endpoint::from_shared(uri).unwrap()
}

#[tokio::test]
async fn calls_fail_over_to_the_next_priority_and_fall_back() {
    let street = Street::new();
    let uris = [street.shm("a"), street.http(), street.shm("c"), street.unix("d")];
    for balance in [Balance::RoundRobin, Balance::LeastOutstanding, Balance::PickFirst] {
        let hosts = ["a", "b", "c", "d"].map(Host::new);
        let mut places = Vec::new();
        for (uri, host) in uris.iter().zip(&hosts) {
            places.push(Some(Place::open(uri, host).await));
        }
        // Given in another order than that of their priorities.
        let endpoints = [at(&uris[2]).priority(1), at(&uris[0]), at(&uris[3]).priority(1), at(&uris[1])];
        let channel = ChannelBuilder::default().endpoints(endpoints).balance(balance).connect_lazy().unwrap();
        let mut names = Vec::new();
        for _ in 0..20 {
            names.push(hello(&channel, "x").await.unwrap());
        }
        assert!(names.iter().all(|name| name == "a" || name == "b"), "{names:?}");
        let path = channel.path();
        let listed: Vec<&str> = path.endpoints.iter().map(|endpoint| &*endpoint.address).collect();
        assert_eq!(listed, [&uris[0], &uris[1], &uris[2], &uris[3]], "by priority");
        for lower in &path.endpoints[2..] {
            assert_eq!(lower.state, EndpointState::Idle, "not connected without need");
        }
        for place in &mut places[..2] {
            place.take().unwrap().stop().await;
        }
        let mut names = Vec::new();
        for _ in 0..20 {
            names.push(hello(&channel, "y").await.expect("no call fails for it"));
        }
        assert!(names.iter().all(|name| name == "c" || name == "d"), "{names:?}");
        let both = names.contains(&"c".to_owned()) && names.contains(&"d".to_owned());
        assert!(both || balance == Balance::PickFirst, "{names:?}");
        places[1] = Some(Place::open(&uris[1], &hosts[1]).await);
        let back = async { while hello(&channel, "z").await.unwrap() != "b" {} };
        in_time("the higher priority is used again", back).await;
        for _ in 0..10 {
            assert_eq!(hello(&channel, "z").await.unwrap(), "b");
        }
    }
}

#[tokio::test]
async fn weights_divide_the_calls() {
    let street = Street::new();
    let uris = [street.shm("a"), street.shm("b"), street.shm("c")];
    let hosts = ["a", "b", "c"].map(Host::new);
    let mut places = Vec::new();
    for (uri, host) in uris.iter().zip(&hosts) {
        places.push(Place::open(uri, host).await);
    }
    let endpoints = [at(&uris[0]).weight(3), at(&uris[1]), at(&uris[2]).weight(0)];
    let builder = ChannelBuilder::default().endpoints(endpoints).balance(Balance::RoundRobin);
    let channel = builder.connect_lazy().unwrap();
    hello(&channel, "first").await.unwrap();
    until_ready(&channel, 2).await;
    for _ in 0..80 {
        hello(&channel, "x").await.unwrap();
    }
    assert_eq!(hosts.each_ref().map(|host| host.seen_count("x")), [60, 20, 0]);
    assert_eq!(channel.path().endpoints[2].state, EndpointState::Idle, "it is not needed");
}

#[tokio::test]
async fn priorities_may_change_and_connections_stay() {
    let street = Street::new();
    let uris = [street.shm("a"), street.shm("b")];
    let hosts = ["a", "b"].map(Host::new);
    let mut places = Vec::new();
    for (uri, host) in uris.iter().zip(&hosts) {
        places.push(Place::open(uri, host).await);
    }
    let builder = ChannelBuilder::default().balance(Balance::RoundRobin);
    let (channel, endpoints) = builder.balance_channel(4).unwrap();
    let insert = async |at: usize, priority| {
        let endpoint = self::at(&uris[at]).priority(priority);
        endpoints.send(Change::Insert(at, endpoint)).await.unwrap();
    };
    insert(0, 1).await;
    assert_eq!(hello(&channel, "x").await.unwrap(), "a");
    insert(1, 2).await;
    until("both are listed", || channel.path().endpoints.len() == 2).await;
    for _ in 0..10 {
        assert_eq!(hello(&channel, "x").await.unwrap(), "a");
    }
    insert(1, 0).await;
    let moved = async { while hello(&channel, "x").await.unwrap() != "b" {} };
    in_time("the higher priority is used", moved).await;
    let path = channel.path();
    assert_eq!(path.endpoints[1].address, uris[0]);
    assert_eq!(path.endpoints[1].state, EndpointState::Ready, "it stays connected");
}
