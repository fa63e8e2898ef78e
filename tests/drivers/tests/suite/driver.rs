//! What the rows of the suite ask of a driver: a server of the suite's service, and clients, both used by threads that wait.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tempfile::TempDir;
use tollfree_driver_tokio::{Address, Limits, WaitPolicy};

/// What a busy machine may need for anything that comes at all.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Settings of either end.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) wait: WaitPolicy,
    pub(crate) limits: Limits,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { wait: WaitPolicy::Adaptive, limits: Limits::default() }
    }
}

/// How a client begins a call.
#[derive(Clone, Debug)]
pub(crate) struct Start<'a> {
    pub(crate) path: &'a str,
    pub(crate) metadata: Bytes,
    pub(crate) message: Option<Bytes>,
    /// The client says nothing more.
    pub(crate) is_last: bool,
    pub(crate) deadline: Option<Duration>,
}

impl<'a> Start<'a> {
    /// Of a call that says more later on.
    pub(crate) fn open(path: &'a str) -> Start<'a> {
        Start { path, metadata: Bytes::new(), message: None, is_last: false, deadline: None }
    }

    /// Of a call that says one thing.
    pub(crate) fn unary(path: &'a str, message: impl Into<Bytes>) -> Start<'a> {
        Start { message: Some(message.into()), is_last: true, ..Start::open(path) }
    }
}

/// A call of a client, by its order.
pub(crate) type CallNumber = u64;

/// What a client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Headers(CallNumber, Bytes),
    Message(CallNumber, Bytes),
    /// A call is over, with this gRPC status.
    Ended {
        call: CallNumber,
        code: u16,
        unprocessed: bool,
    },
    /// No call can be begun any more.
    Draining,
    /// The session is over, for a reason with this number (`spec/errors.md`). Told once, and the last of all.
    Closed(u16),
}

/// A client's end of one session.
pub(crate) trait Client {
    /// Begins a call. `None`: none can be begun any more.
    fn begin(&mut self, start: Start<'_>) -> Option<CallNumber>;
    /// Says more on a call.
    fn send(&mut self, call: CallNumber, message: Bytes);
    /// Says that nothing more comes.
    fn finish(&mut self, call: CallNumber);
    /// Ends a call in both directions. Nothing more is told of it.
    fn cancel(&mut self, call: CallNumber, code: u16);
    /// Goes on for a moment where it has no thread of its own for that. What comes is kept for later.
    fn go_on(&mut self);
    /// What comes within this time.
    fn next_within(&mut self, time: Duration) -> Option<Told>;

    /// What comes next.
    fn next(&mut self) -> Told {
        self.next_within(PATIENCE).unwrap_or_else(|| panic!("nothing comes within {PATIENCE:?}"))
    }

    /// All that comes of a call, up to its end: headers, messages, status.
    fn answer(&mut self, of: CallNumber) -> Answer {
        let mut answer = Answer::default();
        loop {
            match self.next() {
                Told::Headers(call, block) if call == of => answer.headers = Some(block),
                Told::Message(call, message) if call == of => answer.messages.push(message),
                Told::Ended { call, code, unprocessed } if call == of => {
                    (answer.code, answer.unprocessed) = (code, unprocessed);
                    return answer;
                }
                Told::Draining => {}
                told => panic!("{told:?}, where call {of} is answered"),
            }
        }
    }

    /// One call from its beginning to its end.
    fn call(&mut self, start: Start<'_>) -> Answer {
        let call = self.begin(start).expect("a call can be begun");
        self.answer(call)
    }
}

/// What came of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) headers: Option<Bytes>,
    pub(crate) messages: Vec<Bytes>,
    pub(crate) code: u16,
    pub(crate) unprocessed: bool,
}

/// What a server has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Began {
        path: String,
        has_deadline: bool,
    },
    /// A call was cancelled, or its session ended.
    Cancelled {
        path: String,
        code: u16,
    },
    /// A session is over, for a reason with this number.
    Closed(u16),
}

/// What all sessions of a server have seen, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Seen>>>);

impl Log {
    pub(crate) fn add(&self, seen: Seen) {
        self.0.lock().unwrap().push(seen);
    }

    /// How often something was seen.
    pub(crate) fn count(&self, is_it: impl Fn(&Seen) -> bool) -> usize {
        self.0.lock().unwrap().iter().filter(|seen| is_it(seen)).count()
    }

    /// How sessions ended, in order.
    pub(crate) fn ends(&self) -> Vec<u16> {
        let seen = self.0.lock().unwrap();
        seen.iter()
            .filter_map(|seen| if let Seen::Closed(number) = seen { Some(*number) } else { None })
            .collect()
    }

    /// Waits until something was seen, and gives it.
    pub(crate) fn wait(&self, what: &str, is_it: impl Fn(&Seen) -> bool) -> Seen {
        let began = Instant::now();
        loop {
            if let Some(seen) = self.0.lock().unwrap().iter().find(|seen| is_it(seen)) {
                return seen.clone();
            }
            assert!(began.elapsed() < PATIENCE, "the server never saw {what}: {:?}", self.0);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A server that has begun; it ends with this.
pub(crate) trait Server {}

/// A driver of sessions.
pub(crate) trait Driver {
    const NAME: &'static str;

    /// Serves the suite's service. Returns when it listens.
    fn serve(address: &Address, settings: &Settings, log: &Log) -> Box<dyn Server>;

    /// Connects.
    ///
    /// # Errors
    /// In words.
    fn connect(address: &Address, settings: &Settings) -> Result<Box<dyn Client>, String>;
}

type Serve = fn(&Address, &Settings, &Log) -> Box<dyn Server>;
type Connect = fn(&Address, &Settings) -> Result<Box<dyn Client>, String>;

/// A driver, as a value.
#[derive(Clone, Copy)]
pub(crate) struct Which {
    pub(crate) name: &'static str,
    pub(crate) serve: Serve,
    pub(crate) connect: Connect,
}

/// This driver.
pub(crate) fn which<D: Driver>() -> Which {
    Which { name: D::NAME, serve: D::serve, connect: D::connect }
}

/// Where a row takes place: the drivers of both ends, and a directory.
pub(crate) struct Place {
    pub(crate) client: Which,
    pub(crate) server: Which,
    directory: TempDir,
}

impl Place {
    pub(crate) fn new(client: Which, server: Which) -> Place {
        Place { client, server, directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("s.sock")
    }

    pub(crate) fn address(&self) -> Address {
        Address::Path(self.path())
    }

    pub(crate) fn connect(&self, settings: &Settings) -> Box<dyn Client> {
        (self.client.connect)(&self.address(), settings).unwrap()
    }

    /// A server, and a client of it.
    pub(crate) fn both(&self, settings: &Settings) -> (Served, Box<dyn Client>) {
        let served = self.serve(settings);
        let client = self.connect(settings);
        (served, client)
    }

    pub(crate) fn serve(&self, settings: &Settings) -> Served {
        let log = Log::default();
        let server = (self.server.serve)(&self.address(), settings, &log);
        Served { log, _server: server }
    }
}

/// A server that runs, and what it has seen.
pub(crate) struct Served {
    pub(crate) log: Log,
    _server: Box<dyn Server>,
}
