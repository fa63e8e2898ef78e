//! One client's session on the server: accepts its calls and serves them.

use std::collections::HashMap;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, TE, USER_AGENT};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Extensions, HeaderMap, Method, Request, Uri, Version};
use http_body_util::Full;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};
use tollfree_driver_tokio::{
    Accepted, Attachment, Call, Closed, GRPC_PREFIX_LEN, Incoming, PeerPool, now_ns,
};
use tollfree_layout::MethodIdx;
use tollfree_layout::metadata::pairs;
use tollfree_os::tonic_uds::UdsConnectInfo;
use tollfree_pool::Pool;
use tollfree_processor::Trust;
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;

use crate::call::attempts::deadline_ns;
use crate::call::deadline::Deadlines;
use crate::endpoint::chance;
use crate::message::encoding::says_encoding;
use crate::message::out_of_band::{OfServer, OutOfBand};
use crate::message::payloads::Sharing;
use crate::message::relay::Offer;
use crate::metadata::template::Templates;
use crate::metadata::{GRPC, GRPC_TIMEOUT, timeout_value, unpack, unpack_custom};
use crate::metrics::{Metrics, ServedCall};
use crate::server::Http2Setup;
use crate::server::call_tasks::CallTasks;
use crate::server::caller::{Callers, ClientRole};
use crate::server::control::is_control;
use crate::server::http_handle::{ErasedService, HeldStream, HttpHandle};
use crate::server::inline_policy::InlinePolicy;
use crate::server::load::{CallAdmission, CountedCall, Tally};
use crate::server::request_body::RequestBody;
use crate::server::serving::Serving;
use crate::server::typed::method::{DirectMethod, TypedCall};
use crate::server::typed::run::{Found, Passing};
use crate::status;

/// A service, and the shorter way to it if it has one.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) handler: Arc<dyn ErasedService>,
    pub(crate) direct: Option<Found>,
}

/// Services by name, shared by all sessions of a server.
pub(crate) type Services = Arc<HashMap<&'static str, Served>>;

/// What all sessions of a server have in common.
pub(crate) struct ServerContext {
    pub(crate) services: Services,
    /// Whatever serves calls to other names.
    pub(crate) others: Option<Arc<dyn ErasedService>>,
    /// All of it for tonic's server.
    pub(crate) routes: Routes,
    pub(crate) tally: Arc<Tally>,
    pub(crate) metrics: Option<Metrics>,
    pub(crate) sharing: Arc<Sharing>,
    pub(crate) age: Age,
    /// How long a handler may take.
    pub(crate) timeout: Option<Duration>,
    /// Handlers that are called directly see what HTTP/2 would have carried with the metadata.
    pub(crate) http_details: bool,
    /// What is done to tonic's server for addresses of HTTP/2.
    pub(crate) http2: Option<Http2Setup>,
    /// Sessions that are served.
    pub(crate) sessions: Arc<AtomicUsize>,
    /// Set where a thread serves and does nothing else: the sessions on it.
    pub(crate) backend_connection: Option<Arc<AtomicUsize>>,
    /// Calls are failed over to other sessions, which may take objects.
    pub(crate) relays_objects: bool,
}

/// How old a session may become.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Age {
    pub(crate) age: Option<Duration>,
    /// How long its calls may go on then.
    pub(crate) grace: Option<Duration>,
}

impl Age {
    /// The age for one session: a tenth more or less.
    pub(crate) fn jittered(&self) -> Option<Duration> {
        self.age.map(|age| age.mul_f64(0.9 + 0.2 * chance()))
    }
}

/// How a session comes to its end.
struct Ending {
    /// The next thing to happen to it, and when.
    alarm: Option<Pin<Box<Sleep>>>,
    draining: bool,
    /// Why it is closed when its calls have ended.
    reason: &'static str,
}

impl Ending {
    fn new(age: &Age) -> Ending {
        let alarm = age.jittered().map(|age| Box::pin(tokio::time::sleep(age)));
        Ending { alarm, draining: false, reason: "the server is shutting down" }
    }

    /// Resolves when something is to happen.
    async fn alarmed(alarm: &mut Option<Pin<Box<Sleep>>>) {
        match alarm {
            Some(alarm) => alarm.as_mut().await,
            None => std::future::pending().await,
        }
    }
}

/// What every gRPC request says that it can take.
const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");
/// What gRPC calls the host of a local socket.
const AUTHORITY: &str = "localhost";
/// Calls served in the session's own task before it looks at the ring again.
const INLINE_COUNT: usize = 16;
/// Calls of one session after which the others of the server have their turn, those included whose doorbells the runtime has not heard
/// yet. Few enough that a client which fills its ring while it is served gets little more than one that can't, as the server has
/// its processor.
const TURN_COUNT: usize = 16;
/// A session that is to end waits at most so long for its client to take hold of payloads that were sent by ref.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_STEP: Duration = Duration::from_millis(1);

/// What is known of a method after its first call.
struct MethodEntry {
    handler: Option<Arc<dyn ErasedService>>,
    direct: Option<DirectMethod>,
    /// Served by a generated server and nothing around it, so that large messages may go past tonic.
    is_generated: bool,
    /// The fingerprint of its types, where a generated server takes objects.
    types: Option<u64>,
    /// Set where its calls are failed over to other sessions, which may take objects.
    offer: Option<Arc<Offer>>,
    uri: Uri,
    pace: InlinePolicy,
    /// The gateway's own: no call of the application's, and it stands for as long as the gateway likes.
    is_control: bool,
}

pub(crate) struct SessionTask {
    attachment: Arc<Attachment>,
    duty: Arc<ServerContext>,
    /// How payloads are passed in this session.
    sharing: Arc<Sharing>,
    /// By their indices in the session, of which there is a limited number.
    methods: Vec<Option<MethodEntry>>,
    /// Given to each request: who is at the other end.
    extensions: Extensions,
    /// Those of the next call, made while the client has the turn.
    spare: Option<Extensions>,
    /// The headers of a request without metadata, and those of the next one.
    headers: HeaderMap,
    spare_headers: Option<HeaderMap>,
    /// Of requests with metadata, by their methods.
    templates: Templates,
    /// Set in a session with a gateway: whom its calls come from.
    callers: Option<Callers>,
    /// Set in a session with a gateway: what answers the gateway's own calls.
    control: Option<Arc<dyn ErasedService>>,
    /// Set in a session with a gateway whose objects need not be verified.
    trust: Option<Trust>,
    tasks: CallTasks,
    /// Set where the thread serves sessions and does nothing else: how many there are.
    backend_connection: Option<Seat>,
    /// Among all sessions of the server.
    seat: Seat,
    /// Calls that were served since others had their turn.
    turn_count: usize,
}

/// One session's place among those of a server, or of a thread that serves sessions and does nothing else. Counts them.
#[derive(Debug)]
pub(crate) struct Seat(Arc<AtomicUsize>);

impl Seat {
    pub(crate) fn take(count: &Arc<AtomicUsize>) -> Seat {
        count.fetch_add(1, Ordering::Relaxed);
        Seat(count.clone())
    }

    fn is_only_one(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 1
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SessionTask {
    pub(crate) fn new(attachment: impl Into<Arc<Attachment>>, duty: Arc<ServerContext>) -> SessionTask {
        let attachment = attachment.into();
        let mut extensions = Extensions::new();
        // The same as behind a Unix socket of tonic's, so that handlers need not know the difference. One value: each call
        // clones it, and a second one would take an allocation more.
        extensions
            .insert(UdsConnectInfo { peer_addr: attachment.peer_addr(), peer_cred: attachment.peer_cred() });
        let agent = HeaderValue::from_str(attachment.agent());
        let headers = headers(agent.unwrap_or(HeaderValue::from_static("tollfree")));
        duty.tally.attach(&attachment);
        if let Some(metrics) = &duty.metrics {
            metrics.watch_session(&attachment);
        }
        let backend_connection = duty.backend_connection.as_ref().map(Seat::take);
        let seat = Seat::take(&duty.sessions);
        let sharing = duty.sharing.clone();
        SessionTask {
            attachment,
            duty,
            sharing,
            methods: Vec::new(),
            extensions,
            spare: None,
            spare_headers: None,
            templates: Templates::default(),
            callers: None,
            control: None,
            trust: None,
            headers,
            tasks: CallTasks::default(),
            backend_connection,
            seat,
            turn_count: 0,
        }
    }

    /// Gives something more to each request.
    pub(crate) fn with<T: Clone + Send + Sync + 'static>(mut self, extension: T) -> SessionTask {
        self.extensions.insert(extension);
        self
    }

    /// The client is a gateway that this server has attached to: what it says of callers is true, and whom it names is let in. It
    /// may be trusted with objects, and name a pool then that these lie in.
    pub(crate) fn of_gateway(
        mut self,
        control: Arc<dyn ErasedService>,
        trust: Option<Trust>,
        reads_in: Arc<OnceLock<Pool>>,
    ) -> SessionTask {
        self.trust = trust;
        let mut sharing = (*self.duty.sharing).clone();
        sharing.pool = sharing.pool.filter(|_| self.attachment.peer_pool() == PeerPool::Same);
        sharing.reads_in = reads_in;
        self.sharing = Arc::new(sharing);
        self.callers = Some(Callers::default());
        self.control = Some(control);
        self
    }

    /// The client is a process that the gateway has named: its handlers are told that it calls, as they are of others' calls.
    pub(crate) fn of_neighbor(mut self) -> SessionTask {
        self.callers = Some(Callers::of_neighbor(self.attachment.peer()));
        self
    }

    /// Serves until the session ends, or until `shutdown` and all calls are answered.
    pub(crate) async fn run(mut self, mut shutdown: watch::Receiver<bool>) {
        let asked = shutdown.clone();
        let stop = async move { drop(shutdown.wait_for(|stop| *stop).await) };
        tokio::pin!(stop);
        let mut ending = Ending::new(&self.duty.age);
        let mut linger = None;
        let attachment = self.attachment.clone();
        loop {
            if !ending.draining && asked.has_changed().unwrap_or(true) {
                self.drain(&mut ending);
            }
            let is_over = ending.draining && attachment.live_count() == 0;
            tokio::select! {
                biased;
                closed = poll_fn(|cx| self.poll_calls(cx, &attachment, ending.draining, &asked)) => match closed {
                    Ok(()) => {}
                    Err(closed) => {
                        tracing::debug!(reason = %closed, "a session ended");
                        return;
                    }
                },
                () = &mut stop, if !ending.draining => self.drain(&mut ending),
                () = Ending::alarmed(&mut ending.alarm), if ending.alarm.is_some() => {
                    if ending.draining {
                        attachment.close("the session is older than the server allows, and so were its calls");
                        return;
                    }
                    ending.reason = "the session has reached its greatest age";
                    self.drain(&mut ending);
                    ending.alarm = self.duty.age.grace.map(|grace| Box::pin(tokio::time::sleep(grace)));
                }
                () = all_is_taken(&attachment, &mut linger), if is_over => {
                    attachment.close(ending.reason);
                    return;
                }
            }
        }
    }

    /// Serves calls as they come. Ready when a session that drains, or is to, has got further.
    ///
    /// # Errors
    /// Ready with the reason when the session is over.
    fn poll_calls(
        &mut self,
        cx: &mut Context<'_>,
        attachment: &Attachment,
        draining: bool,
        asked: &watch::Receiver<bool>,
    ) -> Poll<Result<(), Closed>> {
        let mut place = None;
        loop {
            // Calls that never stop coming must keep neither the shutdown nor other tasks waiting.
            let turn = ready!(tokio::task::coop::poll_proceed(cx));
            if let Some(seat) = &self.backend_connection {
                // With others on the thread, other sessions or handlers, nobody may spin for long.
                attachment.set_dedicated(self.tasks.is_empty() && seat.is_only_one());
            }
            match attachment.poll_accept(cx, &mut place) {
                Poll::Ready(came) => came?,
                Poll::Pending => break,
            }
            turn.made_progress();
            self.turn_count += self.serve_batch(cx, attachment, &mut place);
            if self.turn_count >= TURN_COUNT {
                self.turn_count = 0;
                if !self.seat.is_only_one() {
                    attachment.offer();
                    // Whatever the runtime has to hear of comes first.
                    return pin!(tokio::task::yield_now()).poll(cx).map(Ok);
                }
            }
            if draining || asked.has_changed().unwrap_or(true) {
                return Poll::Ready(Ok(()));
            }
        }
        if !draining && self.backend_connection.is_none() {
            // Nothing depends on the calls under way.
            return Poll::Pending;
        }
        self.tasks.poll_end(cx).map(Ok)
    }

    /// Takes no more calls; those under way go on.
    fn drain(&self, ending: &mut Ending) {
        self.attachment.drain();
        ending.draining = true;
        ending.alarm = None;
    }

    /// Takes the first steps of calls right here, of the one in `place` and for as long as there are some at hand. Returns how many.
    fn serve_batch<'a>(
        &mut self,
        cx: &mut Context<'_>,
        attachment: &'a Attachment,
        place: &mut Option<Accepted<'a>>,
    ) -> usize {
        let mut served = 0;
        for count in 1..=INLINE_COUNT {
            served = count;
            if !self.serve_whole(cx, place)
                && let Some(accepted) = place.take()
            {
                let is_known = self.known(accepted.method()).is_some();
                let mut call = accepted.into_call(!is_known);
                let incoming = call.first.take();
                self.serve(cx, call, incoming);
            }
            if count == INLINE_COUNT || !attachment.try_accept(place) {
                break;
            }
        }
        served
    }

    /// Serves a call that came as a whole and whose handler answers at once, without all that is for calls that go on.
    /// `false`: it is another one, and nothing was done. One that goes on after all does so in a task.
    fn serve_whole(&mut self, cx: &mut Context<'_>, place: &mut Option<Accepted<'_>>) -> bool {
        let Some(accepted) = place else { return true };
        let Some(method) = accepted.method() else { return false };
        let deadlines = self.deadlines(accepted.deadline_ns());
        let Ok(left) = time_left(deadlines.handler_ns()) else { return false };
        let Some(Some(known)) = self.methods.get_mut(usize::from(method.0)) else { return false };
        let (Some(direct), true) = (&mut known.direct, known.pace.is_next_inline()) else { return false };
        if self.duty.tally.is_counting() || self.duty.metrics.is_some() || !direct.takes_some() {
            return false;
        }
        let (key, block) = (usize::from(method.0), accepted.headers());
        let mut headers = HeaderMap::new();
        if self.duty.http_details {
            if says_encoding(block) {
                return false;
            }
            headers = all_headers(self.headers.clone(), block);
        } else if !block.is_empty() {
            headers = match self.templates.like_before(key, block) {
                Some(headers) => headers,
                // That is left to tonic.
                None if says_encoding(block) => return false,
                None => self.templates.anew(key, block),
            };
        }
        let Some(whole) = accepted.take_whole() else { return false };
        insert_timeout(&mut headers, left);
        let mut extensions = self.spare.take().unwrap_or_else(|| self.extensions.clone());
        if let Some(callers) = &mut self.callers {
            callers.tell(&mut headers, &mut extensions);
        }
        if !known.pace.quick {
            self.attachment.flush();
        }
        let began = known.pace.is_timed().then(now_ns);
        let Some(accepted) = place.take() else { return true };
        let outlet = &*self.attachment;
        let left = direct.serve_in_place(cx, accepted, whole, headers, extensions, deadlines, outlet);
        if let Some(began) = began {
            known.pace.learn(now_ns() - began);
        }
        if let Some(left) = left {
            self.tasks.spawn(direct.rest(left), None);
        }
        self.templates.prepare(key);
        self.prepare();
        true
    }

    /// Makes what the next call needs of its own, while the client has the turn.
    fn prepare(&mut self) {
        if self.spare.is_none() {
            self.spare = Some(self.extensions.clone());
        }
    }

    /// Takes the first step of a call right here; what can't be answered at once goes on in a task.
    fn serve(&mut self, cx: &mut Context<'_>, call: Call, incoming: Option<Incoming>) {
        let method = call.method;
        if self.is_control(&call) {
            let (serving, _) = self.begin(call, incoming, None);
            return self.spawn(method, serving, None);
        }
        let record = self.duty.metrics.clone().map(|metrics| match self.known(method) {
            Some(known) => metrics.serve(known.uri.path()),
            None => metrics.serve(std::str::from_utf8(&call.path).unwrap_or_default()),
        });
        let counted = match self.duty.tally.admit() {
            CallAdmission::Uncounted => None,
            CallAdmission::Counted(counted) => Some(counted),
            CallAdmission::Shed(refusal) => {
                let deadlines = Deadlines::of_client(call.deadline_ns);
                let mut refused = Serving::refused(HeldStream::Own(call.stream), refusal, deadlines, record);
                if Pin::new(&mut refused).poll(cx).is_pending() {
                    self.tasks.spawn(refused, None);
                }
                return;
            }
        };
        let (mut serving, inline) = self.begin(call, incoming, record);
        if !inline {
            self.spawn(method, serving, counted);
            return;
        }
        if !self.known(method).is_some_and(|known| known.pace.quick) {
            self.attachment.flush();
        }
        let is_timed = self.known(method).is_none_or(|known| known.pace.is_timed());
        let began = if is_timed { now_ns() } else { 0 };
        let polled = Pin::new(&mut serving).poll(cx);
        if is_timed {
            let step_ns = now_ns() - began;
            if let Some(known) = self.known(method) {
                known.pace.learn(step_ns);
            }
        }
        if polled.is_pending() {
            self.spawn(method, serving, counted);
        } else if let TypedCall::Direct(serving) = serving
            && let Some(direct) = self.known(method).and_then(|known| known.direct.as_mut())
        {
            direct.ended(serving);
        } else if self.spare_headers.is_none() {
            self.spare_headers = Some(self.headers.clone());
        }
        self.prepare();
    }

    /// Whether a call is the gateway's own, which counts with none of the application's.
    fn is_control(&mut self, call: &Call) -> bool {
        self.control.is_some()
            && match self.known(call.method) {
                Some(known) => known.is_control,
                None => is_control(&call.path),
            }
    }

    /// Serves the rest of a call in a task of its own.
    fn spawn(&mut self, method: Option<MethodIdx>, serving: TypedCall, counted: Option<CountedCall>) {
        let serving = match serving {
            TypedCall::Http(serving) => return self.tasks.spawn(serving, counted),
            TypedCall::Direct(serving) => serving,
        };
        if let Some(direct) = self.known(method).and_then(|known| known.direct.as_ref()) {
            let rest = direct.rest(serving);
            self.tasks.spawn(rest, counted);
        }
    }

    fn known(&mut self, method: Option<MethodIdx>) -> Option<&mut MethodEntry> {
        self.methods.get_mut(usize::from(method?.0))?.as_mut()
    }

    /// When a call is over: at its client's deadline, or when the server says.
    #[inline]
    fn deadlines(&self, client_ns: Option<u64>) -> Deadlines {
        match self.duty.timeout {
            None => Deadlines::of_client(client_ns),
            Some(timeout) => Deadlines::with_timeout(client_ns, deadline_ns(timeout)),
        }
    }

    /// Begins a call; `incoming` came with it.
    fn begin(
        &mut self,
        call: Call,
        incoming: Option<Incoming>,
        record: Option<ServedCall>,
    ) -> (TypedCall, bool) {
        let mut deadlines = self.deadlines(call.deadline_ns);
        let client = self.callers.as_ref().map_or(ClientRole::Caller, Callers::role);
        let (peer, trust) = (self.attachment.peer_pool(), self.trust);
        let passing = || Passing { sharing: self.sharing.clone(), peer, client, trust };
        let mut unlisted;
        let place = match call.method.map(|method| usize::from(method.0)) {
            Some(idx) => {
                if self.methods.len() <= idx {
                    self.methods.resize_with(idx + 1, || None);
                }
                &mut self.methods[idx]
            }
            // More names than a session keeps an index of: nothing is learnt about these, or the list had no end.
            None => {
                unlisted = None;
                &mut unlisted
            }
        };
        if place.is_none() {
            *place = known(&call.path, &self.duty, passing);
            if let (Some(known), Some(control)) = (place.as_mut(), &self.control)
                && is_control(&call.path)
            {
                let handler = Some(control.clone());
                (known.handler, known.direct, known.types) = (handler, None, None);
                (known.is_generated, known.is_control) = (false, true);
            }
            let types = place.as_ref().and_then(|known| known.types);
            // Of a method without an index nothing can be said.
            if let (Some(types), Some(method)) = (types, call.method) {
                self.attachment.take_objects(method, types);
            }
            if let (true, Some(known), Some(method)) = (self.duty.relays_objects, place.as_mut(), call.method)
            {
                known.offer = Some(Arc::new(Offer::new(self.attachment.clone(), method)));
            }
        }
        let Some(known) = place else {
            let refusal = Status::unimplemented("the method's path is not one of gRPC's");
            let refused = Serving::refused(HeldStream::Own(call.stream), refusal, deadlines, record);
            return (TypedCall::Http(refused), true);
        };
        if known.is_control {
            deadlines = Deadlines::of_client(call.deadline_ns);
        }
        let Some(handler) = &known.handler else {
            let refusal =
                Status::unimplemented(format!("no service here has the method {}", known.uri.path()));
            let refused = Serving::refused(HeldStream::Own(call.stream), refusal, deadlines, record);
            return (TypedCall::Http(refused), true);
        };
        if let Some(record) = &record {
            record.is_served();
        }
        let left = match time_left(deadlines.handler_ns()) {
            Ok(left) => left,
            Err(late) => {
                let refused = Serving::refused(HeldStream::Own(call.stream), late, deadlines, record);
                return (TypedCall::Http(refused), true);
            }
        };
        let inline = known.pace.is_inline();
        let mut extensions = self.spare.take().unwrap_or_else(|| self.extensions.clone());
        let (headers, callers) = (&mut self.spare_headers, &mut self.callers);
        if let Some(direct) = &mut known.direct
            && let Some(mut place) = direct.place(&call)
        {
            if direct.is_intercepted() {
                let headers = headers.take().unwrap_or_else(|| self.headers.clone());
                let request = request(&call, known.uri.clone(), left, headers, extensions, callers);
                direct.begin_intercepted(&mut place, call, incoming, &**handler, request, deadlines, record);
            } else {
                let mut headers = HeaderMap::new();
                if self.duty.http_details {
                    headers = all_headers(self.headers.clone(), &call.headers);
                } else {
                    unpack_custom(&call.headers, &mut headers);
                }
                insert_timeout(&mut headers, left);
                if let Some(callers) = callers {
                    callers.tell(&mut headers, &mut extensions);
                }
                direct.begin(&mut place, call, incoming, headers, extensions, deadlines, record);
            }
            return (TypedCall::Direct(place), inline);
        }
        let headers = headers.take().unwrap_or_else(|| self.headers.clone());
        let mut request = request(&call, known.uri.clone(), left, headers, extensions, callers);
        let passing = passing();
        let passes_refs =
            known.is_generated && passing.peer == PeerPool::Same && passing.sharing.pool.is_some();
        let out_of_band = match &known.offer {
            Some(offer) => Some(OutOfBand::of_relay(offer.clone())),
            None => (passes_refs || known.types.is_some()).then(|| OutOfBand::of_server(known.types, trust)),
        };
        if let Some(out_of_band) = &out_of_band {
            request.extensions_mut().insert(OfServer(out_of_band.clone()));
        }
        // Whether an object is taken is known when the service has been called. Its bytes are no message to one that takes none.
        let has_object = incoming.as_ref().is_some_and(Incoming::has_object);
        let request_or_rest = match incoming {
            Some(incoming) if !has_object => incoming.into_request().map_err(Some),
            rest => Err(rest),
        };
        let stream = match request_or_rest {
            Ok(message) => {
                let len = message.len().saturating_sub(GRPC_PREFIX_LEN);
                passing.sharing.received_inline(len, 0);
                if let Some(record) = &record {
                    record.received(len);
                }
                *request.body_mut() = Body::new(Full::new(message));
                HeldStream::Own(call.stream)
            }
            Err(rest) => {
                let stream = Arc::new(call.stream);
                let sharing = passing.sharing.clone();
                let until_ns = deadlines.handler_ns();
                let body = RequestBody::new(stream.clone(), until_ns, rest, sharing, out_of_band.clone());
                let body = Body::new(body);
                *request.body_mut() = match &record {
                    None => body,
                    Some(record) => record.tell_received(body, out_of_band.clone()),
                };
                HeldStream::Shared(stream)
            }
        };
        // What the service does at once, it must not take the session's other calls with it by.
        let serving = match std::panic::catch_unwind(AssertUnwindSafe(|| handler.begin(request))) {
            Ok(handling) => {
                let mut serving = Serving::idle(HttpHandle::new(handling, passing, out_of_band));
                serving.begin(stream, deadlines, record);
                serving
            }
            Err(_) => Serving::refused(stream, Status::internal("the handler panicked"), deadlines, record),
        };
        (TypedCall::Http(serving), inline)
    }
}

/// Ready when the client has taken hold of all payloads that were sent to it, or has had the time to.
async fn all_is_taken(attachment: &Attachment, linger: &mut Option<Instant>) {
    let until = *linger.get_or_insert_with(|| Instant::now() + LINGER);
    while attachment.segmented_messages_in_flight() > 0 && Instant::now() < until {
        attachment.look_for_taken();
        tokio::time::sleep(LINGER_STEP).await;
    }
}

/// What HTTP/2 would have made of a call, with `headers` as every request has them.
fn request(
    call: &Call,
    uri: Uri,
    left: Option<Duration>,
    headers: HeaderMap,
    mut extensions: Extensions,
    callers: &mut Option<Callers>,
) -> Request<Body> {
    let mut headers = all_headers(headers, &call.headers);
    insert_timeout(&mut headers, left);
    if let Some(callers) = callers {
        callers.tell(&mut headers, &mut extensions);
    }
    let mut request = Request::new(Body::empty());
    *request.method_mut() = Method::POST;
    *request.version_mut() = Version::HTTP_2;
    *request.uri_mut() = uri;
    *request.extensions_mut() = extensions;
    *request.headers_mut() = headers;
    request
}

/// The headers that every request has, and those of a call's block.
fn all_headers(usual: HeaderMap, block: &[u8]) -> HeaderMap {
    if block.is_empty() {
        return usual;
    }
    // Room for all of them at once.
    let mut headers = HeaderMap::with_capacity(usual.len() + 1 + pairs(block).count());
    headers.extend(usual);
    if says_agent(block) {
        headers.remove(USER_AGENT);
    }
    unpack(block, &mut headers);
    headers.insert(TE, TRAILERS);
    headers
}

/// The headers that HTTP/2 would have carried on every request.
fn headers(agent: HeaderValue) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(6);
    headers.insert(CONTENT_TYPE, GRPC);
    headers.insert(TE, TRAILERS);
    headers.insert(USER_AGENT, agent);
    // A copy has memory for just these, and every session keeps one.
    headers.clone()
}

/// Whether the application says what it calls itself.
fn says_agent(block: &[u8]) -> bool {
    pairs(block).flatten().any(|(name, _)| name.as_bytes() == USER_AGENT.as_str().as_bytes())
}

/// What is left of a call's time, where it has a deadline.
///
/// # Errors
/// The status of a call whose deadline has passed before its handler could begin.
#[inline]
fn time_left(deadline_ns: Option<u64>) -> Result<Option<Duration>, Status> {
    let Some(deadline_ns) = deadline_ns else { return Ok(None) };
    match deadline_ns.checked_sub(now_ns()) {
        None | Some(0) => Err(status::deadline()),
        Some(left) => Ok(Some(Duration::from_nanos(left))),
    }
}

fn insert_timeout(headers: &mut HeaderMap, left: Option<Duration>) {
    if let Some(left) = left {
        headers.insert(GRPC_TIMEOUT, timeout_value(left));
    }
}

/// Finds the service of a path. `None`: the path is not one.
fn known(path: &Bytes, duty: &ServerContext, passing: impl FnOnce() -> Passing) -> Option<MethodEntry> {
    let text = std::str::from_utf8(path).ok()?;
    let (service, method) = text.strip_prefix('/')?.split_once('/')?;
    // A query or a fragment is no part of a method's path, and would be passed over by code that looks at a URI's path.
    if method.is_empty() || method.contains('/') || text.contains(['?', '#']) {
        return None;
    }
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(Authority::from_static(AUTHORITY));
    parts.path_and_query = Some(PathAndQuery::from_maybe_shared(path.clone()).ok()?);
    let uri = Uri::from_parts(parts).ok()?;
    let served = duty.services.get(service);
    let handler = served.map(|served| &served.handler).or(duty.others.as_ref()).cloned();
    let found = served.and_then(|served| served.direct.as_ref());
    let direct = found.and_then(|found| DirectMethod::new(found.clone(), method, passing()));
    let types = found.and_then(|found| found.direct.types(method)).map(|types| types.fingerprint);
    let (is_generated, pace) = (found.is_some(), InlinePolicy::default());
    Some(MethodEntry { handler, direct, is_generated, types, offer: None, uri, pace, is_control: false })
}
