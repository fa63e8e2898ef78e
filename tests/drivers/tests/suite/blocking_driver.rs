//! Threads: a thread for each call of a server, and one behind each call of a client.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use tollfree_driver_blocking::{
    Address, Call, CallError, CallStart, Client as Blocking, Event, Handler, Late, LoopConfig, Message,
    ServedCall, Server as BlockingServer, Session,
};

use crate::driver::{CallNumber, Client, Driver, Log, PATIENCE, Seen, Server, Settings, Start, Told};
use crate::service::{Came, Deed, Serving};

pub(crate) struct Threads;

/// Calls that a server of the suite answers at once: no row has more under way.
const HANDLERS_MAX: usize = 1_000;

fn config(settings: &Settings) -> LoopConfig {
    LoopConfig { wait: settings.wait, limits: settings.limits, ..LoopConfig::default() }
}

impl Driver for Threads {
    const NAME: &'static str = "blocking";

    fn serve(address: &Address, settings: &Settings, log: &Log) -> Box<dyn Server> {
        let service = Service { log: log.clone(), server: Arc::default() };
        let place = service.server.clone();
        let server = Arc::new(BlockingServer::new(config(settings), HANDLERS_MAX, service).unwrap());
        assert!(place.set(Arc::downgrade(&server)).is_ok());
        server.listen(address).unwrap();
        Box::new(ThreadedServer { _server: server })
    }

    fn connect(address: &Address, settings: &Settings) -> Result<Box<dyn Client>, String> {
        let client = Blocking::new(config(settings)).map_err(|error| error.to_string())?;
        let session = Arc::new(client.connect(address).map_err(|error| error.to_string())?);
        let (tell, told) = channel();
        let threads = Arc::new(Mutex::new(Vec::new()));
        let watch = std::thread::spawn({
            let (session, tell, threads) = (session.clone(), tell.clone(), threads.clone());
            move || watch(&session, &tell, &threads)
        });
        Ok(Box::new(ThreadedClient {
            session,
            calls: HashMap::new(),
            tell,
            told,
            threads,
            watch: Some(watch),
        }))
    }
}

struct ThreadedServer {
    _server: Arc<BlockingServer>,
}

impl Server for ThreadedServer {}

struct Service {
    log: Log,
    server: Arc<OnceLock<Weak<BlockingServer>>>,
}

impl Service {
    fn server(&self) -> Option<Arc<BlockingServer>> {
        self.server.get()?.upgrade()
    }

    /// `false`: the call is over.
    fn act(&self, call: &ServedCall, deeds: Vec<Deed>) -> bool {
        for deed in deeds {
            let done = match deed {
                Deed::Headers(block) => call.answer_headers(block),
                Deed::Send(message) => call.send(message),
                Deed::End(code) => {
                    let _ = call.answer_end(code, Bytes::new());
                    return false;
                }
                Deed::Cancel(code) => {
                    call.cancel(code);
                    return false;
                }
                Deed::Drain => {
                    self.server().into_iter().for_each(|server| server.drain_session(call.session()));
                    Ok(())
                }
                Deed::Close => {
                    self.server().into_iter().for_each(|server| server.close_session(call.session()));
                    Ok(())
                }
                Deed::Pause(time) => {
                    std::thread::sleep(time);
                    Ok(())
                }
            };
            assert!(matches!(done, Ok(()) | Err(CallError::Ended)), "{done:?}");
        }
        true
    }
}

impl Handler for Service {
    fn call(&self, call: &ServedCall) {
        let mut serving = Serving::new(call.path());
        self.log.add(Seen::Began { path: serving.path(), has_deadline: call.deadline_ns().is_some() });
        let metadata = call.metadata().clone();
        let mut goes_on = self.act(call, serving.on(Came::Call { metadata }));
        while goes_on {
            let Some(message) = call.receive() else { break };
            assert!(!message.compressed);
            goes_on = self.act(call, serving.on(Came::Message(message.bytes)));
        }
        if goes_on && call.is_cancelled().is_none() {
            goes_on = self.act(call, serving.on(Came::HalfClose));
        }
        while goes_on {
            match call.wait_cancelled(PATIENCE) {
                Ok(status) => {
                    self.log.add(Seen::Cancelled { path: serving.path(), code: status.code });
                    return;
                }
                Err(Late(_)) => goes_on = self.server().is_some(),
            }
        }
    }

    fn event(&self, event: &Event) {
        match event {
            Event::Closed { reason, .. } => self.log.add(Seen::Closed(reason.number())),
            Event::Accepted { .. } | Event::Refused { .. } => {}
            event => panic!("{event:?}, at a server"),
        }
    }
}

struct ThreadedClient {
    session: Arc<Session>,
    calls: HashMap<CallNumber, Under>,
    tell: Sender<Told>,
    told: Receiver<Told>,
    threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
    watch: Option<JoinHandle<()>>,
}

/// A call under way.
struct Under {
    call: Arc<Call>,
    is_cancelled: Arc<AtomicBool>,
}

/// Tells how a session fares: of its end behind the ends of its calls.
fn watch(session: &Session, tell: &Sender<Told>, threads: &Mutex<Vec<JoinHandle<()>>>) {
    while session.wait_draining(PATIENCE).is_err() {}
    if session.is_draining() {
        let _ = tell.send(Told::Draining);
    }
    let reason = loop {
        if let Ok(reason) = session.wait_closed(PATIENCE) {
            break reason;
        }
    };
    let threads = std::mem::take(&mut *threads.lock().unwrap());
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let _ = tell.send(Told::Closed(reason.number()));
}

/// Tells what comes of a call.
fn read(number: CallNumber, call: &Call, is_cancelled: &AtomicBool, tell: &Sender<Told>) {
    let say = |told| {
        if !is_cancelled.load(Ordering::Relaxed) {
            let _ = tell.send(told);
        }
    };
    if let Some(headers) = call.headers() {
        say(Told::Headers(number, headers));
    }
    while let Some(message) = call.receive() {
        assert!(!message.compressed);
        say(Told::Message(number, message.bytes));
    }
    let status = call.status();
    say(Told::Ended { call: number, code: status.code, unprocessed: status.unprocessed });
}

impl Client for ThreadedClient {
    fn begin(&mut self, start: Start<'_>) -> Option<CallNumber> {
        let deadline_ns = start.deadline.map(|time| tollfree_driver_tokio::now_ns() + time.as_nanos() as u64);
        let start = CallStart {
            metadata: start.metadata,
            message: start.message.map(Message::from),
            is_last: start.is_last,
            deadline_ns,
            ..CallStart::new(start.path)
        };
        let call = match self.session.call(start) {
            Ok(call) => Arc::new(call),
            Err(CallError::Over) => return None,
            Err(error) => panic!("{error}"),
        };
        let number = self.calls.len() as CallNumber + 1;
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (call, is_cancelled, tell) = (call.clone(), is_cancelled.clone(), self.tell.clone());
            move || read(number, &call, &is_cancelled, &tell)
        });
        self.threads.lock().unwrap().push(thread);
        self.calls.insert(number, Under { call, is_cancelled });
        Some(number)
    }

    fn send(&mut self, call: CallNumber, message: Bytes) {
        let said = self.calls[&call].call.send(message);
        assert!(matches!(said, Ok(()) | Err(CallError::Ended)), "{said:?}");
    }

    fn finish(&mut self, call: CallNumber) {
        self.calls[&call].call.finish();
    }

    fn cancel(&mut self, call: CallNumber, code: u16) {
        let under = &self.calls[&call];
        under.is_cancelled.store(true, Ordering::Relaxed);
        under.call.cancel(code);
    }

    fn go_on(&mut self) {
        std::thread::sleep(Duration::from_millis(1));
    }

    fn next_within(&mut self, time: Duration) -> Option<Told> {
        match self.told.recv_timeout(time) {
            Ok(told) => Some(told),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => panic!("nobody tells anything any more"),
        }
    }
}

impl Drop for ThreadedClient {
    fn drop(&mut self) {
        self.session.close();
        let watched = self.watch.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            assert!(matches!(watched, Some(Ok(()))), "a thread of the client's has panicked");
        }
    }
}
