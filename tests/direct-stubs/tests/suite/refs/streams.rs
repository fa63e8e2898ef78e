//! Calls that tonic's own layers carry between generated stubs, streams and those of channels that choose: large messages go
//! past these layers.

use bytes::Bytes;
use tokio_stream::StreamExt;
use tollfree::pool::Pool;
use tollfree::{Balance, Channel, Generated, Way};
use tonic::{Code, Request, Status};

use super::freight::direct::{Act, Cargo, Carrier, FreightClient, FreightServer};
use super::freight::pattern;
use super::lab::{Lab, Served, THRESHOLD, in_time, server, until_all_is_free};

const LEN: usize = 1 << 20;
const RETRIES: &str = r#"{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 3, "initialBackoff": "0.001s",
    "maxBackoff": "0.01s", "backoffMultiplier": 2, "retryableStatusCodes": ["DATA_LOSS"]}}]}"#;

async fn serve(lab: &Lab, pool: &Pool) -> Served {
    lab.serve(server(Some(pool)).add_service(FreightServer::new(Carrier::new(Some(pool.clone()))))).await
}

fn pooled(pool: &Pool, seed: usize, len: usize) -> Bytes {
    pool.copy_from_slice(&pattern(seed, len)).unwrap().into()
}

fn is_same(one: &Bytes, other: &Bytes) -> bool {
    (one.as_ptr(), one.len()) == (other.as_ptr(), other.len())
}

/// One call of each kind with payloads that lie in the pool, which come back as they are.
async fn all_kinds_where_they_lie(channel: &Channel, pool: &Pool) {
    let mut client = FreightClient::new(channel.clone());
    let body = pooled(pool, 1, LEN);
    let cargo = Cargo { body: body.clone(), number: 3, ..Cargo::default() };
    let echo = client.unary(cargo.clone()).await.unwrap().into_inner();
    assert!(is_same(&echo.body, &body), "unary");
    let down = client.down(cargo.clone()).await.unwrap().into_inner();
    let down: Vec<_> = down.map(Result::unwrap).collect().await;
    assert!(down.len() == 3 && down.iter().all(|cargo| is_same(&cargo.body, &body)), "down");
    // Short ones between them, which pass through tonic.
    let short = Cargo { body: pattern(2, 100).into(), ..Cargo::default() };
    let cargos = [short.clone(), cargo.clone(), short.clone(), short, cargo.clone(), cargo];
    let up = client.up(tokio_stream::iter(cargos.clone())).await.unwrap().into_inner();
    assert!(up.parts.iter().zip(&cargos).all(|(part, cargo)| *part == cargo.body), "up");
    assert!([1, 4, 5].into_iter().all(|idx: usize| is_same(&up.parts[idx], &body)), "up");
    let both = client.both(tokio_stream::iter(cargos.clone())).await.unwrap().into_inner();
    let both: Vec<_> = both.map(Result::unwrap).collect().await;
    assert!(
        both == cargos && [1, 4, 5].into_iter().all(|idx: usize| is_same(&both[idx].body, &body)),
        "both"
    );
}

#[tokio::test]
async fn no_kind_of_call_copies_what_lies_in_the_pool() {
    in_time(async {
        let lab = Lab::new();
        let (here, there) = (lab.join(), lab.join());
        let (one, other) = (serve(&lab, &there).await, serve(&lab, &there).await);
        let balanced = |served: &Served| served.builder(Some(&here)).balance(Balance::RoundRobin);
        for (what, builder) in [
            ("plain", one.builder(Some(&here))),
            ("balanced", balanced(&one).endpoint(&*other.uri)),
            ("with a service config", one.builder(Some(&here)).service_config(RETRIES)),
        ] {
            let channel = builder.connect().await.unwrap();
            assert_eq!(FreightClient::new(channel.clone()).way(), Way::Direct, "{what}");
            let served = || {
                let (one, other) = (one.payloads.counts(), other.payloads.counts());
                (one.sent_by_ref + other.sent_by_ref, one.copied_bytes + other.copied_bytes)
            };
            let (sent_before, copied_before) = served();
            for _ in 0..2 {
                all_kinds_where_they_lie(&channel, &here).await;
            }
            let counts = channel.payloads().counts();
            // Unary, down, up and both: 1, 1, 3 and 3 there, 1, 3, 1 and 3 back.
            assert_eq!((counts.sent_by_ref, counts.received_by_ref), (16, 16), "{what}: {counts:?}");
            assert_eq!(counts.sent_inline + counts.received_inline, 0, "{what}: {counts:?}");
            // The refs themselves, and what is not in refs.
            assert!(counts.copied_bytes < 8000, "{what}: {counts:?}");
            let (sent, copied) = served();
            assert_eq!(sent - sent_before, 16, "{what}");
            assert!(copied - copied_before < 8000, "{what}: {}", copied - copied_before);
        }
        one.stop().await;
        other.stop().await;
        until_all_is_free(&here).await;
    })
    .await;
}

#[tokio::test]
async fn a_client_with_an_interceptor_passes_streams_by_ref_too() {
    in_time(async {
        let lab = Lab::new();
        let (here, there) = (lab.join(), lab.join());
        let service =
            FreightServer::with_interceptor(Carrier::new(Some(there.clone())), |mut request: Request<()>| {
                // A reader that forgets what came along gets whole messages.
                if request.metadata().contains_key("forget") {
                    request = Request::from_parts(request.metadata().clone(), Default::default(), ());
                }
                Ok::<_, Status>(request)
            });
        let served = lab.serve(server(Some(&there)).add_service(service)).await;
        let channel = served.connect(Some(&here)).await;
        let body = pooled(&here, 1, LEN);
        for forgets in [false, true] {
            let note = move |mut request: Request<()>| {
                if forgets {
                    request.metadata_mut().insert("forget", "all".parse().unwrap());
                    request = Request::from_parts(request.metadata().clone(), Default::default(), ());
                }
                Ok::<_, Status>(request)
            };
            let mut client = FreightClient::with_interceptor(channel.clone(), note);
            let cargos = vec![Cargo { body: body.clone(), ..Cargo::default() }; 3];
            let both = client.both(tokio_stream::iter(cargos)).await.unwrap().into_inner();
            let both: Vec<_> = both.map(Result::unwrap).collect().await;
            assert!(both.len() == 3 && both.iter().all(|cargo| cargo.body == body), "{forgets}");
            assert_eq!(both.iter().all(|cargo| is_same(&cargo.body, &body)), !forgets);
        }
        drop(body);
        served.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_call_that_is_made_again_carries_its_payload_each_time() {
    in_time(async {
        let lab = Lab::new();
        let (here, there) = (lab.join(), lab.join());
        let served = serve(&lab, &there).await;
        let channel = served.builder(Some(&here)).service_config(RETRIES).connect().await.unwrap();
        let mut client = FreightClient::new(channel.clone());
        // Short enough to be kept.
        let cargo = Cargo { body: pooled(&here, 1, 100_000), act: Act::Fail.into(), ..Cargo::default() };
        let status = client.unary(cargo).await.unwrap_err();
        assert_eq!(status.code(), Code::DataLoss);
        assert_eq!(served.payloads.counts().received_by_ref, 3);
        assert_eq!(channel.payloads().counts().sent_by_ref, 3);
        assert!(served.payloads.counts().copied_bytes < 2000, "{:?}", served.payloads);
        served.stop().await;
        until_all_is_free(&here).await;
    })
    .await;
}

#[tokio::test]
async fn a_call_that_its_server_refused_goes_to_the_next_with_its_payload() {
    in_time(async {
        let lab = Lab::new();
        let (here, there) = (lab.join(), lab.join());
        let (gone, stays) = (serve(&lab, &there).await, serve(&lab, &there).await);
        let uri = gone.uri.clone();
        let plain = gone.connect(Some(&here)).await;
        let both = gone.builder(Some(&here)).endpoint(&*stays.uri).connect().await.unwrap();
        let body = pooled(&here, 1, 100_000);
        let cargos = vec![Cargo { body: body.clone(), ..Cargo::default() }; 2];
        let up = async |channel: &Channel| {
            let up = FreightClient::new(channel.clone()).up(tokio_stream::iter(cargos.clone())).await;
            up.map(|up| up.into_inner().parts.iter().all(|part| is_same(part, &body)))
        };
        assert!(up(&plain).await.unwrap() && up(&both).await.unwrap());
        gone.stop().await;
        assert!(up(&both).await.unwrap(), "at the other server");
        // One that comes back at the same place.
        let server = server(Some(&there)).add_service(FreightServer::new(Carrier::default()));
        let address = uri.clone();
        let back = tokio::spawn(async move { server.serve(&address).await });
        let mut came = false;
        for _ in 0..3000 {
            came = up(&plain).await.is_ok_and(|is_same| is_same);
            if came {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert!(came, "at the one that came back");
        back.abort();
        stays.stop().await;
    })
    .await;
}

#[tokio::test]
async fn limits_hold_for_what_goes_past() {
    in_time(async {
        let lab = Lab::new();
        let (here, there) = (lab.join(), lab.join());
        let service = FreightServer::new(Carrier::new(Some(there.clone())));
        let limited =
            service.max_decoding_message_size(8 * THRESHOLD).max_encoding_message_size(4 * THRESHOLD);
        let served = lab.serve(server(Some(&there)).add_service(limited)).await;
        let channel = served.connect(Some(&here)).await;
        let cargo = |len| Cargo { body: pooled(&here, 1, len), number: 2, ..Cargo::default() };
        let both = async |client: &mut FreightClient<Channel>, cargo: Cargo| {
            let mut both = client.both(tokio_stream::iter([cargo])).await?.into_inner();
            both.message().await
        };
        let refused = |result: Result<Option<Cargo>, Status>, why: &str| {
            let status = result.unwrap_err();
            assert_eq!(status.code(), Code::OutOfRange, "{status}");
            assert!(status.message().contains(why), "{status}");
        };
        let mut client = FreightClient::new(channel.clone());
        assert!(both(&mut client, cargo(2 * THRESHOLD)).await.unwrap().is_some());
        refused(both(&mut client, cargo(6 * THRESHOLD)).await, "encoded message length too large");
        refused(both(&mut client, cargo(9 * THRESHOLD)).await, "decoded message length too large");
        let mut sends_less = FreightClient::new(channel.clone()).max_encoding_message_size(THRESHOLD);
        refused(both(&mut sends_less, cargo(2 * THRESHOLD)).await, "encoded message length too large");
        let mut takes_less = FreightClient::new(channel.clone()).max_decoding_message_size(THRESHOLD);
        refused(both(&mut takes_less, cargo(2 * THRESHOLD)).await, "decoded message length too large");
        let down = takes_less.down(cargo(2 * THRESHOLD)).await.unwrap().into_inner().message().await;
        refused(down, "decoded message length too large");
        drop((client, sends_less, takes_less, channel));
        served.stop().await;
        until_all_is_free(&here).await;
    })
    .await;
}
