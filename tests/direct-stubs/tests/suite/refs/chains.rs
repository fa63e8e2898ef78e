//! Payloads that go on from hop to hop, and that outlive what brought them.

use bytes::Bytes;
use tollfree::pool::Payload;
use tonic::{Request, Response, Status, Streaming};

use super::freight::direct::{Act, Cargo, Carrier, Freight, FreightClient, FreightServer};
use super::freight::pattern;
use super::lab::{Lab, in_time, server, until, until_all_is_free};

/// Passes calls on, and looks at nothing.
struct Proxy(FreightClient<tollfree::Channel>);

#[tonic::async_trait]
impl Freight for Proxy {
    async fn unary(&self, request: Request<Cargo>) -> Result<Response<Cargo>, Status> {
        self.0.clone().unary(request.into_inner()).await
    }

    type DownStream = Streaming<Cargo>;

    async fn down(&self, request: Request<Cargo>) -> Result<Response<Streaming<Cargo>>, Status> {
        self.0.clone().down(request.into_inner()).await
    }

    async fn up(&self, _: Request<Streaming<Cargo>>) -> Result<Response<Cargo>, Status> {
        Err(Status::unimplemented("no test asks for it"))
    }

    type BothStream = Streaming<Cargo>;

    async fn both(&self, _: Request<Streaming<Cargo>>) -> Result<Response<Streaming<Cargo>>, Status> {
        Err(Status::unimplemented("no test asks for it"))
    }
}

#[tokio::test]
async fn a_payload_goes_through_proxies_and_back_untouched_and_nobody_copies_it() {
    in_time(async {
        let lab = Lab::new();
        let here = lab.join();
        let last = lab.join();
        let mut servers =
            vec![lab.serve(server(Some(&last)).add_service(FreightServer::new(Carrier::default()))).await];
        let mut members = vec![last];
        let mut channels = Vec::new();
        for _ in 0..5 {
            let member = lab.join();
            let next = servers.last().unwrap().connect(Some(&member)).await;
            channels.push(next.clone());
            let proxy = FreightServer::new(Proxy(FreightClient::new(next)));
            servers.push(lab.serve(server(Some(&member)).add_service(proxy)).await);
            members.push(member);
        }
        let channel = servers.last().unwrap().connect(Some(&here)).await;
        let mut client = FreightClient::new(channel);
        let body: Bytes = here.copy_from_slice(&pattern(1, 1 << 20)).unwrap().into();
        for _ in 0..3 {
            let echo = client.unary(Cargo { body: body.clone(), ..Cargo::default() }).await.unwrap();
            assert_eq!(echo.into_inner().body.as_ptr(), body.as_ptr(), "through six servers and back");
        }
        for member in &members {
            assert_eq!(member.counts().copied_bytes, 0);
        }
        for payloads in servers
            .iter()
            .map(|served| &served.payloads)
            .chain(&channels.iter().map(|c| c.payloads()).collect::<Vec<_>>())
        {
            let counts = payloads.counts();
            assert_eq!((counts.sent_by_ref, counts.sent_inline), (3, 0));
            assert!(counts.copied_bytes < 3000, "{counts:?}");
        }
        drop(body);
        until_all_is_free(&here).await;
    })
    .await;
}

#[tokio::test]
async fn bytes_outlive_call_session_server_and_member() {
    in_time(async {
        let lab = Lab::new();
        let here = lab.join();
        let there = lab.join();
        let served = lab
            .serve(server(Some(&there)).add_service(FreightServer::new(Carrier::new(Some(there.clone())))))
            .await;
        let channel = served.connect(Some(&here)).await;
        let mut client = FreightClient::new(channel.clone());
        let make = Cargo { number: 200_000, act: Act::Make.into(), ..Cargo::default() };
        let made = client.unary(make).await.unwrap().into_inner().body;
        assert!(here.ref_of(&made).is_some_and(|made| !made.is_own()), "it lies with the server");
        until("the server holds none of it any more", || there.usage().limbo_count == 1).await;
        served.stop().await;
        drop((channel, client));
        assert!(made.iter().all(|byte| *byte == 5));
        drop(there);
        until("the server's member is gone", || here.usage().import_count == 0).await;
        assert!(made.len() == 200_000 && made.iter().all(|byte| *byte == 5), "the mapping stays");
        assert!(here.ref_of(&made).is_none(), "though nobody else could get at it now");

        // It can still be passed on: by value, that is, by a copy in this member's own memory.
        let third = lab.join();
        let served =
            lab.serve(server(Some(&third)).add_service(FreightServer::new(Carrier::default()))).await;
        let channel = served.connect(Some(&here)).await;
        let cargo = Cargo { body: made.clone(), ..Cargo::default() };
        let echo = FreightClient::new(channel.clone()).unary(cargo).await.unwrap().into_inner();
        assert!(echo.body == made && here.ref_of(&echo.body).is_some_and(|echo| echo.is_own()));
        drop((made, echo));
        until_all_is_free(&here).await;
    })
    .await;
}

#[tokio::test]
async fn a_server_keeps_what_a_client_sent_for_as_long_as_it_likes() {
    in_time(async {
        let lab = Lab::new();
        let (here, there) = (lab.join(), lab.join());
        let served =
            lab.serve(server(Some(&there)).add_service(FreightServer::new(Carrier::default()))).await;
        let channel = served.connect(Some(&here)).await;
        let mut client = FreightClient::new(channel);
        let keep = |body: Bytes| Cargo { body, act: Act::Keep.into(), ..Cargo::default() };
        for seed in 0..4 {
            let body: Bytes = here.copy_from_slice(&pattern(seed, 100_000)).unwrap().into();
            client.unary(keep(body)).await.unwrap();
        }
        drop(client);
        here.sweep();
        assert_eq!(here.usage().limbo_count, 4, "all are held there, and paid for here");
        // What is held is never used again: new bytes go elsewhere.
        let others: Vec<_> = (0..20).map(|_| here.copy_from_slice(&[1; 100_000]).unwrap()).collect();
        let channel = served.connect(Some(&here)).await;
        let mut client = FreightClient::new(channel);
        for seed in (0..4).rev() {
            let give = Cargo { act: Act::Give.into(), ..Cargo::default() };
            let kept = client.unary(give).await.unwrap().into_inner().body;
            assert!(kept == pattern(seed, 100_000), "the {seed}th");
        }
        drop(others);
        until_all_is_free(&here).await;
    })
    .await;
}

#[tokio::test]
async fn who_writes_to_what_it_received_gets_copies_of_pages_and_others_keep_what_they_saw() {
    in_time(async {
        let lab = Lab::new();
        let (here, there) = (lab.join(), lab.join());
        let served =
            lab.serve(server(Some(&there)).add_service(FreightServer::new(Carrier::default()))).await;
        let channel = served.connect(Some(&here)).await;
        let mut client = FreightClient::new(channel);
        let body: Bytes = here.copy_from_slice(&pattern(1, 300_000)).unwrap().into();
        let echo = client.unary(Cargo { body: body.clone(), ..Cargo::default() }).await.unwrap().into_inner();
        let mut mine = Payload::from(here.ref_of(&echo.body).unwrap());
        let before = here.counts().copied_bytes;
        mine.make_mut(10_000..10_005).unwrap().copy_from_slice(b"write");
        assert_eq!(here.counts().copied_bytes - before, 4096, "one page");
        assert!(body == pattern(1, 300_000) && echo.body == body, "a writer's writes are its own");
        let mut written = pattern(1, 300_000);
        written[10_000..10_005].copy_from_slice(b"write");
        assert!(mine == *written);
        let sent =
            Cargo { parts: mine.refs().iter().cloned().map(Bytes::from).collect(), ..Cargo::default() };
        let parts = client.unary(sent).await.unwrap().into_inner().parts;
        assert!(parts.concat() == written);
    })
    .await;
}

#[tokio::test]
async fn an_extent_that_is_new_to_the_receiver_is_fetched_by_the_call() {
    in_time(async {
        let lab = Lab::new();
        let (here, there) = (lab.join(), lab.join());
        let served =
            lab.serve(server(Some(&there)).add_service(FreightServer::new(Carrier::default()))).await;
        let channel = served.connect(Some(&here)).await;
        let mut client = FreightClient::new(channel);
        // More than a batch: each is an extent of its own, which the server has never seen.
        let mut kept = Vec::new();
        for seed in 0..3 {
            let body: Bytes = here.copy_from_slice(&pattern(seed, 10 << 20)).unwrap().into();
            let imports = there.usage().import_count;
            let fresh = Cargo { body: body.slice(..1 << 20), ..Cargo::default() };
            assert!(client.unary(fresh).await.unwrap().into_inner().body == body[..1 << 20]);
            assert!(there.usage().import_count >= imports.max(1));
            kept.push(body);
        }
        assert!(there.usage().import_count >= 2);
    })
    .await;
}
