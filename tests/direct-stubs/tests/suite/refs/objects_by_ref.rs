//! Objects between members of a pool: they go by ref, and are read where they lie.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio_stream::{Stream, StreamExt};
use tollfree::pool::{Address, Buffer, Capacity, Coordinator, Pool};
use tollfree::{Channel, PayloadCounts, WhenPoolFull};
use tollfree_direct_stubs::objects::freight::Cargo;
use tollfree_direct_stubs::objects::freight::freight_client::FreightClient;
use tollfree_direct_stubs::objects::freight::freight_server::{Freight, FreightServer};
use tollfree_direct_stubs::objects::views::tollfree::freight::v1::Cargo as CargoObject;
use tollfree_driver_tokio::{Attachment, Config, Keep, OutgoingMessage};
use tollfree_processor::typed::{Builder, Owned};
use tollfree_processor::{Arenas, BuildError, Slot};
use tonic::{Code, Request, Response, Status, Streaming};

use super::freight::{direct, pattern};
use super::lab::{Lab, THRESHOLD, config, in_time, server, until, until_all_is_free};
use super::lies::{UNARY, call, lies_about_refs, segmented};

const LEN: usize = 200_000;

/// Passes on what comes, and keeps it if that has no number.
#[derive(Default)]
struct Passer {
    kept: Arc<Mutex<Vec<Owned<CargoObject>>>>,
}

#[tonic::async_trait]
impl Freight for Passer {
    async fn unary(
        &self,
        request: Request<Owned<CargoObject>>,
    ) -> Result<Response<Owned<CargoObject>>, Status> {
        let cargo = request.into_inner();
        if cargo.view().number() != 0 {
            return Ok(Response::new(cargo));
        }
        let answer = object(1, cargo.view().body().len().min(10), 0);
        self.kept.lock().push(cargo);
        Ok(Response::new(answer))
    }

    type DownStream = Pin<Box<dyn Stream<Item = Result<Cargo, Status>> + Send>>;

    async fn down(&self, _: Request<Cargo>) -> Result<Response<Self::DownStream>, Status> {
        Ok(Response::new(Box::pin(tokio_stream::empty())))
    }

    async fn up(&self, _: Request<Streaming<Cargo>>) -> Result<Response<Cargo>, Status> {
        Ok(Response::new(Cargo::default()))
    }

    type BothStream = Pin<Box<dyn Stream<Item = Result<Owned<CargoObject>, Status>> + Send>>;

    async fn both(
        &self,
        request: Request<Streaming<Owned<CargoObject>>>,
    ) -> Result<Response<Self::BothStream>, Status> {
        Ok(Response::new(Box::pin(request.into_inner())))
    }
}

fn object(seed: usize, len: usize, number: u32) -> Owned<CargoObject> {
    object_in(Arenas::new(1 << 24, 0).take(), seed, len, number).unwrap()
}

fn object_in(
    slot: impl Into<Slot>,
    seed: usize,
    len: usize,
    number: u32,
) -> Result<Owned<CargoObject>, BuildError> {
    let mut builder = Builder::<CargoObject>::new(slot)?;
    builder.edit().set_body(&pattern(seed, len))?;
    builder.edit().set_text(&"text".repeat(len / 8))?;
    builder.edit().set_number(number)?;
    builder.freeze()
}

/// What was counted since `before`: objects and refs sent, received, and bytes copied.
fn since(now: PayloadCounts, before: PayloadCounts) -> [u64; 5] {
    [
        now.sent_objects - before.sent_objects,
        now.sent_by_ref - before.sent_by_ref,
        now.received_objects - before.received_objects,
        now.received_by_ref - before.received_by_ref,
        now.copied_bytes - before.copied_bytes,
    ]
}

/// A client whose server has said that it takes objects.
async fn registered(channel: &Channel) -> FreightClient<Channel> {
    let mut client = FreightClient::new(channel.clone());
    client.unary(object(0, 10, 1)).await.unwrap();
    client
}

#[tokio::test]
async fn an_object_goes_by_ref_is_read_there_and_holds_it_for_as_long_as_it_lives() {
    in_time(async {
        let lab = Lab::new();
        let (here, there) = (lab.join(), lab.join());
        let passer = Passer::default();
        let kept = passer.kept.clone();
        let served = lab.serve(server(Some(&there)).add_service(FreightServer::new(passer))).await;
        let channel = served.connect(Some(&here)).await;
        let mut client = registered(&channel).await;
        let mut request = object(3, LEN, 7);
        let len = request.share().len() as u64;
        let before = [channel.payloads().counts(), served.payloads.counts()];
        let echo = client.unary(request).await.unwrap().into_inner();
        assert!(echo.view().body() == pattern(3, LEN) && echo.view().text() == "text".repeat(LEN / 8));
        let [at_client, at_server] =
            [since(channel.payloads().counts(), before[0]), since(served.payloads.counts(), before[1])];
        assert_eq!((at_client[..4].to_vec(), at_server[..4].to_vec()), (vec![1; 4], vec![1; 4]));
        // Into the pool once. Beside that there are segmented messages of a ref each.
        assert!((len..len + 500).contains(&at_client[4]), "{at_client:?} of {len}");
        assert!(at_server[4] < 500, "what came is passed on as it lies there: {at_server:?}");
        drop(echo);
        until_all_is_free(&here).await;

        client.unary(object(4, LEN, 0)).await.unwrap();
        let held = kept.lock().pop().expect("it is kept there");
        here.sweep();
        let usage = here.usage();
        assert!(usage.total_bytes - usage.free_bytes >= len, "{usage:?}");
        drop((client, channel));
        served.stop().await;
        assert!(held.view().body() == pattern(4, LEN), "and needs neither session nor call");
        drop(held);
        until_all_is_free(&here).await;
        until_all_is_free(&there).await;
    })
    .await;
}

#[tokio::test]
async fn an_object_that_is_built_in_the_pool_is_not_copied() {
    in_time(async {
        let lab = Lab::new();
        let (here, there) = (lab.join(), lab.join());
        let passer = FreightServer::new(Passer::default());
        let served = lab.serve(server(Some(&there)).add_service(passer)).await;
        let channel = served.connect(Some(&here)).await;
        let mut client = registered(&channel).await;
        let arena = |len| tollfree::arena_in_pool(&here, len).unwrap();
        // What grows beyond it on the way may come back; what is longer in the end is refused.
        let need = match object_in(arena(LEN), 2, LEN, 1) {
            Err(BuildError::Exhausted { need, .. }) => need,
            other => panic!("{other:?}"),
        };
        assert!(need > LEN);
        until_all_is_free(&here).await;
        for len in [need, 2 * need] {
            let mut request = object_in(arena(len), 2, LEN, 1).unwrap();
            assert!(here.ref_of(&request.share()).is_some_and(|part| part.len() == need));
            let before = channel.payloads().counts();
            let echo = client.unary(request).await.unwrap().into_inner();
            assert!(echo.view().body() == pattern(2, LEN));
            let [objects, by_ref, .., copied] = since(channel.payloads().counts(), before);
            assert!((objects, by_ref) == (1, 1) && copied < 500, "{copied}");
            drop(echo);
            until_all_is_free(&here).await;
        }
        // To those who share no pool it goes as from any other place.
        let apart = served.connect(None).await;
        let echo = registered(&apart).await.unary(object_in(arena(need), 3, LEN, 1).unwrap()).await.unwrap();
        assert!(echo.get_ref().view().body() == pattern(3, LEN));
        until_all_is_free(&here).await;
    })
    .await;
}

#[tokio::test]
async fn objects_of_streams_go_by_ref_and_short_ones_as_ever() {
    in_time(async {
        let lab = Lab::new();
        let (here, there) = (lab.join(), lab.join());
        let passer = FreightServer::new(Passer::default());
        let served = lab.serve(server(Some(&there)).add_service(passer)).await;
        let channel = served.connect(Some(&here)).await;
        let mut client = registered(&channel).await;
        let lens = [10, LEN, 1000, LEN + 1, 3 * LEN];
        // The server says so once for each method.
        let first = client.both(tokio_stream::iter([object(0, 1, 1)])).await.unwrap().into_inner();
        assert_eq!(first.collect::<Vec<_>>().await.len(), 1);
        let before = [channel.payloads().counts(), served.payloads.counts()];
        let asks = tokio_stream::iter(lens.map(|len| object(5, len, 1)));
        let mut both = client.both(asks).await.unwrap().into_inner();
        for len in lens {
            let answer = both.message().await.unwrap().unwrap();
            assert!(answer.view().body() == pattern(5, len), "{len}");
        }
        assert!(both.message().await.unwrap().is_none());
        drop(both);
        for (counts, before) in
            [channel.payloads().counts(), served.payloads.counts()].into_iter().zip(before)
        {
            assert_eq!(since(counts, before)[..4], [5, 3, 5, 3]);
        }
        until_all_is_free(&here).await;
        until_all_is_free(&there).await;
    })
    .await;
}

#[tokio::test]
async fn who_shares_no_pool_and_who_takes_structs_notice_nothing() {
    in_time(async {
        let lab = Lab::new();
        let (here, there) = (lab.join(), lab.join());
        let passer = FreightServer::new(Passer::default());
        let served = lab.serve(server(Some(&there)).add_service(passer)).await;
        let (with, without) = (served.connect(Some(&here)).await, served.connect(None).await);
        let mut objects = [registered(&with).await, registered(&without).await];
        let mut structs = [&with, &without].map(|channel| direct::FreightClient::new(channel.clone()));
        for _ in 0..2 {
            for client in &mut objects {
                let echo = client.unary(object(6, LEN, 1)).await.unwrap().into_inner();
                assert!(echo.view().body() == pattern(6, LEN));
            }
            for client in &mut structs {
                let cargo =
                    direct::Cargo { body: pattern(7, LEN).into(), number: 1, ..direct::Cargo::default() };
                assert!(client.unary(cargo.clone()).await.unwrap().into_inner() == cargo);
            }
        }
        let counts = without.payloads().counts();
        assert_eq!(
            (counts.sent_objects, counts.sent_by_ref, counts.received_by_ref),
            (2, 0, 0),
            "{counts:?}"
        );
        let counts = with.payloads().counts();
        assert_eq!((counts.sent_objects, counts.received_objects), (2, 2), "{counts:?}");
        assert_eq!((counts.sent_by_ref, counts.received_by_ref), (4, 4), "{counts:?}");
    })
    .await;
}

/// All of a member's memory, of which it has 1 MiB.
fn fill(pool: &Pool) -> Buffer {
    pool.buffer(1 << 20).unwrap()
}

#[tokio::test]
async fn an_object_that_the_full_pool_has_no_room_for_goes_inline_or_not_at_all() {
    in_time(async {
        let lab = Lab::with(Capacity { total: 16 << 20, member_quota: 1 << 20, batch: 1 << 20 });
        let (here, there) = (lab.join(), lab.join());
        let passer = FreightServer::new(Passer::default());
        let served = lab.serve(server(Some(&there)).add_service(passer)).await;
        let channel = served.connect(Some(&here)).await;
        let refusing =
            served.builder(Some(&here)).when_pool_full(WhenPoolFull::Refuse).connect().await.unwrap();
        let (mut client, mut refused) = (registered(&channel).await, registered(&refusing).await);
        let full = fill(&here);
        let before = channel.payloads().counts();
        let echo = client.unary(object(8, LEN, 1)).await.unwrap().into_inner();
        assert!(echo.view().body() == pattern(8, LEN));
        let counts = channel.payloads().counts();
        assert_eq!(since(counts, before)[..2], [1, 0], "{counts:?}");
        assert!(counts.pool_full > before.pool_full);
        let status = loop {
            match refused.unary(object(8, LEN, 1)).await {
                // It had to ask first.
                Ok(_) => tokio::time::sleep(std::time::Duration::from_millis(2)).await,
                Err(status) => break status,
            }
        };
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        drop((full, echo));
        refused.unary(object(8, LEN, 1)).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn objects_whose_refs_cant_be_mapped_come_as_their_bytes() {
    in_time(async {
        let directory = tempfile::tempdir().unwrap();
        let address: Address = format!("shm://{}/pool.sock", directory.path().display()).parse().unwrap();
        let capacity = Capacity { total: 128 << 20, member_quota: 16 << 20, batch: 4 << 20 };
        let coordinator = Coordinator::start(&address, capacity).unwrap();
        let (here, there) =
            (Pool::join(&address, config()).unwrap(), Pool::join(&address, config()).unwrap());
        for pool in [&here, &there] {
            drop(pool.buffer(4 << 20).unwrap());
        }
        drop(coordinator);
        until("the loss is noticed", || !here.is_attached() && !there.is_attached()).await;
        let lab = Lab::new();
        let passer = FreightServer::new(Passer::default());
        let served = lab.serve(server(Some(&there)).add_service(passer)).await;
        let channel = served.connect(Some(&here)).await;
        let mut client = registered(&channel).await;
        for _ in 0..3 {
            let echo = client.unary(object(9, LEN, 1)).await.unwrap().into_inner();
            assert!(echo.view().body() == pattern(9, LEN));
            let asks = tokio_stream::iter([object(9, LEN, 1), object(9, 2 * LEN, 1)]);
            let both = client.both(asks).await.unwrap().into_inner();
            let lens: Vec<usize> = both.map(|cargo| cargo.unwrap().view().body().len()).collect().await;
            assert_eq!(lens, [LEN, 2 * LEN]);
        }
        for counts in [channel.payloads().counts(), served.payloads.counts()] {
            assert!(counts.sent_objects > 3 && counts.received_objects > 3, "{counts:?}");
            assert!(counts.sent_by_ref > 0 && counts.received_by_ref == 0, "{counts:?}");
            assert_eq!(counts.refused_refs, 0, "{counts:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_limit_holds_for_the_encoding_of_an_object_by_ref() {
    in_time(async {
        let lab = Lab::new();
        let (here, there) = (lab.join(), lab.join());
        let limit = LEN;
        let passer = FreightServer::new(Passer::default()).max_decoding_message_size(limit);
        let served = lab.serve(server(Some(&there)).add_service(passer)).await;
        let channel = served.connect(Some(&here)).await;
        let mut client = registered(&channel).await;
        // Numbers of one byte each, which are eight in an object.
        let numbers = |count: usize| {
            let mut builder = Builder::<CargoObject>::new(Arenas::new(1 << 24, 0).take()).unwrap();
            builder.edit().numbers_mut().unwrap().extend(std::iter::repeat_n(1, count)).unwrap();
            builder.edit().set_number(1).unwrap();
            builder.freeze().unwrap()
        };
        let echo = client.unary(numbers(limit / 2)).await.unwrap().into_inner();
        assert_eq!(echo.view().numbers().len(), limit / 2);
        let status = client.unary(numbers(limit + 100)).await.unwrap_err();
        assert_eq!(status.code(), Code::OutOfRange, "{status}");
        assert!(channel.payloads().counts().sent_by_ref >= 2);
        drop(echo);
        until_all_is_free(&here).await;
    })
    .await;
}

#[tokio::test]
async fn what_lies_in_the_pool_and_is_no_object_ends_its_call() {
    in_time(async {
        let lab = Lab::new();
        let (liar, there) = (lab.join(), lab.join());
        let served = lab.serve(server(Some(&there)).add_service(FreightServer::new(Passer::default()))).await;
        let address = served.uri.parse().unwrap();
        let config = Config { pool: Some(liar.id()), ..Config::default() };
        let attachment = Attachment::connect(&address, &config).await.unwrap();
        let honest = served.connect(Some(&liar)).await;
        let mut client = registered(&honest).await;
        client.unary(object(1, LEN, 1)).await.unwrap();
        let mut sound = object(1, LEN, 1).share().to_vec();
        let share = |bytes: &[u8]| {
            let held = liar.copy_from_slice(bytes).unwrap();
            let part = held.to_bytes().unwrap();
            (held, part)
        };
        let as_object = |data: Vec<u8>| OutgoingMessage::object_segmented(data.into(), Keep::new(()));
        let whole = |bytes: &[u8]| {
            let (held, part) = share(bytes);
            (held, as_object(segmented(bytes.len() as u64, 1, b"", &[(0, part)])))
        };
        let (held, good) = whole(&sound);
        assert_eq!(call(&attachment, UNARY, good).await.unwrap(), Code::Ok);
        // In two refs with inline bytes between and behind, which is copied together.
        let (first, second) = (share(&sound[..20_000]), share(&sound[20_100..sound.len() - 50]));
        let inline = [&sound[20_000..20_100], &sound[sound.len() - 50..]].concat();
        let parts = segmented(sound.len() as u64, 2, &inline, &[(0, first.1), (100, second.1)]);
        assert_eq!(call(&attachment, UNARY, as_object(parts)).await.unwrap(), Code::Ok);
        drop((held, first.0, second.0));

        let behind = [&sound[..], &[0; 8]].concat();
        let cut = sound[..sound.len() - 8].to_vec();
        let other = {
            let mut other = sound.clone();
            other[16] ^= 1;
            other
        };
        sound[14] ^= 1;
        for (what, bytes) in [
            ("a root that is elsewhere", sound),
            ("something behind it", behind),
            ("cut off", cut),
            ("another type", other),
            ("protobuf's bytes", vec![0x0a; THRESHOLD]),
        ] {
            let (held, lie) = whole(&bytes);
            assert_eq!(call(&attachment, UNARY, lie).await.unwrap(), Code::Internal, "{what}");
            drop(held);
        }
        for (what, code, data) in lies_about_refs(&lab, &liar).await {
            assert_eq!(call(&attachment, UNARY, as_object(data)).await.unwrap(), code, "{what}");
        }
        assert!(attachment.is_open() && attachment.segmented_messages_in_flight() == 0);
        let echo = client.unary(object(1, LEN, 1)).await.unwrap().into_inner();
        assert!(echo.view().body() == pattern(1, LEN));
    })
    .await;
}

#[tokio::test]
async fn an_object_by_ref_that_nobody_asked_for_is_refused() {
    in_time(async {
        let lab = Lab::new();
        let (liar, there) = (lab.join(), lab.join());
        let server = server(Some(&there)).add_service(direct::FreightServer::new(direct::Carrier::default()));
        let served = lab.serve(server).await;
        let config = Config { pool: Some(liar.id()), ..Config::default() };
        let attachment = Attachment::connect(&served.uri.parse().unwrap(), &config).await.unwrap();
        let held = liar.copy_from_slice(object(1, LEN, 1).object().bytes()).unwrap();
        let data = segmented(held.len() as u64, 1, b"", &[(0, held.to_bytes().unwrap())]);
        for path in [UNARY, "/tollfree.freight.v1.Freight/Up"] {
            let object = OutgoingMessage::object_segmented(Bytes::from(data.clone()), Keep::new(()));
            assert_eq!(call(&attachment, path, object).await.unwrap(), Code::Internal, "{path}");
        }
        assert!(attachment.is_open() && attachment.segmented_messages_in_flight() == 0);
    })
    .await;
}
