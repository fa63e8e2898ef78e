//! What users of the transport hold: an attachment to a peer, and the streams of its calls.

use std::fmt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tollfree_kill_points::{Point, here};
use tollfree_layout::StreamId;
use tollfree_rendezvous::{Address, PeerIdentity, SocketBeneath};
use tollfree_session::{Closed, Emission, EmitError, Opening, Progress};

use crate::accepted::{Accepted, Call};
use crate::config::Config;
use crate::core::Core;
use crate::handshake::{self, Attached, HandshakeError, PeerPool};
use crate::incoming::{Arrival, Incoming};
use crate::inherited::OfProcess;
use crate::shared::{Shared, Socket};
use crate::stations::{Slot, Token};
use crate::streak::Streak;
use crate::tokens;

/// Why a client did not get a session.
#[derive(Debug, thiserror::Error)]
#[error("{address}: {kind}")]
pub struct ConnectError {
    /// Where to.
    pub address: Address,
    /// What happened.
    #[source]
    pub kind: ConnectErrorKind,
}

/// The kinds of [`ConnectError`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectErrorKind {
    /// There is no socket.
    #[error("no server there (the socket does not exist)")]
    NotFound,
    /// A socket that nobody listens on.
    #[error("no server there (nobody listens on the socket; its server has died)")]
    Stale,
    /// Something else than a socket lies at the path.
    #[error("no server there (the path is {0}, and not a socket): is it the one that the server is told?")]
    NotASocket(&'static str),
    /// No permission to open the socket.
    #[error("no permission to open the socket")]
    Permission,
    /// The socket call failed otherwise.
    #[error("can't connect: {0}")]
    Io(#[source] std::io::Error),
    /// Connected, but no session came of it.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
}

impl ConnectErrorKind {
    /// Whether the same attempt may work later without anybody changing code or settings.
    pub fn is_transient(&self) -> bool {
        match self {
            ConnectErrorKind::Handshake(error) => error.is_transient(),
            ConnectErrorKind::Permission | ConnectErrorKind::NotASocket(_) => false,
            _ => true,
        }
    }
}

/// This side's hold on a session. Dropping it ends the session; calls under way end UNAVAILABLE at both ends.
pub struct Attachment {
    pub(crate) shared: Arc<Shared>,
    accepts: Streak,
}

impl fmt::Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attachment").field("peer", &self.shared.identity).finish_non_exhaustive()
    }
}

/// Connects to the socket. A server whose backlog is full is busy accepting others: it gets the time of a handshake.
async fn dial(path: &Path, limit: Duration) -> std::io::Result<UnixStream> {
    let end = tokio::time::Instant::now() + limit;
    loop {
        match UnixStream::connect(path).await {
            Err(error)
                if error.kind() == std::io::ErrorKind::WouldBlock && tokio::time::Instant::now() < end =>
            {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            result => return result,
        }
    }
}

/// What lies at a path, where that is no socket.
fn other_than_socket(path: &Path) -> Option<&'static str> {
    // An abstract name is no path.
    let found = std::fs::metadata(path).ok()?.file_type();
    match found {
        found if found.is_socket() => None,
        found if found.is_dir() => Some("a directory"),
        found if found.is_file() => Some("a regular file"),
        _ => Some("a device or pipe"),
    }
}

impl Attachment {
    /// Connects to a server. Must be called in a tokio runtime with IO and time.
    ///
    /// # Errors
    /// [`ConnectError`], which names the socket.
    pub async fn connect(address: &Address, config: &Config) -> Result<Attachment, ConnectError> {
        let (attachment, _) = Attachment::meet(address, &address.socket_path(), config, None).await?;
        Ok(attachment)
    }

    /// Connects to a socket that a server has named, with a token that it gave. The attachment comes with the answer to
    /// the token: whether it is the answer of that server is still to be asked.
    ///
    /// # Errors
    /// [`ConnectError`], which names the socket. It is one, too, when the token is refused or not answered.
    pub async fn connect_with(
        socket: &SocketBeneath,
        config: &Config,
        token: &tokens::Token,
    ) -> Result<(Attachment, tokens::Token), ConnectError> {
        let met = Attachment::meet(socket.address(), &socket.socket_path(), config, Some(token)).await?;
        let (attachment, Some(answer)) = met else {
            return Err(ConnectError {
                address: socket.address().clone(),
                kind: HandshakeError::NoAnswer.into(),
            });
        };
        Ok((attachment, answer))
    }

    async fn meet(
        address: &Address,
        path: &Path,
        config: &Config,
        token: Option<&tokens::Token>,
    ) -> Result<(Attachment, Option<tokens::Token>), ConnectError> {
        let error = |kind| ConnectError { address: address.clone(), kind };
        let dialled = dial(path, config.handshake_timeout).await;
        let socket = dialled.map(OfProcess::new).map_err(|source| {
            error(match source.kind() {
                std::io::ErrorKind::NotFound => ConnectErrorKind::NotFound,
                std::io::ErrorKind::ConnectionRefused => match other_than_socket(path) {
                    Some(what) => ConnectErrorKind::NotASocket(what),
                    None => ConnectErrorKind::Stale,
                },
                std::io::ErrorKind::PermissionDenied => ConnectErrorKind::Permission,
                _ => ConnectErrorKind::Io(source),
            })
        })?;
        here(Point::Connected);
        let attached = handshake::connect(&socket, config, token).await.map_err(|kind| error(kind.into()))?;
        let answer = attached.answer;
        let attachment = Attachment::start(attached, socket.into_inner(), config)
            .map_err(|source| error(ConnectErrorKind::Io(source)))?;
        Ok((attachment, answer))
    }

    pub(crate) fn start(
        attached: Attached,
        socket: UnixStream,
        config: &Config,
    ) -> std::io::Result<Attachment> {
        let socket = Socket::from_owned_fd_unchecked(socket.into_std()?.into())?;
        let shared = Shared::new(attached, socket, config)?;
        shared.start_driver(&Handle::current())?;
        here(Point::SessionBegun);
        Ok(Attachment { shared, accepts: Streak::default() })
    }

    /// Why the session is over, if it is.
    pub fn closed(&self) -> Option<Closed> {
        match self.shared.enter() {
            Ok(core) => core.session.closed().cloned(),
            Err(closed) => Some(closed),
        }
    }

    /// Whether new calls can be opened: not closed, and not draining.
    pub fn is_open(&self) -> bool {
        self.shared.enter().is_ok_and(|core| core.session.closed().is_none() && !core.session.is_draining())
    }

    /// Ready when no call can be opened here any more: the session is over, or its server drains (client). Does not look
    /// at the ring itself, and one task at a time may wait so.
    pub fn poll_over(&self, cx: &mut Context<'_>) -> Poll<()> {
        let Ok(mut core) = self.shared.enter() else { return Poll::Ready(()) };
        if core.is_over() {
            return Poll::Ready(());
        }
        core.accept.wait(cx.waker());
        Poll::Pending
    }

    /// Says to the client how many calls the server as a whole has under way, where it wants to know ([`Config::load`]).
    /// Costs a store; wakes nobody.
    pub fn report_load(&self, count: u32) {
        self.shared.load.report(count);
    }

    /// Calls under way at the server as a whole, as it said last. `None`: it doesn't say. Costs a load. A server may say
    /// any number: this is good for choosing between servers that are trusted to serve, and for nothing else.
    pub fn peer_load(&self) -> Option<u32> {
        self.shared.load.peer()
    }

    /// Whether both sides have agreed that the server says how busy it is.
    pub fn shares_load(&self) -> bool {
        self.shared.load.is_shared()
    }

    /// Whether the two sides are members of one pool, so that messages may be ropes.
    pub fn peer_pool(&self) -> PeerPool {
        self.shared.peer_pool
    }

    /// Ropes sent that the peer has not taken hold of yet.
    pub fn ropes_in_flight(&self) -> usize {
        self.shared.enter().map_or(0, |core| core.session.ropes_in_flight())
    }

    /// Whether the peer had to be given the bytes of the rope that it took last, since it can't map what this side can. So it
    /// is likely to be with the next.
    pub fn gives_inline(&self) -> bool {
        self.shared.enter().is_ok_and(|core| core.session.gives_inline())
    }

    /// Looks whether the peer has taken ropes of which it could not yet be heard, for it wakes nobody to say so. `true`: some
    /// need not be kept any more.
    pub fn look_for_taken(&self) -> bool {
        self.shared.look_for_taken()
    }

    /// Who is at the other end.
    pub fn peer(&self) -> PeerIdentity {
        self.shared.identity
    }

    /// What the peer calls itself.
    pub fn agent(&self) -> &str {
        &self.shared.agent
    }

    /// Calls under way.
    pub fn live_count(&self) -> u32 {
        self.shared.enter().map_or(0, |core| core.session.live_count())
    }

    /// Begins to open a call (client).
    pub fn open(&self) -> Opener {
        Opener { shared: self.shared.clone(), number: None }
    }

    /// Waits for the next call (server). While further ones are at hand, what is sent on this session is held back for
    /// a few emissions, so that the replies of a batch go out together: ask again soon, or [`flush`](Attachment::flush).
    ///
    /// # Errors
    /// Ready with the reason when the session is over.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Result<Call, Closed>> {
        let mut accepted = None;
        ready!(self.poll_accept_into(cx, &mut accepted))?;
        Poll::Ready(Ok(accepted.expect("a call was put there").into_call()))
    }

    /// The same, and puts the call into `place`, from which it need not be moved to be answered.
    ///
    /// # Errors
    /// As [`poll_accept`](Attachment::poll_accept).
    pub fn poll_accept_into<'a>(
        &'a self,
        cx: &mut Context<'_>,
        place: &mut Option<Accepted<'a>>,
    ) -> Poll<Result<(), Closed>> {
        let polled = self.accepts.poll(cx, |cx| {
            self.shared.poll_wait(cx, Token::Accept, |core, _| match core.accept(&self.shared, place) {
                true => Some(Ok(())),
                false => core.session.closed().cloned().map(Err),
            })
        });
        polled.map(|result| result.and_then(|found| found))
    }

    /// Puts the next call that has already arrived into `place`, without looking at the ring (server). Whether there is
    /// one.
    pub fn try_accept_into<'a>(&'a self, place: &mut Option<Accepted<'a>>) -> bool {
        self.shared.enter().is_ok_and(|mut core| core.accept(&self.shared, place))
    }

    /// Sends what is held back, before something that may take long.
    pub fn flush(&self) {
        if let Ok(mut core) = self.shared.enter()
            && core.held_count > 0
        {
            core.flush(&self.shared.socket);
        }
    }

    /// Takes no more calls (server). The client is told which it may send again elsewhere.
    pub fn drain(&self) {
        if let Ok(mut core) = self.shared.enter() {
            core.session.drain();
            core.flush(&self.shared.socket);
            here(Point::DrainSent);
            // An idle client may not have parked; this is worth one wake-up.
            core.ring(&self.shared.socket);
        }
    }

    /// Lets other processes have this thread's processor, once in a number of times, unless the configuration says that latency
    /// is all that counts: for a server that serves many sessions, when one has had its turn.
    pub fn offer(&self) {
        self.shared.offer();
    }

    /// Changes [`Config::dedicated`]: for a thread that has other things to do at times.
    pub fn set_dedicated(&self, dedicated: bool) {
        self.shared.set_dedicated(dedicated);
    }

    /// Looks whether the peer has hung up or rung. For a caller whose runtime does not run between its calls, so that no
    /// driver would notice: one system call.
    pub fn attend(&self) {
        self.shared.attend();
    }

    /// Ends the session; the peer is told `reason`.
    pub fn close(&self, reason: &'static str) {
        self.shared.close(reason);
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.shared.close("nobody here needs the session any more");
    }
}

/// A call that is being opened (client).
#[derive(Debug)]
pub struct Opener {
    shared: Arc<Shared>,
    /// Set once the call has had to wait.
    number: Option<u64>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("peer", &self.identity).finish_non_exhaustive()
    }
}

impl Opener {
    /// Opens the call with as much of `emission` as fits; what is left over goes by [`Stream::poll_emit`].
    ///
    /// # Errors
    /// [`EmitError`]; nothing of the call was sent then, so it may be made elsewhere.
    pub fn poll_open(
        &mut self,
        cx: &mut Context<'_>,
        opening: Opening<'_>,
        emission: &mut Emission,
    ) -> Poll<Result<Stream, EmitError>> {
        let number = match self.number {
            Some(number) => number,
            None => match self.try_open(opening, emission) {
                Ok(result) => return Poll::Ready(result),
                Err(number) => number,
            },
        };
        self.number = Some(number);
        let token = Token::Open(number);
        let polled = self.shared.poll_wait(cx, token, |core, socket| {
            let progress = core.session.open(&mut core.sending, opening, emission);
            core.flush_soon(socket);
            match progress {
                Ok(Ok(id)) => Some(Ok(id)),
                Err(error) => Some(Err(error)),
                Ok(Err(progress)) => {
                    core.wait_for(token, progress);
                    None
                }
            }
        });
        polled.map(|result| match result {
            Ok(opened) => opened.map(|id| Stream::new(self.shared.clone(), id)),
            Err(closed) => Err(closed.into()),
        })
    }

    /// Opens the call if that is possible now; otherwise gives it a number to wait under.
    fn try_open(
        &self,
        opening: Opening<'_>,
        emission: &mut Emission,
    ) -> Result<Result<Stream, EmitError>, u64> {
        let mut core = match self.shared.enter() {
            Ok(core) => core,
            Err(closed) => return Ok(Err(closed.into())),
        };
        if let Some(id) = core.open(opening, emission, &self.shared.socket) {
            return Ok(id.map(|id| Stream::new(self.shared.clone(), id)));
        }
        core.next_open += 1;
        let number = core.next_open;
        core.opens.insert(number, Slot::default());
        Err(number)
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        if let Some(number) = self.number
            && let Ok(mut core) = self.shared.enter()
        {
            core.leave(Token::Open(number));
            core.opens.remove(&number);
            // Its turn to open may have come already: it is the next one's then.
            core.wake_ready();
        }
    }
}

/// One call. Dropping it before it has ended cancels it at the peer.
#[derive(Debug)]
pub struct Stream {
    shared: Arc<Shared>,
    id: StreamId,
    /// Ended, and let go of.
    pub(crate) gone: AtomicBool,
    /// Received and not yet asked for.
    pub(crate) taken: Mutex<Option<Box<Arrival>>>,
    pub(crate) has_taken: AtomicBool,
    emits: Streak,
}

/// Long parts of a message that go out for one taking of the lock.
const PARTS_COUNT: usize = 8;
/// gRPC status CANCELLED.
pub(crate) const CANCELLED: u16 = 1;

impl Stream {
    pub(crate) fn new(shared: Arc<Shared>, id: StreamId) -> Stream {
        Stream {
            shared,
            id,
            gone: AtomicBool::new(false),
            taken: Mutex::new(None),
            has_taken: AtomicBool::new(false),
            emits: Streak::default(),
        }
    }

    /// Who is at the other end of its session.
    pub fn peer(&self) -> PeerIdentity {
        self.shared.identity
    }

    /// Ropes sent in its session that the peer has not taken hold of yet.
    pub fn ropes_in_flight(&self) -> usize {
        self.shared.enter().map_or(0, |core| core.session.ropes_in_flight())
    }

    /// As [`Attachment::look_for_taken`].
    pub fn look_for_taken(&self) -> bool {
        self.shared.look_for_taken()
    }

    /// Its number in the session, for logs.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Sends what `emission` holds; ready when all of it is on its way.
    ///
    /// # Errors
    /// [`EmitError::Ended`] when the call has ended meanwhile.
    pub fn poll_emit(&self, cx: &mut Context<'_>, emission: &mut Emission) -> Poll<Result<(), EmitError>> {
        self.emits.poll(cx, |cx| self.poll_emit_now(cx, emission))
    }

    fn poll_emit_now(&self, cx: &mut Context<'_>, emission: &mut Emission) -> Poll<Result<(), EmitError>> {
        let token = Token::Write(self.id);
        let polled = self.shared.poll_wait(cx, token, |core, socket| {
            match core.emit(self.id, emission, socket) {
                Ok(Progress::Done) => {
                    if core.settle(self.id, socket) && !self.gone.swap(true, Ordering::Relaxed) {
                        core.forget(self.id, CANCELLED, socket);
                    }
                    Some(Ok(()))
                }
                Err(error) => Some(Err(error)),
                Ok(progress) => {
                    // The next part of a long message goes when others have had their turn, as if room had just come.
                    core.wait_for(token, progress);
                    None
                }
            }
        });
        match polled {
            Poll::Ready(Ok(result)) => Poll::Ready(result),
            Poll::Ready(Err(closed)) => Poll::Ready(Err(closed.into())),
            Poll::Pending => Poll::Pending,
        }
    }

    /// The next thing that the peer sent on this call. The end is given again to whoever asks again.
    ///
    /// # Errors
    /// Ready with the reason in a child of `fork`. A session that ends shows as [`Incoming::End`].
    pub fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<Result<Incoming, Closed>> {
        if self.has_taken.load(Ordering::Relaxed)
            && let Some(arrival) = &mut *self.taken.lock()
            && let Some(incoming) = next_of(arrival)
        {
            return Poll::Ready(Ok(incoming));
        }
        let mut arrival = ready!(self.poll_arrival(cx))?;
        let first = next_of(&mut arrival).expect("an arrival holds something");
        // Another end may follow that of a client's half: for as long as the session knows the call, it is asked.
        let ends_here = arrival.end.is_some() && (arrival.forgotten || !matches!(first, Incoming::End(_)));
        if arrival.chunk.is_some() || ends_here {
            *self.taken.lock() = Some(Box::new(arrival));
            self.has_taken.store(true, Ordering::Relaxed);
        }
        Poll::Ready(Ok(first))
    }

    /// What the peer has sent on this call, as much of it as makes one [`Arrival`]: of the usual unary call everything, for
    /// one taking of the lock. The end is given once.
    ///
    /// # Errors
    /// As [`poll_recv`](Stream::poll_recv).
    pub fn poll_arrival(&self, cx: &mut Context<'_>) -> Poll<Result<Arrival, Closed>> {
        if self.has_taken.load(Ordering::Relaxed) {
            let taken = self.taken.lock().take();
            self.has_taken.store(false, Ordering::Relaxed);
            if let Some(taken) = taken.filter(|taken| !taken.is_empty()) {
                return Poll::Ready(Ok(*taken));
            }
        }
        self.shared.poll_read(cx, self.id, |core| {
            let arrival = core.session.take_arrival(self.id)?;
            if arrival.forgotten {
                self.gone.store(true, Ordering::Relaxed);
                core.wake_ready();
            }
            Some(Arrival::of(&self.shared, arrival))
        })
    }

    /// What has come together with the call itself (server), if that was not asked for yet.
    pub fn take_arrival(&mut self) -> Option<Arrival> {
        *self.has_taken.get_mut() = false;
        self.taken.get_mut().take().map(|arrival| *arrival)
    }

    /// Why the session of this call is over, if it is.
    pub fn session_closed(&self) -> Option<Closed> {
        match self.shared.enter() {
            Ok(core) => core.session.closed().cloned(),
            Err(closed) => Some(closed),
        }
    }

    /// Ready when the call has ended, so that whoever works for it can stop. Does not look at the ring itself: some
    /// other task waits on the session (a server's always does).
    pub fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<()> {
        let Ok(mut core) = self.shared.enter() else { return Poll::Ready(()) };
        if !core.session.is_live(self.id) {
            return Poll::Ready(());
        }
        if let Some(slot) = core.slot(Token::Write(self.id)) {
            slot.wait(cx.waker());
        }
        Poll::Pending
    }

    /// Ends the call in both directions, and leaves it to its reader to find out: for whoever sends beside one. The peer
    /// sees `code`, a gRPC status. Does nothing to a call that has ended.
    pub fn abort(&self, code: u16) {
        if !self.gone.load(Ordering::Relaxed)
            && let Ok(mut core) = self.shared.enter()
        {
            core.session.cancel(self.id, code);
            core.wake_ready();
            if core.session.has_pending() {
                core.flush(&self.shared.socket);
            }
            core.leave_to_driver();
        }
    }

    /// Ends the call in both directions; the peer sees `code`, a gRPC status. Does nothing the second time. A reader is
    /// not told: it is the reader who lets go of a call.
    pub fn cancel(&self, code: u16) {
        if !self.gone.load(Ordering::Relaxed)
            && !self.gone.swap(true, Ordering::Relaxed)
            && let Ok(mut core) = self.shared.enter()
        {
            core.forget(self.id, code, &self.shared.socket);
        }
    }
}

/// What comes first in an arrival. Of the end a copy, for it is given again.
fn next_of(arrival: &mut Arrival) -> Option<Incoming> {
    let only_end = arrival.headers.is_none() && arrival.chunk.is_none();
    if only_end { arrival.end.clone().map(Incoming::End) } else { arrival.take_next() }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.cancel(CANCELLED);
    }
}

impl Core {
    /// Opens a call, if that is possible now.
    pub(crate) fn open(
        &mut self,
        opening: Opening<'_>,
        emission: &mut Emission,
        socket: &Socket,
    ) -> Option<Result<StreamId, EmitError>> {
        let progress = self.session.open(&mut self.sending, opening, emission);
        self.flush_soon(socket);
        match progress {
            Ok(Ok(id)) => Some(Ok(id)),
            Ok(Err(_)) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Stages as much of an emission as there is room for, and has it sent.
    pub(crate) fn emit(
        &mut self,
        id: StreamId,
        emission: &mut Emission,
        socket: &Socket,
    ) -> Result<Progress, EmitError> {
        let mut progress = self.session.stage(&mut self.sending, id, emission);
        for _ in 1..PARTS_COUNT {
            if progress != Ok(Progress::Partly) {
                break;
            }
            self.flush(socket);
            progress = self.session.stage(&mut self.sending, id, emission);
        }
        self.flush_soon(socket);
        progress
    }

    /// What a server's last word means for its call, once that is on its way. Whether the call is over.
    pub(crate) fn settle(&mut self, id: StreamId, socket: &Socket) -> bool {
        let is_settled = self.session.settle(id);
        if !is_settled && self.session.has_pending() {
            self.flush(socket);
        }
        is_settled
    }

    /// Notes what a token waits for, once.
    fn wait_for(&mut self, token: Token, progress: Progress) {
        match progress {
            Progress::NeedRoom | Progress::Partly => {
                if let Some(slot) = self.slot(token)
                    && !std::mem::replace(&mut slot.wants_room, true)
                {
                    self.wants_room.push(token);
                }
            }
            Progress::NeedStream => {
                if let Some(slot) = self.slot(token)
                    && !std::mem::replace(&mut slot.wants_stream, true)
                {
                    self.wants_stream.push_back(token);
                }
            }
            _ => {}
        }
    }
}
