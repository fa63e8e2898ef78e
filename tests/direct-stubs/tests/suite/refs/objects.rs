//! Messages of which parts came by ref, as objects; and a service some of whose methods take objects, others structs.

use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_stream::{Stream, StreamExt};
use tollfree_direct_stubs::objects::freight::Cargo;
use tollfree_direct_stubs::objects::freight::freight_client::FreightClient;
use tollfree_direct_stubs::objects::freight::freight_server::{Freight, FreightServer};
use tollfree_direct_stubs::objects::views::tollfree::freight::v1::Cargo as CargoObject;
use tollfree_processor::Arenas;
use tollfree_processor::typed::{Builder, MessageMut as _, Owned};
use tonic::{Request, Response, Status, Streaming};

use super::freight::{direct, pattern};
use super::lab::{Lab, in_time, server, until_all_is_free};

/// Sends back what comes, and keeps the last object.
#[derive(Default)]
struct Mirror {
    kept: Arc<Mutex<Option<Owned<CargoObject>>>>,
}

#[tonic::async_trait]
impl Freight for Mirror {
    async fn unary(
        &self,
        request: Request<Owned<CargoObject>>,
    ) -> Result<Response<Owned<CargoObject>>, Status> {
        let cargo = request.into_inner();
        let full = |error: tollfree_processor::BuildError| Status::resource_exhausted(error.to_string());
        let mut copy = Builder::<CargoObject>::new(Arenas::new(1 << 24, 0).take()).map_err(full)?;
        copy.edit().copy_from(cargo.view()).map_err(full)?;
        *self.kept.lock() = Some(cargo);
        Ok(Response::new(copy.freeze().map_err(full)?))
    }

    type DownStream = Pin<Box<dyn Stream<Item = Result<Cargo, Status>> + Send>>;

    async fn down(&self, request: Request<Cargo>) -> Result<Response<Self::DownStream>, Status> {
        let cargo = request.into_inner();
        let each = std::iter::repeat_n(cargo.clone(), cargo.number as usize).map(Ok);
        Ok(Response::new(Box::pin(tokio_stream::iter(each))))
    }

    async fn up(&self, request: Request<Streaming<Cargo>>) -> Result<Response<Cargo>, Status> {
        let mut cargos = request.into_inner();
        let mut all = Cargo::default();
        while let Some(cargo) = cargos.message().await? {
            all.parts.push(cargo.body);
        }
        Ok(Response::new(all))
    }

    type BothStream = Pin<Box<dyn Stream<Item = Result<Owned<CargoObject>, Status>> + Send>>;

    async fn both(
        &self,
        request: Request<Streaming<Owned<CargoObject>>>,
    ) -> Result<Response<Self::BothStream>, Status> {
        Ok(Response::new(Box::pin(request.into_inner())))
    }
}

#[tokio::test]
async fn an_object_of_a_message_by_ref_is_a_copy_and_holds_nothing_of_the_pool() {
    in_time(async {
        let lab = Lab::new();
        let (here, there) = (lab.join(), lab.join());
        let mirror = Mirror::default();
        let kept = mirror.kept.clone();
        let served = lab.serve(server(Some(&there)).add_service(FreightServer::new(mirror))).await;
        let channel = served.connect(Some(&here)).await;
        let mut structs = direct::FreightClient::new(channel.clone());
        let mut objects = FreightClient::new(channel.clone());
        let len = 300_000;
        let cargo = || direct::Cargo {
            body: pattern(1, len).into(),
            text: "x".repeat(len),
            number: 3,
            ..direct::Cargo::default()
        };
        let echo = structs.unary(cargo()).await.unwrap().into_inner();
        assert!(echo == cargo(), "the same bytes");
        let (sent, received) = (channel.payloads().counts(), served.payloads.counts());
        assert_eq!((sent.sent_by_ref, received.received_by_ref), (1, 1), "it went by ref");
        assert_eq!((received.sent_by_ref, sent.received_by_ref), (1, 1), "and so did the answer");
        drop(echo);
        let sent = kept.lock().take().unwrap();
        until_all_is_free(&here).await;
        until_all_is_free(&there).await;
        assert!(sent.view().body() == pattern(1, len) && sent.view().text() == "x".repeat(len));

        let echo = objects.unary(sent).await.unwrap().into_inner();
        assert!(echo.view().body() == pattern(1, len) && echo.view().number() == 3);
        let asks = tokio_stream::iter([echo]);
        let mut both = objects.both(asks).await.unwrap().into_inner();
        assert!(both.message().await.unwrap().unwrap().view().body() == pattern(1, len));
        assert!(both.message().await.unwrap().is_none());
        let down = structs.down(cargo()).await.unwrap().into_inner();
        let lens: Vec<usize> = down.map(|cargo| cargo.unwrap().body.len()).collect().await;
        assert_eq!(lens, [len; 3]);
        let cargo = Cargo { body: pattern(2, len), ..Cargo::default() };
        let all = objects.up(tokio_stream::iter([cargo.clone(), cargo])).await.unwrap().into_inner();
        assert!(all.parts.len() == 2 && all.parts[1] == pattern(2, len));
        // The second one went by ref as it is, and is held there.
        drop((all, kept.lock().take(), both));
        until_all_is_free(&here).await;
        until_all_is_free(&there).await;
    })
    .await;
}
