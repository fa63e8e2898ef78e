//! Every workload on every side, its services as tasks of one process: what the load generator accepts, and what it doesn't.

use std::future::Future;
use std::sync::Arc;

use tokio::task::LocalSet;
use tollfree_pool::{Capacity, Coordinator};

use super::{Caller, images, social, values};
use crate::direct::{Array, ImageRequest, Operation, Total, User};
use crate::plan::Shape;
use crate::scene;
use crate::seat::{Seat, SeatOrder};
use crate::services::{TOKEN, USER_COUNT, Work};
use crate::side::Side;
use crate::stubs::*;

/// Where services stand: their sockets, and the pool's coordinator.
struct Stage {
    side: Side,
    dir: tempfile::TempDir,
    _coordinator: Option<Coordinator>,
}

impl Stage {
    fn new(side: Side) -> Stage {
        let dir = tempfile::tempdir().unwrap();
        let coordinator = side.has_pool().then(|| {
            let address = format!("shm://{}/pool.sock", dir.path().display()).parse().unwrap();
            Coordinator::start(&address, Capacity::default()).unwrap()
        });
        Stage { side, dir, _coordinator: coordinator }
    }

    fn seat(&self, name: &str) -> Seat {
        let pool = self.dir.path().join("pool.sock");
        Seat::take(&SeatOrder {
            side: self.side,
            name: name.to_owned(),
            dir: self.dir.path().to_owned(),
            pool: self.side.has_pool().then(|| format!("shm://{}", pool.display())),
            gateway: None,
            ref_threshold: Some(4096),
            park: false,
            message_len_max: 64 << 20,
        })
        .unwrap()
    }

    /// Starts all services of a workload; where the first to be called is.
    async fn start(&self, shape: Shape) -> (String, Vec<Seat>) {
        let (mut addresses, mut seats) = (Vec::<String>::new(), Vec::new());
        for (idx, service) in shape.services().into_iter().enumerate() {
            let seat = self.seat(&format!("{}-{idx}", service.part.name()));
            seats.push(seat.clone());
            let to: Vec<String> = service.calls.iter().map(|called| addresses[*called].clone()).collect();
            let address = started(move |ready| async move { service.part.play(&seat, &to, ready).await });
            addresses.push(address.await);
        }
        (addresses.pop().unwrap(), seats)
    }
}

/// Spawns what serves, and waits for its address.
async fn started<F: Future<Output = Result<(), String>> + 'static>(
    serve: impl FnOnce(Box<dyn FnOnce(String)>) -> F,
) -> String {
    let (sender, address) = tokio::sync::oneshot::channel();
    let serving = serve(Box::new(move |address| sender.send(address).unwrap()));
    tokio::task::spawn_local(async move { panic!("a service ended: {:?}", serving.await) });
    address.await.unwrap()
}

fn on_stage(test: impl AsyncFnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test());
}

async fn make_calls(caller: impl Caller, count: u64) -> Result<(), String> {
    caller.prepare().await?;
    for nth in 0..count {
        caller.call(nth).await?;
    }
    let caller = Arc::new(caller);
    let mut calls = tokio::task::JoinSet::new();
    for nth in count..2 * count {
        let caller = caller.clone();
        calls.spawn(async move { caller.call(nth).await });
    }
    while let Some(ended) = calls.join_next().await {
        ended.unwrap()?;
    }
    Ok(())
}

/// Sizes below the threshold, at it, above it, and beyond what fits a record.
const SIZES: [usize; 4] = [1, 4096, 70_000, 300_001];

#[test]
fn chains_sum_up_what_was_sent() {
    for side in Side::BETWEEN_PROCESSES {
        on_stage(async || {
            let stage = Stage::new(*side);
            let (entry, seats) = stage.start(Shape::Chain { length: 3, size: 1, whole: true }).await;
            let seat = stage.seat("load");
            for size in SIZES {
                for whole in [true, false] {
                    let caller = values::Arrays::new(&seat, &entry, size, whole).await.unwrap();
                    make_calls(caller, 10).await.unwrap();
                }
            }
            assert_eq!(seats[0].tally().requests, seats[2].tally().requests);
            let counts: Vec<_> = seats.iter().map(Seat::tally).collect();
            match side {
                Side::Tonic => {
                    assert!(counts.iter().all(|count| (count.copied_bytes, count.ref_bytes) == (0, 0)))
                }
                Side::Inline => assert!(counts[1].copied_bytes > 0 && counts[1].ref_bytes == 0, "{counts:?}"),
                // What is left are a few bytes around each ref.
                Side::Ref => assert!(counts[1].copied_bytes < 200 * counts[1].requests, "{counts:?}"),
                Side::Gateway | Side::GatewayObjects | Side::GatewayStream => {
                    unreachable!("it takes a process of its own")
                }
                Side::RefCopy => assert!(counts[1].copied_bytes > counts[1].ref_bytes, "{counts:?}"),
            }
            let passed = [4096, 70_000, 300_001].iter().map(|size| 40 * size).sum::<u64>();
            assert!(!side.has_pool() || counts[1].ref_bytes == passed, "{counts:?}");
        });
    }
}

#[test]
fn a_balancer_uses_all_its_workers() {
    for side in Side::BETWEEN_PROCESSES {
        on_stage(async || {
            let stage = Stage::new(*side);
            let (entry, seats) = stage.start(Shape::Balancer { workers: 3, size: 1 }).await;
            let caller = values::Arrays::new(&stage.seat("load"), &entry, 10_000, true).await.unwrap();
            make_calls(caller, 20).await.unwrap();
            let requests: Vec<u64> = seats.iter().map(|seat| seat.tally().requests).collect();
            assert_eq!((requests[3], requests[..3].iter().sum()), (40, 40));
            assert!(requests.iter().all(|count| *count >= 10), "{requests:?}");
        });
    }
}

#[test]
fn echoes_come_back_as_they_were() {
    for side in Side::BETWEEN_PROCESSES {
        on_stage(async || {
            let stage = Stage::new(*side);
            let (entry, _) = stage.start(Shape::Echo { size: 1 }).await;
            let seat = stage.seat("load");
            for size in SIZES {
                let caller = values::Echoes::new(&seat, &entry, size).await.unwrap();
                make_calls(caller, 10).await.unwrap();
            }
        });
    }
}

#[test]
fn images_come_back_from_all_tiers() {
    let files = tempfile::tempdir().unwrap();
    let files = scene::write(files.path(), 8 << 10).map(|paths| (paths, files)).unwrap();
    for side in Side::BETWEEN_PROCESSES {
        on_stage(async || {
            let stage = Stage::new(*side);
            let (entry, seats) = stage.start(Shape::Images { work: Work::Touch, size: 1 }).await;
            let seat = stage.seat("load");
            for size in SIZES {
                let caller = images::Patterns::new(&seat, &entry, size).await.unwrap();
                make_calls(caller, 10).await.unwrap();
            }
            assert!(seats.iter().all(|seat| seat.tally().requests > 0), "both processings had work");
            let stage = Stage::new(*side);
            let (entry, seats) = stage.start(Shape::Images { work: Work::Codec, size: 1 }).await;
            let caller = images::Files::new(&stage.seat("load"), &entry, &files.0).await.unwrap();
            make_calls(caller, 2).await.unwrap();
            assert!(seats[0].tally().codec_ns > 0 && seats[1].tally().codec_ns > 0);
        });
    }
}

#[test]
fn timelines_show_what_was_composed() {
    for side in Side::BETWEEN_PROCESSES {
        on_stage(async || {
            let stage = Stage::new(*side);
            let (entry, seats) = stage.start(Shape::Social { media: 1 }).await;
            let caller = social::Users::new(&stage.seat("load"), &entry, 5000).await.unwrap();
            make_calls(caller, 100).await.unwrap();
            assert!(seats.iter().all(|seat| seat.tally().requests > 0));
        });
    }
}

#[test]
fn bad_requests_are_refused_in_words() {
    on_stage(async || {
        let stage = Stage::new(Side::Inline);
        let (entry, _) = stage.start(Shape::Images { work: Work::Codec, size: 1 }).await;
        let client = ImagesClient::connect(&stage.seat("load"), &entry).await.unwrap();
        let ask = |token: &str, operation: Operation| {
            let request = ImageRequest {
                image: bytes::Bytes::from_static(b"no image"),
                operation: operation.into(),
                token: token.to_owned(),
            };
            let client = client.clone();
            async move { client.process(request).await.unwrap_err() }
        };
        assert_eq!(ask("somebody", Operation::Compress).await.code(), tonic::Code::PermissionDenied);
        assert_eq!(ask(TOKEN, Operation::Unspecified).await.code(), tonic::Code::InvalidArgument);
        let refused = ask(TOKEN, Operation::Transcode).await;
        assert!(
            refused.code() == tonic::Code::InvalidArgument && refused.message().contains("format"),
            "{refused}"
        );
        let (graph, _) = {
            let seat = stage.seat("graph");
            (
                started(
                    move |ready| async move { crate::services::Part::Graph.play(&seat, &[], ready).await },
                )
                .await,
                (),
            )
        };
        let graph = GraphClient::connect(&stage.seat("load"), &graph).await.unwrap();
        assert_eq!(
            graph.followers(User { user: USER_COUNT }).await.unwrap_err().code(),
            tonic::Code::NotFound
        );
    });
}

/// Passes on arrays of which a byte has changed.
struct Tampers(ArraysClient);

impl HandleArrays for Tampers {
    async fn sum(&self, request: Array) -> Result<Total, tonic::Status> {
        let mut data = request.data.to_vec();
        let middle = data.len() / 2;
        data[middle] ^= 1;
        self.0.sum(Array { data: data.into(), ..request }).await
    }
}

#[test]
fn a_byte_that_changes_on_the_way_is_noticed() {
    on_stage(async || {
        let stage = Stage::new(Side::Tonic);
        let (entry, _) = stage.start(Shape::Chain { length: 1, size: 1, whole: true }).await;
        let seat = stage.seat("tampers");
        let tampers = Tampers(ArraysClient::connect(&seat, &entry).await.unwrap());
        let entry = started(move |ready| async move { serve_arrays(tampers, &seat, ready).await }).await;
        let caller = values::Arrays::new(&stage.seat("load"), &entry, 50_000, true).await.unwrap();
        let error = caller.call(0).await.unwrap_err();
        assert!(error.contains("summed up"), "{error}");
    });
}
