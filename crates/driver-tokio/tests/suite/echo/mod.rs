//! A server that sends back what it gets, and clients of it: what the tests break things around.

use std::future::{Future, poll_fn};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::runtime::{Builder, Handle, Runtime};
use tollfree_driver_tokio::*;
use tollfree_testkit::Census;

/// gRPC's prefix before the first chunk of a message.
const PREFIX_LEN: usize = 5;

type Arrived = Arc<Mutex<Vec<(PeerIdentity, Weak<Attachment>)>>>;

/// A server in the runtime of the test.
pub(crate) struct Echo {
    pub(crate) address: Address,
    pub(crate) directory: tempfile::TempDir,
    /// How sessions ended, in order.
    pub(crate) ended: Arc<Mutex<Vec<Closed>>>,
    /// Whose the server's sessions are, in order of incoming. Each lives until it has ended, not longer because it is
    /// in here.
    pub(crate) sessions: Arrived,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Echo {
    pub(crate) fn start(config: Config) -> Echo {
        let directory = tempfile::tempdir().unwrap();
        let address = Address::Path(directory.path().join("echo.sock"));
        let mut listener = Listener::bind(&address, config).unwrap();
        let ended: Arc<Mutex<Vec<Closed>>> = Arc::default();
        let sessions = Arrived::default();
        let (log, arrived) = (ended.clone(), sessions.clone());
        let task = tokio::spawn(async move {
            while let Some(attachment) = listener.accept().await {
                let attachment = Arc::new(attachment);
                arrived.lock().unwrap().push((attachment.peer(), Arc::downgrade(&attachment)));
                let log = log.clone();
                tokio::spawn(async move {
                    let closed = serve(&attachment).await;
                    log.lock().unwrap().push(closed);
                });
            }
        });
        Echo { address, directory, ended, sessions, task }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("echo.sock")
    }

    pub(crate) async fn connect(&self) -> Attachment {
        Attachment::connect(&self.address, &Config::default()).await.unwrap()
    }

    /// Waits for the next session to end, and says why it did.
    pub(crate) async fn next_end(&self) -> Closed {
        let began = Instant::now();
        loop {
            if let Some(closed) = self.take_end() {
                return closed;
            }
            assert!(began.elapsed() < Duration::from_secs(10), "no session ended");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    fn take_end(&self) -> Option<Closed> {
        let mut ended = self.ended.lock().unwrap();
        if ended.is_empty() { None } else { Some(ended.remove(0)) }
    }
}

/// Serves one session until it ends.
pub(crate) async fn serve(attachment: &Attachment) -> Closed {
    loop {
        match accept(attachment).await {
            Ok(call) => drop(tokio::spawn(answer(call))),
            Err(closed) => return closed,
        }
    }
}

/// The next call, to go on with for as long as it takes.
pub(crate) async fn accept(attachment: &Attachment) -> Result<Call, Closed> {
    let mut place = None;
    poll_fn(|cx| attachment.poll_accept(cx, &mut place)).await?;
    Ok(place.expect("a call is there").into_call(true))
}

async fn answer(mut call: Call) {
    let Some(message) = read_request(&mut call).await else { return };
    reply(&call, message).await;
}

/// Answers a call with one message and OK.
pub(crate) async fn reply(call: &Call, message: Bytes) {
    reply_with(call, OutgoingMessage::new(message, false)).await;
}

/// The same with a message of any kind.
pub(crate) async fn reply_with(call: &Call, message: OutgoingMessage) {
    let mut outgoing = Outgoing {
        headers: Some(Bytes::new()),
        message: Some(message),
        ending: Some(Ending::Trailers { code: 0, block: Bytes::new() }),
    };
    let _ = poll_fn(|cx| call.stream.poll_send(cx, &mut outgoing)).await;
}

/// Reads one message up to the end of the stream. `None`: it ended otherwise.
pub(crate) async fn read_message(stream: &Stream) -> Option<Bytes> {
    read(stream, None).await
}

/// The same of a call that was accepted, and that something may have come with.
pub(crate) async fn read_request(call: &mut Call) -> Option<Bytes> {
    read(&call.stream, call.first.take()).await
}

async fn read(stream: &Stream, mut first: Option<Incoming>) -> Option<Bytes> {
    let mut message = Vec::new();
    loop {
        let incoming = match first.take() {
            Some(incoming) => incoming,
            None => poll_fn(|cx| stream.poll_incoming(cx)).await.ok()?,
        };
        let part = incoming.into_part();
        if let Some(chunk) = part.chunk {
            message.extend_from_slice(&chunk.bytes[if chunk.first { PREFIX_LEN } else { 0 }..]);
        }
        match part.end {
            None => {}
            Some(End::HalfClosed | End::Trailers { code: 0, .. }) => return Some(message.into()),
            Some(_) => return None,
        }
    }
}

/// Begins a call with one message.
pub(crate) async fn begin(attachment: &Attachment, message: Bytes) -> Result<Stream, SendError> {
    begin_at(attachment, "/test.Echo/Call", message).await
}

/// Begins a call of any method.
pub(crate) async fn begin_at(
    attachment: &Attachment,
    path: &str,
    message: Bytes,
) -> Result<Stream, SendError> {
    begin_with(attachment, path, OutgoingMessage::new(message, false)).await
}

/// The same with a message of any kind.
pub(crate) async fn begin_with(
    attachment: &Attachment,
    path: &str,
    message: OutgoingMessage,
) -> Result<Stream, SendError> {
    let opening = Opening { path, deadline_ns: 0 };
    let mut outgoing =
        Outgoing { message: Some(message), ending: Some(Ending::HalfClose), ..Outgoing::default() };
    let mut opener = attachment.open();
    let stream = poll_fn(|cx| opener.poll_open(cx, opening, &mut outgoing)).await?;
    if !outgoing.is_empty() {
        poll_fn(|cx| stream.poll_send(cx, &mut outgoing)).await?;
    }
    Ok(stream)
}

/// Begins a call, or finds that it has to wait.
pub(crate) async fn start(
    attachment: &Attachment,
    opening: Opening<'_>,
    outgoing: &mut Outgoing,
) -> Result<Started, SendError> {
    poll_fn(|cx| Poll::Ready(attachment.start(cx, opening, outgoing, None))).await
}

/// One call, whose answer is looked for at once where that may be. `None`: it ended without its message.
pub(crate) async fn call(attachment: &Attachment, message: Bytes) -> Option<Bytes> {
    let opening = Opening { path: "/test.Echo/Call", deadline_ns: 0 };
    let mut outgoing = Outgoing {
        headers: Some(Bytes::new()),
        message: Some(OutgoingMessage::new(message.clone(), false)),
        ending: Some(Ending::HalfClose),
    };
    match start(attachment, opening, &mut outgoing).await {
        Ok(Started::Answered(answer)) => Some(answer.into_prefixed().slice(PREFIX_LEN..)),
        Ok(Started::Open(stream) | Started::Waits(stream)) => {
            if !outgoing.is_empty() {
                poll_fn(|cx| stream.poll_send(cx, &mut outgoing)).await.ok()?;
            }
            read_message(&stream).await
        }
        Err(_) => None,
        Ok(Started::MustWait) => read_message(&begin(attachment, message).await.ok()?).await,
    }
}

/// Makes calls and checks what comes back.
pub(crate) async fn check_calls(attachment: &Attachment, count: usize) {
    for idx in 0..count {
        let message = Bytes::from(vec![idx as u8; 1 + idx * 37 % 3000]);
        assert_eq!(call(attachment, message.clone()).await, Some(message), "call {idx}");
    }
}

/// Longest that a call may take where nothing is in its way but noise.
pub(crate) const SOON: Duration = Duration::from_secs(5);

pub(crate) const POLICIES: [WaitPolicy; 4] =
    [WaitPolicy::Adaptive, WaitPolicy::LowLatency, WaitPolicy::Park, WaitPolicy::Poll];

pub(crate) fn runtimes() -> [Runtime; 2] {
    [
        Builder::new_current_thread().enable_all().build().unwrap(),
        Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap(),
    ]
}

/// A server in a runtime and thread of its own, so that what a test does to its client's runtime stays there.
pub(crate) struct Apart {
    echo: Option<Echo>,
    runtime: Option<Runtime>,
}

impl Apart {
    pub(crate) fn start(config: Config) -> Apart {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let echo = runtime.block_on(async { Echo::start(config) });
        Apart { echo: Some(echo), runtime: Some(runtime) }
    }

    pub(crate) fn echo(&self) -> &Echo {
        self.echo.as_ref().unwrap()
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        self.echo.take();
        self.runtime.take().unwrap().shutdown_background();
    }
}

pub(crate) fn config(wait: WaitPolicy) -> Config {
    Config { wait, ..Config::default() }
}

pub(crate) async fn connect(echo: &Echo, wait: WaitPolicy) -> Arc<Attachment> {
    Arc::new(Attachment::connect(&echo.address, &config(wait)).await.unwrap())
}

pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future).await.unwrap_or_else(|_| panic!("{what}: lost"))
}

/// A call that is open and gets no answer for now: its request is not ended.
pub(crate) async fn quiet_call(attachment: &Attachment) -> Stream {
    let opening = Opening { path: "/test.Echo/Call", deadline_ns: 0 };
    let mut outgoing = Outgoing {
        message: Some(OutgoingMessage::new(Bytes::from_static(b"begun"), false)),
        ..Outgoing::default()
    };
    let mut opener = attachment.open();
    poll_fn(|cx| opener.poll_open(cx, opening, &mut outgoing)).await.unwrap()
}

/// Runs a test in a process of its own, as it counts what the process holds: other tests' runtimes hold descriptors too. In the
/// end no task, descriptor or mapped region may be left that was not there before.
pub(crate) fn alone_for(seconds: u64, test: impl Future<Output = ()>) {
    if !tollfree_testkit::is_alone(&test) {
        return;
    }
    let _limit = tollfree_testkit::TimeLimit::seconds(seconds);
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let before = Census::take();
    runtime.block_on(async {
        test.await;
        nobody_is_left(0).await;
    });
    before.assert_back();
}

/// Waits until no more tasks of this runtime are left than there were.
pub(crate) async fn nobody_is_left(before: usize) {
    let began = Instant::now();
    loop {
        let alive = Handle::current().metrics().num_alive_tasks();
        if alive <= before {
            return;
        }
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{alive} tasks are left, and there were {before} before"
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
