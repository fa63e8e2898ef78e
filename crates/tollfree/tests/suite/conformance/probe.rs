//! The service under test: does what each request asks for, and says what it saw.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::stubs::probe::probe_server;
use crate::stubs::probe::{Answer, Ask, Fault};
use futures_util::stream::{self, BoxStream};
use tokio::net::unix::UCred;
use tonic::metadata::{KeyAndValueRef, MetadataMap};
use tonic::transport::server::UdsConnectInfo;
use tonic::{Code, Request, Response, Status, Streaming};

/// What handlers have been through.
#[derive(Clone, Debug, Default)]
pub(crate) struct Witness {
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    begun: AtomicUsize,
    /// Handlers and response streams that exist now, and the most there were.
    live: AtomicUsize,
    peak: AtomicUsize,
    /// Messages that response streams have handed out, and that request streams have given.
    sent: AtomicUsize,
    read: AtomicUsize,
    /// How request streams have ended, as far as somebody has read them so far: `None` for a half-close.
    ends: Mutex<Vec<Option<Code>>>,
}

impl Witness {
    pub(crate) fn begun(&self) -> usize {
        self.counts.begun.load(Ordering::SeqCst)
    }
    pub(crate) fn live(&self) -> usize {
        self.counts.live.load(Ordering::SeqCst)
    }
    pub(crate) fn peak(&self) -> usize {
        self.counts.peak.load(Ordering::SeqCst)
    }
    pub(crate) fn sent(&self) -> usize {
        self.counts.sent.load(Ordering::SeqCst)
    }
    pub(crate) fn read(&self) -> usize {
        self.counts.read.load(Ordering::SeqCst)
    }

    #[allow(dead_code, reason = "not every suite cuts streams")]
    pub(crate) fn ends(&self) -> Vec<Option<Code>> {
        self.counts.ends.lock().unwrap().clone()
    }

    /// The next ask of a stream, witnessed.
    async fn next(&self, asks: &mut Streaming<Ask>) -> Result<Option<Ask>, Status> {
        let next = asks.message().await;
        match &next {
            Ok(Some(_)) => _ = self.counts.read.fetch_add(1, Ordering::SeqCst),
            Ok(None) => self.counts.ends.lock().unwrap().push(None),
            Err(status) => self.counts.ends.lock().unwrap().push(Some(status.code())),
        }
        next
    }

    /// Reads a stream in a task of its own, which goes on when the handler is dropped.
    fn read_aside(&self, mut asks: Streaming<Ask>) -> tokio::task::JoinHandle<()> {
        let witness = self.clone();
        tokio::spawn(async move { while let Ok(Some(_)) = witness.next(&mut asks).await {} })
    }

    fn enter(&self) -> Presence {
        self.counts.begun.fetch_add(1, Ordering::SeqCst);
        let live = self.counts.live.fetch_add(1, Ordering::SeqCst) + 1;
        self.counts.peak.fetch_max(live, Ordering::SeqCst);
        Presence(self.clone())
    }
}

/// Held by a handler for as long as it, or the stream it returned, exists.
struct Presence(Witness);

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.counts.live.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Probe {
    witness: Witness,
}

impl Probe {
    pub(crate) fn new(witness: Witness) -> Probe {
        Probe { witness }
    }
}

/// What a handler has seen of its request.
#[derive(Clone, Default)]
struct Seen {
    count: u32,
    len: u64,
    headers: Vec<String>,
    caller: Option<UCred>,
}

impl Seen {
    fn of<T>(request: &Request<T>) -> Seen {
        let headers = lines(request.metadata());
        let caller = request.extensions().get::<UdsConnectInfo>().and_then(|caller| caller.peer_cred);
        Seen { headers, caller, ..Seen::default() }
    }

    fn add(&mut self, ask: &Ask) {
        self.count += 1;
        self.len += ask.body.len() as u64;
    }

    fn answer(&self, body: Vec<u8>) -> Answer {
        Answer {
            body,
            seen_count: self.count,
            seen_len: self.len,
            headers: self.headers.clone(),
            peer_pid: self.caller.and_then(|caller| caller.pid()).map_or(0, |pid| pid as u32),
            peer_uid: self.caller.map_or(u32::MAX, |caller| caller.uid()),
        }
    }
}

/// Metadata as `name: value`, in order; binary values as they travel.
pub(crate) fn lines(metadata: &MetadataMap) -> Vec<String> {
    let line = |pair: KeyAndValueRef<'_>| match pair {
        KeyAndValueRef::Ascii(name, value) => {
            format!("{name}: {}", String::from_utf8_lossy(value.as_encoded_bytes()))
        }
        KeyAndValueRef::Binary(name, value) => {
            format!("{name}: {}", String::from_utf8_lossy(value.as_encoded_bytes()))
        }
    };
    metadata.iter().map(line).collect()
}

/// Bytes that tell their place, so that a swapped or lost piece shows.
pub(crate) fn pattern(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed ^ 0x9e37_79b9;
    let mut bytes = Vec::with_capacity(len + 4);
    while bytes.len() < len {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Those pairs of the request's metadata that are to come back.
fn echoed(metadata: &MetadataMap, prefix: &str) -> MetadataMap {
    let mut headers = http::HeaderMap::new();
    for (name, value) in metadata.clone().into_headers().iter() {
        if name.as_str().starts_with(prefix) {
            headers.append(name.clone(), value.clone());
        }
    }
    MetadataMap::from_headers(headers)
}

fn fail(fault: &Fault, trailing: MetadataMap) -> Status {
    assert!(!fault.panic, "as asked");
    let code = Code::from_i32(fault.code);
    Status::with_details_and_metadata(code, fault.message.clone(), fault.details.clone().into(), trailing)
}

async fn pause(millis: u32) {
    if millis > 0 {
        tokio::time::sleep(Duration::from_millis(millis.into())).await;
    }
}

fn burn(micros: u32) {
    let until = Instant::now() + Duration::from_micros(micros.into());
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// The body of answer `number` to an ask, while there is one.
fn body_of(ask: &Ask, number: usize) -> Option<Vec<u8>> {
    if ask.lens.is_empty() && ask.fault.is_none() {
        return (number == 0).then(|| ask.body.clone());
    }
    ask.lens.get(number).map(|len| pattern(*len as usize, number as u32))
}

fn respond<T>(message: T, headers: MetadataMap) -> Response<T> {
    let mut response = Response::new(message);
    *response.metadata_mut() = headers;
    response
}

type Answers = BoxStream<'static, Result<Answer, Status>>;

/// The answers that a handler still has to give, to one ask after the other.
struct Giving {
    presence: Presence,
    seen: Seen,
    trailing: MetadataMap,
    asks: Option<Streaming<Ask>>,
    ask: Ask,
    /// Answers given to it.
    given: usize,
}

impl Giving {
    async fn next(&mut self) -> Result<Option<Answer>, Status> {
        loop {
            if let Some(body) = body_of(&self.ask, self.given) {
                pause(if self.given == 0 { self.ask.wait_ms } else { self.ask.pause_ms }).await;
                burn(self.ask.burn_us);
                self.given += 1;
                self.presence.0.counts.sent.fetch_add(1, Ordering::SeqCst);
                return Ok(Some(self.seen.answer(body)));
            }
            if let Some(fault) = self.ask.fault.take() {
                return Err(fail(&fault, self.trailing.clone()));
            }
            let Some(asks) = &mut self.asks else { return Ok(None) };
            let Some(ask) = self.presence.0.next(asks).await? else { return Ok(None) };
            self.seen.add(&ask);
            self.given = 0;
            self.ask = ask;
        }
    }

    fn stream(self) -> Answers {
        Box::pin(stream::unfold(Some(self), |state| async move {
            let mut giving = state?;
            match giving.next().await {
                Ok(answer) => answer.map(|answer| (Ok(answer), Some(giving))),
                Err(status) => Some((Err(status), None)),
            }
        }))
    }
}

#[tonic::async_trait]
impl probe_server::Probe for Probe {
    async fn unary(&self, request: Request<Ask>) -> Result<Response<Answer>, Status> {
        let _presence = self.witness.enter();
        let mut seen = Seen::of(&request);
        let headers = echoed(request.metadata(), "x-head");
        let trailing = echoed(request.metadata(), "x-trail");
        let ask = request.into_inner();
        seen.add(&ask);
        pause(ask.wait_ms).await;
        burn(ask.burn_us);
        if let Some(fault) = &ask.fault {
            return Err(fail(fault, trailing));
        }
        Ok(respond(seen.answer(body_of(&ask, 0).unwrap_or_default()), headers))
    }

    type DownStream = Answers;

    async fn down(&self, request: Request<Ask>) -> Result<Response<Answers>, Status> {
        let presence = self.witness.enter();
        let mut seen = Seen::of(&request);
        let headers = echoed(request.metadata(), "x-head");
        let trailing = echoed(request.metadata(), "x-trail");
        let ask = request.into_inner();
        seen.add(&ask);
        if ask.early {
            return Err(fail(&ask.fault.unwrap_or_default(), trailing));
        }
        let giving = Giving { presence, seen, trailing, asks: None, ask, given: 0 };
        Ok(respond(giving.stream(), headers))
    }

    async fn up(&self, request: Request<Streaming<Ask>>) -> Result<Response<Answer>, Status> {
        let presence = self.witness.enter();
        let mut seen = Seen::of(&request);
        let headers = echoed(request.metadata(), "x-head");
        let trailing = echoed(request.metadata(), "x-trail");
        if request.metadata().contains_key("x-refuse") {
            return Err(Status::with_metadata(Code::FailedPrecondition, "not one message read", trailing));
        }
        let says = |name| request.metadata().contains_key(name);
        let (aside, early) = (says("x-aside"), says("x-early"));
        let mut asks = request.into_inner();
        if early {
            drop(presence.0.read_aside(asks));
            return Ok(respond(seen.answer(Vec::new()), headers));
        }
        if aside {
            _ = presence.0.read_aside(asks).await;
            return Ok(respond(seen.answer(Vec::new()), headers));
        }
        while let Some(ask) = presence.0.next(&mut asks).await? {
            seen.add(&ask);
            pause(ask.wait_ms).await;
            if let Some(fault) = &ask.fault {
                return Err(fail(fault, trailing));
            }
            if ask.early {
                break;
            }
        }
        Ok(respond(seen.answer(Vec::new()), headers))
    }

    type BothStream = Answers;

    async fn both(&self, request: Request<Streaming<Ask>>) -> Result<Response<Answers>, Status> {
        let presence = self.witness.enter();
        let seen = Seen::of(&request);
        let headers = echoed(request.metadata(), "x-head");
        let trailing = echoed(request.metadata(), "x-trail");
        if request.metadata().contains_key("x-aside") {
            let reading = presence.0.read_aside(request.into_inner());
            let answers = stream::once(async move {
                let _presence = presence;
                _ = reading.await;
                Ok(seen.answer(Vec::new()))
            });
            return Ok(respond(Box::pin(answers), headers));
        }
        if request.metadata().contains_key("x-apart") {
            let (mut asks, mut seen) = (request.into_inner(), seen);
            let ask = self.witness.next(&mut asks).await?.unwrap_or_default();
            seen.add(&ask);
            drop(presence.0.read_aside(asks));
            let giving = Giving { presence, seen, trailing, asks: None, ask, given: 0 };
            return Ok(respond(giving.stream(), headers));
        }
        let giving = Giving {
            presence,
            seen,
            trailing,
            asks: Some(request.into_inner()),
            ask: Ask::default(),
            // An ask that has been answered.
            given: 1,
        };
        Ok(respond(giving.stream(), headers))
    }
}
