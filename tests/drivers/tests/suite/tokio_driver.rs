//! The driver for tokio, with a runtime of its own behind each server and each client.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};
use tollfree_driver_tokio::{
    Address, Attachment, Call, Config, End, Ending, Incoming, Listener, Opening, Outgoing, OutgoingMessage,
    SendError, Stream,
};

use crate::assembly::Assembly;
use crate::driver::{CallNumber, Client, Driver, Log, Seen, Server, Settings, Start, Told};
use crate::service::{Came, Deed, Serving};

const CANCELLED: u16 = 1;
const DEADLINE_EXCEEDED: u16 = 4;
const UNAVAILABLE: u16 = 14;

pub(crate) struct Tokio;

fn config(settings: &Settings) -> Config {
    Config { wait: settings.wait, limits: settings.limits, ..Config::default() }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

impl Driver for Tokio {
    const NAME: &'static str = "tokio";

    fn serve(address: &Address, settings: &Settings, log: &Log) -> Box<dyn Server> {
        let runtime = runtime();
        let _entered = runtime.enter();
        let mut listener = Listener::bind(address, config(settings)).unwrap();
        let log = log.clone();
        runtime.spawn(async move {
            while let Some(attachment) = listener.accept().await {
                tokio::spawn(serve(Arc::new(attachment), log.clone()));
            }
        });
        drop(_entered);
        Box::new(TokioServer(Some(runtime)))
    }

    fn connect(address: &Address, settings: &Settings) -> Result<Box<dyn Client>, String> {
        let runtime = runtime();
        let connected = runtime.block_on(Attachment::connect(address, &config(settings)));
        let attachment = Arc::new(connected.map_err(|error| error.to_string())?);
        let (tell, told) = std_mpsc::channel();
        runtime.spawn(watch(attachment.clone(), tell.clone()));
        let calls = HashMap::new();
        Ok(Box::new(TokioClient { runtime: Some(runtime), attachment, calls, last: 0, tell, told }))
    }
}

struct TokioServer(Option<Runtime>);

impl Server for TokioServer {}

impl Drop for TokioServer {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|runtime| runtime.shutdown_timeout(Duration::from_secs(5)));
    }
}

/// Serves a session until it ends.
async fn serve(attachment: Arc<Attachment>, log: Log) {
    loop {
        let mut place = None;
        match poll_fn(|cx| attachment.poll_accept(cx, &mut place)).await {
            Ok(()) => {
                let call = place.expect("a call is there").into_call(true);
                tokio::spawn(serve_call(attachment.clone(), call, log.clone()));
            }
            Err(closed) => return log.add(Seen::Closed(closed.number())),
        }
    }
}

async fn serve_call(attachment: Arc<Attachment>, mut call: Call, log: Log) {
    let mut serving = Serving::new(&call.path);
    log.add(Seen::Began { path: serving.path(), has_deadline: call.deadline_ns.is_some() });
    let mut deeds = serving.on(Came::Call { metadata: call.headers.clone() });
    let mut assembly = Assembly::default();
    let mut first = call.first.take();
    loop {
        match act(&attachment, &call.stream, deeds).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(_) => {}
        }
        let incoming = match first.take() {
            Some(incoming) => Ok(incoming),
            None => poll_fn(|cx| call.stream.poll_incoming(cx)).await,
        };
        let Ok(incoming) = incoming else { return };
        let part = incoming.into_part();
        deeds = Vec::new();
        for message in part.chunk.map(|chunk| assembly.take(chunk)).unwrap_or_default() {
            deeds.extend(serving.on(Came::Message(message)));
        }
        match part.end {
            None => {}
            Some(End::HalfClosed) => {
                deeds.extend(serving.on(Came::HalfClose));
                match act(&attachment, &call.stream, deeds).await {
                    Ok(true) => {}
                    _ => return,
                }
                // Nothing follows but its end.
                poll_fn(|cx| call.stream.poll_ended(cx)).await;
                let code = match call.stream.try_incoming() {
                    Ok(Some(incoming)) => code_of(incoming),
                    _ => CANCELLED,
                };
                return log.add(Seen::Cancelled { path: serving.path(), code });
            }
            Some(End::Cancelled { code, .. }) => {
                return log.add(Seen::Cancelled { path: serving.path(), code });
            }
            Some(_) => return log.add(Seen::Cancelled { path: serving.path(), code: UNAVAILABLE }),
        }
    }
}

fn code_of(incoming: Incoming) -> u16 {
    match incoming.into_part().end {
        Some(End::Cancelled { code, .. }) => code,
        Some(End::SessionClosed) => UNAVAILABLE,
        _ => CANCELLED,
    }
}

/// Does what is to be done; `false`: the call is over by that.
async fn act(attachment: &Attachment, stream: &Stream, deeds: Vec<Deed>) -> Result<bool, SendError> {
    for deed in deeds {
        let mut outgoing = Outgoing::default();
        match deed {
            Deed::Headers(block) => outgoing.headers = Some(block),
            Deed::Send(message) => outgoing.message = Some(OutgoingMessage::new(message, false)),
            Deed::End(code) => outgoing.ending = Some(Ending::Trailers { code, block: Bytes::new() }),
            Deed::Cancel(code) => {
                stream.cancel(code);
                return Ok(false);
            }
            Deed::Drain => attachment.drain(),
            Deed::Close => attachment.close("the service says so"),
            Deed::Pause(time) => tokio::time::sleep(time).await,
        }
        let ends = outgoing.ending.is_some();
        if !outgoing.is_empty() {
            poll_fn(|cx| stream.poll_send(cx, &mut outgoing)).await?;
        }
        if ends {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What a call is to say.
enum Say {
    Message(Bytes),
    Finish,
}

/// How a call is reached.
struct Reach {
    say: mpsc::UnboundedSender<Say>,
    /// Takes the code that the call is cancelled with.
    cancel: Option<oneshot::Sender<u16>>,
}

struct TokioClient {
    runtime: Option<Runtime>,
    attachment: Arc<Attachment>,
    calls: HashMap<CallNumber, Reach>,
    last: CallNumber,
    tell: std_mpsc::Sender<Told>,
    told: std_mpsc::Receiver<Told>,
}

/// Tells when no call can be begun any more, and when the session is over.
async fn watch(attachment: Arc<Attachment>, tell: std_mpsc::Sender<Told>) {
    poll_fn(|cx| attachment.poll_over(cx)).await;
    if attachment.closed().is_none() {
        let _ = tell.send(Told::Draining);
    }
    let closed = loop {
        // A session that drains says nothing of its end to who opens no calls.
        attachment.attend();
        match attachment.closed() {
            Some(closed) => break closed,
            None => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    };
    // Behind what the calls are told.
    tokio::time::sleep(Duration::from_millis(20)).await;
    let _ = tell.send(Told::Closed(closed.number()));
}

impl TokioClient {
    fn say(&self, call: CallNumber, say: Say) {
        let _ = self.calls[&call].say.send(say);
    }
}

impl Client for TokioClient {
    fn begin(&mut self, start: Start<'_>) -> Option<CallNumber> {
        if !self.attachment.is_open() {
            return None;
        }
        self.last += 1;
        let (say, says) = mpsc::unbounded_channel();
        let (cancel, cancelled) = oneshot::channel();
        self.calls.insert(self.last, Reach { say, cancel: Some(cancel) });
        let path = start.path.to_owned();
        let outgoing = Outgoing {
            headers: Some(start.metadata),
            message: start.message.map(|message| OutgoingMessage::new(message, false)),
            ending: start.is_last.then_some(Ending::HalfClose),
        };
        let call =
            Calling { number: self.last, attachment: self.attachment.clone(), tell: self.tell.clone() };
        let runtime = self.runtime.as_ref().expect("until it is dropped");
        runtime.spawn(call.run(path, start.deadline, outgoing, says, cancelled));
        Some(self.last)
    }

    fn send(&mut self, call: CallNumber, message: Bytes) {
        self.say(call, Say::Message(message));
    }

    fn finish(&mut self, call: CallNumber) {
        self.say(call, Say::Finish);
    }

    fn cancel(&mut self, call: CallNumber, code: u16) {
        let cancel = self.calls.get_mut(&call).and_then(|reach| reach.cancel.take());
        cancel.into_iter().for_each(|cancel| _ = cancel.send(code));
    }

    fn go_on(&mut self) {
        std::thread::sleep(Duration::from_millis(1));
    }

    fn next_within(&mut self, time: Duration) -> Option<Told> {
        self.told.recv_timeout(time).ok()
    }
}

impl Drop for TokioClient {
    fn drop(&mut self) {
        self.attachment.close("the client has gone");
        self.runtime.take().into_iter().for_each(|runtime| runtime.shutdown_timeout(Duration::from_secs(5)));
    }
}

/// A call, and who is told of it.
#[derive(Clone)]
struct Calling {
    number: CallNumber,
    attachment: Arc<Attachment>,
    tell: std_mpsc::Sender<Told>,
}

impl Calling {
    fn tell(&self, told: Told) {
        let _ = self.tell.send(told);
    }

    fn ended(&self, code: u16, unprocessed: bool) {
        self.tell(Told::Ended { call: self.number, code, unprocessed });
    }

    async fn run(
        self,
        path: String,
        deadline: Option<Duration>,
        mut outgoing: Outgoing,
        says: mpsc::UnboundedReceiver<Say>,
        mut cancelled: oneshot::Receiver<u16>,
    ) {
        let deadline_ns = deadline.map_or(0, |time| tollfree_driver_tokio::now_ns() + time.as_nanos() as u64);
        let opening = Opening { path: &path, deadline_ns };
        let mut opener = self.attachment.open();
        let opened = tokio::select! {
            opened = poll_fn(|cx| opener.poll_open(cx, opening, &mut outgoing)) => opened,
            Ok(_) = &mut cancelled => return,
        };
        let stream = match opened {
            Ok(stream) => Arc::new(stream),
            Err(_) => return self.ended(UNAVAILABLE, true),
        };
        let writer = tokio::spawn(write(stream.clone(), outgoing, says));
        // The transport carries a deadline and leaves it to its users to keep it.
        let is_late = async {
            match deadline {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.read(&stream) => {}
            Ok(code) = &mut cancelled => stream.cancel(code),
            () = is_late => {
                stream.cancel(DEADLINE_EXCEEDED);
                self.ended(DEADLINE_EXCEEDED, false);
            }
        }
        writer.abort();
    }

    async fn read(&self, stream: &Stream) {
        let mut assembly = Assembly::default();
        loop {
            let Ok(incoming) = poll_fn(|cx| stream.poll_incoming(cx)).await else { return };
            let part = incoming.into_part();
            if let Some(block) = part.headers {
                self.tell(Told::Headers(self.number, block));
            }
            for message in part.chunk.map(|chunk| assembly.take(chunk)).unwrap_or_default() {
                self.tell(Told::Message(self.number, message));
            }
            match part.end {
                None => {}
                Some(End::Trailers { code, .. }) => return self.ended(code, false),
                Some(End::Cancelled { code, refused }) => return self.ended(code, refused),
                Some(End::SessionClosed) => return self.ended(UNAVAILABLE, false),
                Some(End::HalfClosed) => panic!("a server sends no such end"),
            }
        }
    }
}

async fn write(stream: Arc<Stream>, mut outgoing: Outgoing, mut says: mpsc::UnboundedReceiver<Say>) {
    loop {
        if !outgoing.is_empty() && poll_fn(|cx| stream.poll_send(cx, &mut outgoing)).await.is_err() {
            return;
        }
        outgoing = match says.recv().await {
            Some(Say::Message(message)) => {
                Outgoing { message: Some(OutgoingMessage::new(message, false)), ..Outgoing::default() }
            }
            Some(Say::Finish) => Outgoing { ending: Some(Ending::HalfClose), ..Outgoing::default() },
            None => return,
        };
    }
}
