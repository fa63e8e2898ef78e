//! A server whose handlers are threads.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tollfree_driver_loop::{
    Address, BindError, CallError, ConnectError, Event, ListenerId, LoopConfig, Message, Registration,
    SessionId, Status,
};
use tollfree_os::clock::now_ns;

use crate::call::{End, Late};
use crate::client::Session;
use crate::crew::{Before, Crew, Ticket};
use crate::host::Threads;
use crate::leader::{Kept, Told};
use crate::mailbox::Mailbox;
use crate::notices::LoopClosed;
use crate::shared_loop::SharedLoop;

/// gRPC's UNKNOWN.
const UNKNOWN: u16 = 2;

/// What answers a server's calls, in threads of the server's.
pub trait Handler: Send + Sync + 'static {
    /// Answers a call. May take as long as it wants, and wait for messages. A call that it leaves without an end, or in a panic, ends
    /// with UNKNOWN.
    fn call(&self, call: &ServedCall);

    /// Something has happened to a listener or a session.
    fn event(&self, event: &Event) {
        let _ = event;
    }
}

impl<F: Fn(&ServedCall) + Send + Sync + 'static> Handler for F {
    fn call(&self, call: &ServedCall) {
        self(call);
    }
}

/// Serves calls of any path, each by one thread. Ends when it is dropped: its calls end, and their handlers are waited for.
pub struct Server {
    serving: Arc<Serving>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("shared", &self.serving.shared).finish_non_exhaustive()
    }
}

struct Serving {
    shared: Arc<SharedLoop>,
    crew: Arc<Crew>,
    handler: Box<dyn Handler>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    under_way: Arc<Mailbox<UnderWay>>,
    handlers_max: usize,
}

/// What is under way.
#[derive(Debug, Default)]
struct UnderWay {
    open: HashSet<SessionId>,
    handler_count: usize,
}

impl Server {
    /// Without listeners. `handlers_max` calls at most are answered at once, each in a thread: the next one waits.
    ///
    /// # Errors
    /// The process may have no more descriptors or threads.
    pub fn new(config: LoopConfig, handlers_max: usize, handler: impl Handler) -> io::Result<Server> {
        let handlers_max = handlers_max.max(1);
        let serving = Arc::new(Serving {
            shared: SharedLoop::new(config, Told::Calls)?,
            crew: Arc::new(Crew::new(handlers_max)),
            handler: Box::new(handler),
            threads: Mutex::default(),
            under_way: Arc::new(Mailbox::new(UnderWay::default())),
            handlers_max,
        });
        let server = Server { serving };
        // One that has the seat, and one that stands by.
        server.serving.start_thread()?;
        server.serving.start_thread()?;
        Ok(server)
    }

    /// Listens at an address.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn listen(&self, address: &Address) -> Result<ListenerId, BindError> {
        let address = address.clone();
        self.ask(move |leader| leader.events().listen(&address))
    }

    /// Takes no new clients at a listener, and removes its socket. Sessions go on.
    pub fn unlisten(&self, listener: ListenerId) {
        self.serving.shared.run(move |leader| {
            leader.events().unlisten(listener);
        });
    }

    /// Attaches to a gateway: waits for the handshake's end. The session ends when it is dropped; reconnecting is the program's.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn attach(&self, address: &Address, registration: Registration) -> Result<Session, ConnectError> {
        let to = address.clone();
        Session::begin(&self.serving.shared, address, move |leader| leader.events().attach(&to, registration))
    }

    /// Takes no more calls in a session: its client is told which it may make elsewhere.
    pub fn drain_session(&self, session: SessionId) {
        self.serving.shared.run(move |leader| leader.events().drain(session));
    }

    /// Ends a session, with its calls.
    pub fn close_session(&self, session: SessionId) {
        self.serving.shared.run(move |leader| leader.events().close(session));
    }

    /// Takes no more calls in any session, and waits until those under way are over, for so long.
    ///
    /// # Errors
    /// [`Late`]: some are not.
    pub fn drain(&self, most: Duration) -> Result<(), Late> {
        let open: Vec<SessionId> = self.serving.under_way.lock().open.iter().copied().collect();
        for session in open {
            self.drain_session(session);
        }
        let is_quiet = |under_way: &UnderWay| under_way.handler_count == 0;
        self.serving
            .shared
            .wait(&self.serving.under_way, is_quiet, Some(most))
            .then_some(())
            .ok_or(Late(most))
    }

    fn ask<R: Send + 'static>(
        &self,
        command: impl FnOnce(&mut crate::leader::Leader) -> R + Send + 'static,
    ) -> R {
        match self.serving.shared.ask(&Threads, command) {
            Ok(answer) => answer,
            Err(LoopClosed) => unreachable!("a server's loop lives as long as it"),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let serving = &self.serving;
        let open: Vec<SessionId> = serving.under_way.lock().open.iter().copied().collect();
        // Calls end with their sessions: what handlers wait for comes.
        let _ = serving.shared.ask(&Threads, move |leader| leader.close_sessions(open));
        serving.crew.close();
        serving.under_way.tell(|_| ());
        serving.shared.close();
        // A handler may start another thread until the crew is over, and none after.
        let threads = std::mem::take(&mut *serving.threads.lock());
        let this = std::thread::current().id();
        for thread in threads {
            // A handler that drops its own server does not wait for itself.
            if thread.thread().id() != this {
                let _ = thread.join();
            }
        }
    }
}

impl Serving {
    fn start_thread(self: &Arc<Serving>) -> io::Result<()> {
        if !self.crew.starts_thread() {
            return Ok(());
        }
        let serving = self.clone();
        let started =
            std::thread::Builder::new().name("tollfree-call".to_owned()).spawn(move || serving.work());
        match started {
            Ok(thread) => {
                self.threads.lock().push(thread);
                Ok(())
            }
            Err(error) => {
                self.crew.thread_ends();
                Err(error)
            }
        }
    }

    /// What each thread does.
    fn work(self: &Arc<Serving>) {
        while let Some(ticket) = self.crew.sit() {
            loop {
                // One at a time: the next is for another thread, where this one's handler takes long.
                let kept = self.shared.take(&Threads, Duration::ZERO, Duration::MAX, 1);
                if self.crew.is_over() {
                    return;
                }
                if !kept.into_iter().all(|kept| self.see_to(ticket, kept)) {
                    break;
                }
            }
        }
    }

    /// `false`: another thread has the seat.
    fn see_to(self: &Arc<Serving>, ticket: Ticket, kept: Kept) -> bool {
        match kept {
            Kept::Loop(event) => {
                self.note(&event);
                self.handler.event(&event);
                true
            }
            Kept::Of { .. } => true,
            Kept::Call { event, mailbox, .. } => {
                let (Event::Call { call, path, metadata, deadline_ns }, Some(mailbox)) = (event, mailbox)
                else {
                    return true;
                };
                self.wait_for_room();
                if self.crew.begins(ticket, &path) == Before::AnotherThread {
                    // Without one, calls wait for this handler.
                    let _ = self.start_thread();
                }
                let call = ServedCall {
                    end: End::of(self.shared.clone(), mailbox),
                    session: call.session(),
                    path: path.clone(),
                    metadata,
                    deadline_ns,
                    is_ended: AtomicBool::new(false),
                    crew: self.crew.clone(),
                    ticket,
                    has_waited: AtomicBool::new(false),
                };
                let began_ns = now_ns();
                let handled =
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.handler.call(&call)));
                if !call.is_ended.load(Ordering::Relaxed) {
                    let words = match handled {
                        Ok(()) => "the handler has not answered the call",
                        Err(_) => "the handler has panicked",
                    };
                    let _ = call.answer_end(UNKNOWN, Status::here(UNKNOWN, words).metadata);
                }
                let took_ns = (!call.has_waited.load(Ordering::Relaxed)).then(|| now_ns() - began_ns);
                self.leaves_room();
                self.crew.ends(ticket, &path, took_ns)
            }
        }
    }

    /// Waits until one more handler may run.
    fn wait_for_room(&self) {
        let has_room = |under_way: &UnderWay| under_way.handler_count < self.handlers_max;
        while !self.under_way.tell(|under_way| {
            let may_run = has_room(under_way) || self.crew.is_over();
            under_way.handler_count += usize::from(may_run);
            may_run
        }) {
            self.shared.wait(&self.under_way, |under_way| has_room(under_way) || self.crew.is_over(), None);
        }
    }

    /// A handler has returned.
    fn leaves_room(&self) {
        let was_full = self.under_way.tell(|under_way| {
            under_way.handler_count -= 1;
            under_way.handler_count + 1 == self.handlers_max || under_way.handler_count == 0
        });
        if was_full {
            // The thread that waits for that may lead, and sleep.
            self.shared.look_again();
        }
    }

    /// Notes what has become of a session.
    fn note(&self, event: &Event) {
        self.under_way.tell(|under_way| match event {
            Event::Accepted { session, .. } => drop(under_way.open.insert(*session)),
            Event::Closed { session, .. } => drop(under_way.open.remove(session)),
            _ => {}
        });
    }
}

/// A client's call that a handler answers.
#[derive(Debug)]
pub struct ServedCall {
    end: End,
    session: SessionId,
    path: Bytes,
    metadata: Bytes,
    deadline_ns: Option<u64>,
    is_ended: AtomicBool,
    crew: Arc<Crew>,
    ticket: Ticket,
    has_waited: AtomicBool,
}

impl ServedCall {
    /// `/package.Service/Method`, unchecked.
    pub fn path(&self) -> &Bytes {
        &self.path
    }

    /// The block of its metadata.
    pub fn metadata(&self) -> &Bytes {
        &self.metadata
    }

    /// Its deadline, on this host's monotonic clock, in nanoseconds.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.deadline_ns
    }

    /// Its session.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// The next message; waits for it. `None`: none follows, or the call was [cancelled](ServedCall::is_cancelled).
    pub fn receive(&self) -> Option<Message> {
        if !self.end.has_news() {
            self.waits();
        }
        self.end.receive(None).unwrap_or_default()
    }

    /// The handler is about to wait: another thread takes the next call.
    fn waits(&self) {
        self.has_waited.store(true, Ordering::Relaxed);
        self.crew.waits(self.ticket);
    }

    /// Says the headers of the answer, before its messages.
    ///
    /// # Errors
    /// [`CallError::Ended`].
    pub fn answer_headers(&self, metadata: Bytes) -> Result<(), CallError> {
        self.check()?;
        self.end.run(move |events, call| drop(events.answer_headers(call, metadata)));
        Ok(())
    }

    /// Says a message. Waits while earlier ones are not on their way.
    ///
    /// # Errors
    /// [`CallError::Ended`]: it was cancelled, or this end has ended it.
    pub fn send(&self, message: impl Into<Message>) -> Result<(), CallError> {
        self.check()?;
        self.end.says()?;
        let message = message.into();
        self.end.run(move |events, call| drop(events.send(call, message)));
        if !self.end.has_room() {
            self.waits();
        }
        self.end.wait_for_room()
    }

    /// Ends the call with a gRPC status and trailing metadata.
    ///
    /// # Errors
    /// [`CallError::Ended`]: it is over.
    pub fn answer_end(&self, code: u16, metadata: Bytes) -> Result<(), CallError> {
        self.end_once()?;
        self.end_by(move |events, call| drop(events.answer_end(call, code, metadata)));
        Ok(())
    }

    /// Answers with a message and the end: both go together.
    ///
    /// # Errors
    /// [`CallError::Ended`]: it is over.
    pub fn answer(&self, message: impl Into<Message>) -> Result<(), CallError> {
        self.end_once()?;
        let message = message.into();
        self.end_by(move |events, call| {
            let _ = events.send(call, message);
            let _ = events.answer_end(call, 0, Bytes::new());
        });
        Ok(())
    }

    /// Ends it at once, in both directions; the client sees this gRPC code.
    pub fn cancel(&self, code: u16) {
        if self.end_once().is_ok() {
            self.end_by(move |events, call| events.cancel(call, code));
        }
    }

    /// How it was cancelled, if it was, or its session has ended.
    pub fn is_cancelled(&self) -> Option<Status> {
        self.end.status()
    }

    /// Waits until it is cancelled, or its session ends, for so long: how.
    ///
    /// # Errors
    /// [`Late`].
    pub fn wait_cancelled(&self, most: Duration) -> Result<Status, Late> {
        self.waits();
        self.end.wait_ended(most)
    }

    fn check(&self) -> Result<(), CallError> {
        match self.is_ended.load(Ordering::Relaxed) {
            true => Err(CallError::Ended),
            false => Ok(()),
        }
    }

    fn end_once(&self) -> Result<(), CallError> {
        match self.is_ended.swap(true, Ordering::Relaxed) || self.end.status().is_some() {
            true => Err(CallError::Ended),
            false => Ok(()),
        }
    }

    fn end_by(
        &self,
        end: impl FnOnce(&mut tollfree_driver_loop::EventLoop, tollfree_driver_loop::CallId) + Send + 'static,
    ) {
        let mailbox = self.end.mailbox().clone();
        self.end.shared().run(move |leader| {
            let call = mailbox.lock().call();
            if let Some(call) = call {
                end(leader.events(), call);
                leader.forget(call);
            }
        });
    }
}
