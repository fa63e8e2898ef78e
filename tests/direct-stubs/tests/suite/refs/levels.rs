//! What goes by ref, with which stubs, and that nothing else changes.

use bytes::Bytes;
use tollfree::pool::Pool;
use tollfree::{Channel, PayloadPath};

use super::freight::{direct, pattern, tonic_made};
use super::lab::{Lab, Served, THRESHOLD, in_time, server, until_all_is_free};

const LENS: [usize; 8] = [0, 1, 100, THRESHOLD - 1, THRESHOLD, THRESHOLD + 1, 3 * THRESHOLD, 700_000];

#[derive(Clone, Copy, Debug)]
enum Stubs {
    Direct,
    Tonic,
}

async fn serve(lab: &Lab, stubs: Stubs, pool: Option<&Pool>) -> Served {
    let server = server(pool);
    // tonic limits what it receives and sends to 4 MiB unless told otherwise, over any transport.
    lab.serve(match stubs {
        Stubs::Direct => server.add_service(
            direct::FreightServer::new(direct::Carrier::new(pool.cloned()))
                .max_decoding_message_size(usize::MAX),
        ),
        Stubs::Tonic => server.add_service(
            tonic_made::FreightServer::new(tonic_made::Carrier::new(pool.cloned()))
                .max_decoding_message_size(usize::MAX),
        ),
    })
    .await
}

async fn exercise(stubs: Stubs, channel: Channel) {
    match stubs {
        Stubs::Direct => direct::exercise(channel, &LENS).await,
        Stubs::Tonic => tonic_made::exercise(channel, &LENS).await,
    }
}

async fn all_kinds(client_stubs: Stubs, server_stubs: Stubs) {
    let lab = Lab::new();
    let (here, there) = (lab.join(), lab.join());
    let served = serve(&lab, server_stubs, Some(&there)).await;
    let channel = served.connect(Some(&here)).await;
    assert_eq!(channel.path().endpoints[0].payloads, PayloadPath::ByRef);
    assert!(channel.path().to_string().contains(", large payloads by ref"), "{}", channel.path());
    exercise(client_stubs, channel.clone()).await;
    let (sent, received) = (channel.payloads().counts(), served.payloads.counts());
    assert!(sent.sent_by_ref >= 15 && sent.received_by_ref >= 20, "{sent:?}");
    assert_eq!((sent.sent_inline, sent.received_inline, sent.pool_full, sent.refused_refs), (0, 0, 0, 0));
    assert_eq!(
        (sent.sent_by_ref, sent.sent_by_ref_bytes, sent.received_by_ref, sent.received_by_ref_bytes),
        (
            received.received_by_ref,
            received.received_by_ref_bytes,
            received.sent_by_ref,
            received.sent_by_ref_bytes
        ),
        "both ends count the same"
    );
    drop(channel);
    served.stop().await;
    until_all_is_free(&here).await;
    until_all_is_free(&there).await;
}

#[tokio::test]
async fn all_kinds_of_calls_from_direct_to_direct() {
    in_time(all_kinds(Stubs::Direct, Stubs::Direct)).await;
}

#[tokio::test]
async fn all_kinds_of_calls_from_direct_to_tonic() {
    in_time(all_kinds(Stubs::Direct, Stubs::Tonic)).await;
}

#[tokio::test]
async fn all_kinds_of_calls_from_tonic_to_direct() {
    in_time(all_kinds(Stubs::Tonic, Stubs::Direct)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_kinds_of_calls_from_tonic_to_tonic() {
    in_time(all_kinds(Stubs::Tonic, Stubs::Tonic)).await;
}

#[tokio::test]
async fn without_a_pool_in_common_the_same_bytes_go_inline() {
    in_time(async {
        let (lab, elsewhere) = (Lab::new(), Lab::new());
        let (one, other) = (&lab.pool, &elsewhere.pool);
        for (here, there, way) in [
            (None, None, PayloadPath::NoPool),
            (Some(one), None, PayloadPath::NoPoolThere),
            (None, Some(one), PayloadPath::NoPool),
            (Some(one), Some(other), PayloadPath::OtherPool),
        ] {
            let served = serve(&lab, Stubs::Direct, there).await;
            let channel = served.connect(here).await;
            assert_eq!(channel.path().endpoints[0].payloads, way);
            exercise(Stubs::Direct, channel.clone()).await;
            exercise(Stubs::Tonic, channel.clone()).await;
            let counts = channel.payloads().counts();
            assert_eq!((counts.sent_by_ref, counts.received_by_ref, counts.pool_full), (0, 0, 0), "{way:?}");
            assert!(counts.sent_inline >= 30 && counts.received_inline >= 40, "{way:?}: {counts:?}");
            // Into shared memory, by level 1 into the message first; out of it, and together.
            assert!(counts.copied_bytes > 2 * counts.sent_inline_bytes, "{way:?}: {counts:?}");
            served.stop().await;
        }
    })
    .await;
}

#[tokio::test]
async fn what_lies_in_the_pool_goes_there_and_back_without_a_copy() {
    in_time(async {
        let lab = Lab::new();
        let (here, there) = (lab.join(), lab.join());
        let served = serve(&lab, Stubs::Direct, Some(&there)).await;
        let channel = served.connect(Some(&here)).await;
        let mut client = direct::FreightClient::new(channel.clone());
        let mut buffer = here.buffer(1 << 20).unwrap();
        buffer.resize_zeroed(1 << 20).copy_from_slice(&pattern(1, 1 << 20));
        let body = Bytes::from(buffer.freeze().unwrap());
        let copied = (here.counts().copied_bytes, there.counts().copied_bytes);
        let part = body.slice(4097..500_000);
        let cargo = direct::Cargo { body: body.clone(), parts: vec![part.clone()], ..Default::default() };
        let echo = client.unary(cargo).await.unwrap().into_inner();
        // The server has mapped them elsewhere; here they are the same bytes at the same place.
        assert_eq!((echo.body.as_ptr(), echo.body.len()), (body.as_ptr(), body.len()));
        assert_eq!((echo.parts[0].as_ptr(), echo.parts[0].len()), (part.as_ptr(), part.len()));
        assert_eq!((here.counts().copied_bytes, there.counts().copied_bytes), copied);
        for counts in [channel.payloads().counts(), served.payloads.counts()] {
            assert_eq!((counts.sent_by_ref, counts.received_by_ref), (1, 1));
            assert_eq!(counts.sent_by_ref_bytes, (body.len() + part.len()) as u64);
            // The refs themselves, and what is not in refs.
            assert!(counts.copied_bytes < 1000, "{counts:?}");
        }
        drop((echo, body, part));
        until_all_is_free(&here).await;
    })
    .await;
}

#[tokio::test]
async fn what_lies_elsewhere_is_copied_once_into_the_pool() {
    in_time(async {
        let lab = Lab::new();
        let (here, there) = (lab.join(), lab.join());
        let served = serve(&lab, Stubs::Direct, Some(&there)).await;
        let channel = served.connect(Some(&here)).await;
        let mut client = direct::FreightClient::new(channel.clone());
        let len = 300_000;
        let cargo = direct::Cargo {
            body: pattern(1, len).into(),
            raw: pattern(2, len),
            text: "x".repeat(len),
            act: direct::Act::Keep.into(),
            ..Default::default()
        };
        client.unary(cargo).await.unwrap();
        let counts = channel.payloads().counts();
        assert_eq!(counts.sent_by_ref_bytes, 3 * len as u64);
        let copied = counts.copied_bytes - counts.sent_by_ref_bytes;
        assert!(copied < 1000, "{copied} bytes more than once");
        let give = direct::Cargo { act: direct::Act::Give.into(), ..Default::default() };
        let kept = client.unary(give).await.unwrap().into_inner().body;
        assert!(kept == pattern(1, len), "what the server kept after the call");
        assert!(here.ref_of(&kept).is_some_and(|kept| kept.is_own()), "it lies where this side put it");
    })
    .await;
}

#[test]
fn blocking_clients_pass_refs_too() {
    let runtime = tokio::uncounted::Runtime::new().unwrap();
    let lab = Lab::new();
    let (here, there) = (lab.join(), lab.join());
    let served = runtime.block_on(serve(&lab, Stubs::Direct, Some(&there)));
    let channel = served.builder(Some(&here)).connect_blocking().unwrap();
    let mut client =
        tollfree_direct_stubs::freight::freight_blocking_client::FreightBlockingClient::new(channel.clone());
    let body: Bytes = here.copy_from_slice(&pattern(1, 100_000)).unwrap().into();
    let echo = client.unary(direct::Cargo { body: body.clone(), ..Default::default() }).unwrap().into_inner();
    assert_eq!(echo.body.as_ptr(), body.as_ptr());
    assert_eq!(channel.payloads().counts().sent_by_ref, 1);
    drop((client, channel, echo, body));
    runtime.block_on(async {
        served.stop().await;
        until_all_is_free(&here).await;
    });
}

#[tokio::test]
async fn over_http2_the_same_bytes_go_inline_and_are_counted() {
    in_time(async {
        let lab = Lab::new();
        let (here, there) = (lab.join(), lab.join());
        let carrier = direct::FreightServer::new(direct::Carrier::new(Some(there.clone())))
            .max_decoding_message_size(usize::MAX);
        let uri = lab.uri().replace("shm://", "unix:");
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = server(Some(&there)).add_service(carrier);
        let address = uri.clone();
        let task = tokio::spawn(async move {
            serving.serve_with_shutdown(&address, async { drop(stopped.await) }).await.unwrap();
        });
        while !std::path::Path::new(uri.strip_prefix("unix:").unwrap()).exists() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let channel =
            Channel::builder(&*uri).pool(here.clone()).ref_threshold(THRESHOLD).connect().await.unwrap();
        assert_eq!(channel.path().endpoints[0].payloads, PayloadPath::NoMemory);
        exercise(Stubs::Direct, channel.clone()).await;
        exercise(Stubs::Tonic, channel.clone()).await;
        let counts = channel.payloads().counts();
        assert_eq!((counts.sent_by_ref, counts.received_by_ref), (0, 0));
        assert!(counts.sent_inline >= 30 && counts.received_inline >= 40, "{counts:?}");
        drop((channel, stop));
        task.await.unwrap();
    })
    .await;
}
