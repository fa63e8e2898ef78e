//! What is left at a server of answers that are objects (level 3), and that a client does not read.

use std::time::Duration;

use tokio::runtime::Handle;
use tollfree::{Channel, Server};
use tollfree_direct_stubs::objects::probe::probe_client::ProbeClient;
use tollfree_direct_stubs::objects::probe::probe_server::ProbeServer;
use tollfree_direct_stubs::objects::views::tollfree::probe::v1::Ask;
use tollfree_processor::Arenas;
use tollfree_processor::typed::{Builder, Owned};
use tonic::{Code, Request};

use super::place::{InPlace, Place, in_time};
use crate::conformance::lab::until;
use crate::conformance::still::Still;

const LONG: u32 = 700_000;
const CALL_COUNT: usize = 16;

fn ask(wait_ms: u32) -> Owned<Ask> {
    let mut builder = Builder::<Ask>::new(Arenas::new(1 << 16, 0).take()).unwrap();
    builder.edit().set_wait_ms(wait_ms).unwrap();
    builder.edit().lens_mut().unwrap().extend([LONG]).unwrap();
    builder.freeze().unwrap()
}

async fn is_answered(mut client: ProbeClient<Channel>) {
    let answer = client.unary(ask(0)).await.unwrap().into_inner();
    assert_eq!(answer.view().body().len(), LONG as usize);
}

fn alive(of: &Handle) -> usize {
    of.metrics().num_alive_tasks()
}

#[tokio::test]
async fn nothing_is_left_of_objects_that_nobody_reads_after_their_deadline() {
    in_time(async {
        let place = Place::new(Server::builder().add_service(ProbeServer::new(InPlace::new()))).await;
        let (server, still, address) = (Handle::current(), Still::new(), place.address.clone());
        let client = still
            .runs(async move {
                let client = ProbeClient::new(Channel::connect(&*address).await.unwrap());
                is_answered(client.clone()).await;
                client
            })
            .await;
        is_answered(ProbeClient::new(place.shm.clone())).await;
        let before = alive(&server);
        for _ in 0..2 {
            let (many, server) = (client.clone(), server.clone());
            let calls: Vec<_> = still
                .runs(async move {
                    let call = |_| {
                        let mut client = many.clone();
                        let mut request = Request::new(ask(50));
                        request.set_timeout(Duration::from_millis(800));
                        tokio::spawn(async move { client.unary(request).await.map(drop) })
                    };
                    let calls = (0..CALL_COUNT).map(call).collect();
                    until("all handlers have begun", || alive(&server) >= before + CALL_COUNT).await;
                    calls
                })
                .await;
            // Longer than the handlers take: what goes on for so long has an answer that waits.
            tokio::time::sleep(Duration::from_millis(200)).await;
            assert!(alive(&Handle::current()) > before, "answers wait");
            until("no task is left of objects that nobody reads", || alive(&Handle::current()) <= before)
                .await;
            is_answered(ProbeClient::new(place.shm.clone())).await;
            let late = still.runs(async move {
                let mut late = 0;
                for call in calls {
                    late += usize::from(call.await.unwrap().is_err_and(|status| {
                        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
                        true
                    }));
                }
                late
            });
            assert!(late.await > 0, "all that waited are late");
            still.runs(is_answered(client.clone())).await;
        }
        drop((client, still));
    })
    .await;
}
