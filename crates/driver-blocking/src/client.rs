//! Channels and sessions for threads: a client has a loop that its threads share.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tollfree_driver_loop::{
    Address, AddressError, CallError, CallStart, CallTerms, ChannelConfig, ChannelId, ChannelState, Closed,
    ConnectError, ConnectErrorKind, LoopConfig, Message, SessionId, Status,
};

use crate::call::{Call, End, Late, UNAVAILABLE};
use crate::host::Threads;
use crate::leader::{Leader, Told};
use crate::mailbox::Mailbox;
use crate::news::{SessionMailbox, SessionNews};
use crate::shared_loop::SharedLoop;

/// Makes channels and sessions that share a loop. Clones are the same client. Threads that have nothing to do with each other are better off
/// with a client each.
#[derive(Clone, Debug)]
pub struct Client {
    running: Arc<Running>,
}

/// A loop with a thread beside it, which ends with this.
#[derive(Debug)]
struct Running {
    shared: Arc<SharedLoop>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// How a call is begun.
#[derive(Clone, Debug)]
pub struct Beginning<'a> {
    /// Path, metadata, deadline, first message.
    pub start: CallStart<'a>,
    /// What else there is to say of it in a channel.
    pub terms: CallTerms,
}

impl<'a> From<CallStart<'a>> for Beginning<'a> {
    fn from(start: CallStart<'a>) -> Beginning<'a> {
        Beginning { start, terms: CallTerms::default() }
    }
}

/// A start that a thread can take along.
struct OwnedStart {
    path: Box<str>,
    metadata: bytes::Bytes,
    deadline_ns: Option<u64>,
    message: Option<Message>,
    is_last: bool,
}

impl OwnedStart {
    fn of(start: CallStart<'_>) -> OwnedStart {
        let CallStart { path, metadata, deadline_ns, message, is_last } = start;
        OwnedStart { path: path.into(), metadata, deadline_ns, message, is_last }
    }

    fn with<R>(self, begin: impl FnOnce(CallStart<'_>) -> R) -> R {
        let OwnedStart { path, metadata, deadline_ns, message, is_last } = self;
        begin(CallStart { path: &path, metadata, deadline_ns, message, is_last })
    }
}

impl Client {
    /// Without channels and sessions. Has one thread of its own, which sees to them while no other thread waits.
    ///
    /// # Errors
    /// The process may have no more descriptors or threads.
    pub fn new(config: LoopConfig) -> io::Result<Client> {
        let shared = SharedLoop::new(config, Told::Nobody)?;
        shared.watch()?;
        Ok(Client { running: Arc::new(Running { shared }) })
    }

    /// A channel to one or more servers: it connects when a call needs it, and again when a session has ended. Calls are placed by the balancer's rules.
    ///
    /// # Errors
    /// An address is none.
    pub fn channel(&self, config: ChannelConfig) -> Result<Channel, AddressError> {
        let opened = self.running.shared.ask(&Threads, move |leader| leader.events().open_channel(config));
        // Who asks has the loop.
        let id = opened.unwrap_or_else(|_| unreachable!("a client's loop lives as long as it"))?;
        Ok(Channel { open: Arc::new(Open { running: self.running.clone(), id }) })
    }

    /// Connects to a server: waits for the handshake's end. For programs that see to reconnecting themselves; others use a [`Channel`].
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(&self, address: &Address) -> Result<Session, ConnectError> {
        let to = address.clone();
        let begun = Session::begin(&self.running.shared, address, move |leader| leader.events().connect(&to));
        begun.map(|session| session.of(&self.running))
    }
}

/// A way to one or more servers. Clones are the same channel, which ends with the last of them, and with its calls.
#[derive(Clone, Debug)]
pub struct Channel {
    open: Arc<Open>,
}

struct Open {
    running: Arc<Running>,
    id: ChannelId,
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Channel").field(&self.id).finish()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let id = self.id;
        self.running.shared.run(move |leader| leader.events().close_channel(id));
    }
}

impl Channel {
    /// Begins a call. Does not wait: a call that can't begin ends with a status that says why.
    pub fn begin<'a>(&self, beginning: impl Into<Beginning<'a>>) -> Call {
        let end = End::new(self.open.running.shared.clone());
        let begin = self.command(&end, beginning.into());
        self.open.running.shared.run(begin);
        Call::new(end)
    }

    /// Makes a call with one message each way, and waits for its end.
    ///
    /// # Errors
    /// The call's status, where that is not OK.
    pub fn unary<'a>(&self, beginning: impl Into<Beginning<'a>>) -> Result<Message, Status> {
        let end = End::new(self.open.running.shared.clone());
        let begin = self.command(&end, beginning.into());
        let call = Call::new(end);
        call.begin_and_wait(begin, |news| news.status().is_some());
        call.answer()
    }

    fn command(&self, end: &End, beginning: Beginning<'_>) -> impl FnOnce(&mut Leader) + Send + 'static {
        let (id, mailbox) = (self.open.id, end.mailbox().clone());
        let Beginning { start, terms } = beginning;
        let start = OwnedStart::of(start);
        move |leader: &mut Leader| {
            if mailbox.lock().status().is_some() {
                // It was cancelled before.
                return;
            }
            match start.with(|start| leader.events().channel_call(id, start, terms)) {
                Ok(call) => leader.begin(call, mailbox),
                Err(error) => {
                    mailbox.tell(|news| news.end(Status::here(UNAVAILABLE, &error.to_string())));
                }
            }
        }
    }

    /// Connects it if it is idle, and keeps it connected. Does not wait.
    pub fn connect(&self) {
        let id = self.open.id;
        self.open.running.shared.run(move |leader| leader.events().connect_channel(id));
    }

    /// How it fares.
    pub fn state(&self) -> ChannelState {
        let id = self.open.id;
        let state = self.open.running.shared.ask(&Threads, move |leader| leader.events().channel_state(id));
        state.ok().flatten().unwrap_or(ChannelState::Idle)
    }
}

/// One session: a client's with a server, or a server's with a gateway. Ends when it is dropped.
pub struct Session {
    shared: Arc<SharedLoop>,
    id: SessionId,
    mailbox: Arc<SessionMailbox>,
    /// Keeps a client's loop.
    client: Option<Arc<Running>>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Session").field(&self.id).finish()
    }
}

impl Session {
    /// Begins one, and waits for what comes of it.
    pub(crate) fn begin(
        shared: &Arc<SharedLoop>,
        address: &Address,
        begin: impl FnOnce(&mut Leader) -> io::Result<SessionId> + Send + 'static,
    ) -> Result<Session, ConnectError> {
        let failed = |error| ConnectError { address: address.to_string(), kind: ConnectErrorKind::Io(error) };
        let mailbox = Arc::new(Mailbox::new(SessionNews::default()));
        let place = mailbox.clone();
        let begun = shared.ask(&Threads, move |leader| {
            let session = begin(leader)?;
            leader.begin_session(session, place);
            Ok(session)
        });
        let id = match begun {
            Ok(Ok(id)) => id,
            Ok(Err(error)) => return Err(failed(error)),
            Err(closed) => return Err(failed(io::Error::other(closed))),
        };
        let session = Session { shared: shared.clone(), id, mailbox, client: None };
        shared.wait(&session.mailbox, SessionNews::has_begun, None);
        let begun = session.mailbox.lock().take_begun();
        begun.unwrap_or(Ok(())).map(|()| session)
    }

    fn of(mut self, client: &Arc<Running>) -> Session {
        self.client = Some(client.clone());
        self
    }

    /// Its id in the loop.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Begins a call (client).
    ///
    /// # Errors
    /// [`CallError::Over`]: none can begin any more.
    pub fn call(&self, start: CallStart<'_>) -> Result<Call, CallError> {
        let end = End::new(self.shared.clone());
        let (id, mailbox, start) = (self.id, end.mailbox().clone(), OwnedStart::of(start));
        let begun = self.shared.ask(&Threads, move |leader| {
            let call = start.with(|start| leader.events().call(id, start))?;
            leader.begin(call, mailbox);
            leader.pump();
            Ok(())
        });
        begun.unwrap_or(Err(CallError::Over)).map(|()| Call::new(end))
    }

    /// Whether no call can begin any more, though it is not over.
    pub fn is_draining(&self) -> bool {
        self.mailbox.lock().is_draining()
    }

    /// Waits until no call can begin any more, within a time.
    ///
    /// # Errors
    /// [`Late`].
    pub fn wait_draining(&self, most: Duration) -> Result<(), Late> {
        let is_done = |news: &SessionNews| news.is_draining() || news.closed().is_some();
        self.shared.wait(&self.mailbox, is_done, Some(most)).then_some(()).ok_or(Late(most))
    }

    /// Why it is over; waits for that, within a time.
    ///
    /// # Errors
    /// [`Late`].
    pub fn wait_closed(&self, most: Duration) -> Result<Closed, Late> {
        self.shared.wait(&self.mailbox, |news| news.closed().is_some(), Some(most));
        self.mailbox.lock().closed().cloned().ok_or(Late(most))
    }

    /// Ends it, with its calls.
    pub fn close(&self) {
        let id = self.id;
        self.shared.run(move |leader| leader.events().close(id));
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close();
    }
}
