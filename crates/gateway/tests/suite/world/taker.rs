//! Handlers that take objects.

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tollfree_direct_stubs::objects::probe::probe_server::Probe;
use tollfree_direct_stubs::objects::views::tollfree::probe::v1::{Answer, Ask};
use tollfree_processor::Arenas;
use tollfree_processor::typed::{Builder, Owned};
use tonic::{Request, Response, Status, Streaming};

/// The arenas that objects are built in, in bytes.
const ARENA_LEN_MAX: usize = 8 << 20;

/// Gives back what it gets, and says how much that was.
pub(crate) struct Taker;

/// What is asked for early is not to be compressed.
fn plain_if_early<T>(early: bool, answer: T) -> Response<T> {
    let mut response = Response::new(answer);
    if early {
        response.disable_compression();
    }
    response
}

fn answer(ask: &Owned<Ask>) -> Owned<Answer> {
    let mut builder = Builder::<Answer>::new(Arenas::new(ARENA_LEN_MAX, 0).take()).unwrap();
    builder.edit().set_body(ask.view().body()).unwrap();
    builder.freeze().unwrap()
}

#[tonic::async_trait]
impl Probe for Taker {
    async fn unary(&self, request: Request<Owned<Ask>>) -> Result<Response<Owned<Answer>>, Status> {
        if request.get_ref().view().body().is_empty() {
            return Err(Status::invalid_argument("without a body"));
        }
        Ok(plain_if_early(request.get_ref().view().early(), answer(request.get_ref())))
    }

    type DownStream = BoxStream<'static, Result<Owned<Answer>, Status>>;

    async fn down(&self, request: Request<Owned<Ask>>) -> Result<Response<Self::DownStream>, Status> {
        let ask = request.into_inner();
        let early = ask.view().early();
        let answers = (0..ask.view().burn_us()).map(move |_| Ok(answer(&ask))).collect::<Vec<_>>();
        Ok(plain_if_early(early, futures_util::stream::iter(answers).boxed()))
    }

    async fn up(&self, request: Request<Streaming<Owned<Ask>>>) -> Result<Response<Owned<Answer>>, Status> {
        let mut asks = request.into_inner();
        let (mut body, mut count) = (Vec::new(), 0);
        while let Some(ask) = asks.next().await {
            body.extend_from_slice(ask?.view().body());
            count += 1;
        }
        let mut builder = Builder::<Answer>::new(Arenas::new(ARENA_LEN_MAX, 0).take()).unwrap();
        builder.edit().set_seen_count(count).unwrap();
        builder.edit().set_seen_len(body.len() as u64).unwrap();
        builder.edit().set_body(&body).unwrap();
        Ok(Response::new(builder.freeze().unwrap()))
    }

    type BothStream = BoxStream<'static, Result<Owned<Answer>, Status>>;

    async fn both(
        &self,
        request: Request<Streaming<Owned<Ask>>>,
    ) -> Result<Response<Self::BothStream>, Status> {
        Ok(Response::new(request.into_inner().map(|ask| Ok(answer(&ask?))).boxed()))
    }
}
