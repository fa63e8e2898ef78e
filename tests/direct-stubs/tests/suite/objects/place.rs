//! The service of these tests, on objects, and where it is served.

use std::pin::Pin;
use std::time::Duration;

use tokio_stream::{Stream, StreamExt};
use tollfree::{Channel, Server};
use tollfree_direct_stubs::objects::probe::probe_server::Probe;
use tollfree_direct_stubs::objects::views::tollfree::probe::v1::{Answer, Ask, AskView};
use tollfree_processor::typed::{Builder, Owned};
use tollfree_processor::{Arenas, BuildError};
use tonic::{Code, Request, Response, Status, Streaming};

/// Limit of the arenas that answers are built in, in bytes.
pub(crate) const ARENA_LEN_MAX: usize = 1 << 20;

/// Fails a test that hangs.
pub(crate) async fn in_time(test: impl Future<Output = ()>) {
    tokio::time::timeout(Duration::from_secs(120), test).await.expect("in two minutes");
}

/// Does what it is asked to, in place.
#[derive(Clone)]
pub(crate) struct InPlace {
    arenas: Arenas,
}

impl InPlace {
    pub(crate) fn new() -> InPlace {
        InPlace { arenas: Arenas::new(ARENA_LEN_MAX, 16) }
    }

    /// An answer with this body.
    fn with(&self, body: &[u8]) -> Result<Owned<Answer>, Status> {
        built(&self.arenas, |builder| builder.edit().set_body(body))
    }

    /// What is asked for: a fault, a body of the first length, or the body that came.
    fn answer(&self, ask: AskView<'_>, marks: &[&str]) -> Result<Owned<Answer>, Status> {
        if let Some(fault) = ask.fault() {
            return Err(Status::new(Code::from_i32(fault.code()), fault.message()));
        }
        let long = ask.lens().get(0).map(|len| vec![7; len as usize]);
        built(&self.arenas, |builder| {
            let mut root = builder.edit();
            root.set_body(long.as_deref().unwrap_or(ask.body()))?;
            root.set_seen_len(ask.body().len() as u64)?;
            root.headers_mut()?.extend(marks.iter().copied())
        })
    }
}

fn built(
    arenas: &Arenas,
    fill: impl FnOnce(&mut Builder<Answer>) -> Result<(), BuildError>,
) -> Result<Owned<Answer>, Status> {
    let full = |error: BuildError| Status::resource_exhausted(error.to_string());
    let mut builder = Builder::new(arenas.take()).map_err(full)?;
    fill(&mut builder).map_err(full)?;
    builder.freeze().map_err(full)
}

pub(crate) type Answers = Pin<Box<dyn Stream<Item = Result<Owned<Answer>, Status>> + Send>>;

#[tonic::async_trait]
impl Probe for InPlace {
    async fn unary(&self, request: Request<Owned<Ask>>) -> Result<Response<Owned<Answer>>, Status> {
        let marked = request.metadata().get("marked").map(|mark| mark.to_str().unwrap_or("?").to_owned());
        let ask = request.into_inner();
        // An object is held over an await.
        tokio::time::sleep(Duration::from_millis(ask.view().wait_ms().into())).await;
        Ok(Response::new(self.answer(ask.view(), &marked.as_deref().into_iter().collect::<Vec<_>>())?))
    }

    type DownStream = Answers;

    async fn down(&self, request: Request<Owned<Ask>>) -> Result<Response<Answers>, Status> {
        let (ask, this) = (request.into_inner(), self.clone());
        let lens: Vec<u32> = ask.view().lens().iter().collect();
        let answers = tokio_stream::iter(lens).map(move |len| this.with(&vec![7; len as usize]));
        Ok(Response::new(Box::pin(answers)))
    }

    async fn up(&self, request: Request<Streaming<Owned<Ask>>>) -> Result<Response<Owned<Answer>>, Status> {
        let mut asks = request.into_inner();
        let (mut count, mut len) = (0, 0);
        while let Some(ask) = asks.message().await? {
            count += 1;
            len += ask.view().body().len() as u64;
        }
        let answer = built(&self.arenas, |builder| {
            builder.edit().set_seen_count(count)?;
            builder.edit().set_seen_len(len)
        })?;
        Ok(Response::new(answer))
    }

    type BothStream = Answers;

    async fn both(&self, request: Request<Streaming<Owned<Ask>>>) -> Result<Response<Answers>, Status> {
        let this = self.clone();
        let answers = request.into_inner().map(move |ask| this.answer(ask?.view(), &[]));
        Ok(Response::new(Box::pin(answers)))
    }
}

/// A server by shared memory and HTTP/2, and a channel of each.
pub(crate) struct Place {
    /// Where the server is met over shared memory.
    pub(crate) address: String,
    pub(crate) shm: Channel,
    pub(crate) http2: Channel,
    serving: tokio::task::JoinHandle<()>,
    _directory: tempfile::TempDir,
}

impl Place {
    pub(crate) async fn new(server: Server) -> Place {
        let directory = tempfile::tempdir().unwrap();
        let shm = format!("shm://{}", directory.path().join("s.sock").display());
        let http = format!("http://{}", tollfree_testkit::free_address());
        let uris = [shm.clone(), http.clone()];
        let serving =
            tokio::spawn(async move { server.serve_many(uris.iter().map(String::as_str)).await.unwrap() });
        let (to_shm, to_http2) = (connect(&shm).await, connect(&http).await);
        Place { address: shm, shm: to_shm, http2: to_http2, serving, _directory: directory }
    }

    pub(crate) fn channels(&self) -> [Channel; 2] {
        [self.shm.clone(), self.http2.clone()]
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A channel, once somebody is there.
async fn connect(uri: &str) -> Channel {
    loop {
        match Channel::connect(uri).await {
            Ok(channel) => return channel,
            Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}
