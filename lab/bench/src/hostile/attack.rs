//! The attacks: what each holds, and what it does again and again.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tollfree_driver_tokio::{
    Address, Attachment, Config, Ending, Opening, Outgoing, OutgoingMessage, Registration, now_ns,
};
use tollfree_measure::axis;

use super::Doors;
use super::calls::{self, ABSENT, ECHO, Hold};

/// What processes serve that join a group.
const SPLIT: &str = "tollfree.bench.v1.Split";
/// What was ended is begun again after this time, so that it is the holding that is measured and not a flood.
const AGAIN: Duration = Duration::from_secs(1);
/// Time between two of those that come and go.
const OFTEN: Duration = Duration::from_millis(20);
/// What grows no more for so long is all that there will be.
const STILL: Duration = Duration::from_millis(250);
/// An attack stands by then.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest message that a gateway takes.
const MESSAGE_LEN: usize = 4 << 20;

axis! {
    /// Who means a gateway no good.
    Attack, "attack", {
        /// A client with 4 connections of 256 requests that never end.
        UnfinishedRequests = "unfinished-requests",
        /// A client with 63 messages of 4 MiB that lack their last byte.
        MissingByte = "missing-byte",
        /// 100 connections each to the page of figures and the control socket that ask for nothing. The good client reads the page.
        IdleReaders = "idle-readers",
        /// A client with as many silent connections as it gets, and 100 more that it tries again and again.
        Connections = "connections",
        /// A client with 64 calls of 2 s to a group in which nobody is.
        AbsentGroup = "absent-group",
        /// Processes that connect and say nothing, attach and leave, or attach where they may not.
        Newcomers = "newcomers",
        /// Up to 64 processes that join a group, are called, and answer nothing, while a crowd joins it and leaves.
        SilentWorkers = "silent-workers",
        /// A process with 1,024 unfinished calls by way of the gateway, which calls where it may not, too.
        Via = "via",
    }
}

/// What an attack does, in tasks.
struct Attacking {
    tasks: JoinSet<()>,
    held: Arc<AtomicUsize>,
}

impl Attack {
    /// Whether it is the page of figures that is attacked.
    pub(super) fn is_on_the_page(self) -> bool {
        self == Attack::IdleReaders
    }

    /// Attacks until the process ends; `standing` hears of what is held once all that can be is.
    pub(super) async fn run(self, doors: &Doors, standing: impl FnOnce(usize)) -> Result<Infallible, String> {
        let mut attacking = Attacking { tasks: JoinSet::new(), held: Arc::default() };
        match self {
            Attack::UnfinishedRequests => attacking.hold_requests(doors, 4, 256, request(ECHO, None)).await?,
            Attack::MissingByte => {
                let mut body = BytesMut::zeroed(0);
                body.put_u8(0);
                body.put_u32(MESSAGE_LEN as u32);
                body.put_bytes(0, MESSAGE_LEN - 1);
                let request = Hold { body: body.freeze(), ..request(ECHO, None) };
                attacking.hold_requests(doors, 1, 63, request).await?;
            }
            Attack::IdleReaders => attacking.read_nothing(doors),
            Attack::Connections => attacking.connect(doors),
            Attack::AbsentGroup => {
                let path = format!("/{ABSENT}/Pass");
                attacking.hold_requests(doors, 1, 64, request(&path, Some("2S"))).await?;
            }
            Attack::Newcomers => attacking.come_and_go(doors)?,
            Attack::SilentWorkers => attacking.join_in_silence(doors).await?,
            Attack::Via => attacking.call_via(doors).await?,
        }
        standing(attacking.until_still().await?);
        while attacking.tasks.join_next().await.is_some() {}
        Err("the attack is over".to_owned())
    }
}

fn request(path: &str, timeout: Option<&'static str>) -> Hold {
    Hold { path: path.to_owned(), timeout, body: Bytes::new() }
}

impl Attacking {
    /// Does something again and again.
    fn again<F>(&mut self, pause: Duration, mut what: impl FnMut() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn(async move {
            loop {
                what().await;
                sleep(pause).await;
            }
        });
    }

    async fn hold_requests(
        &mut self,
        doors: &Doors,
        connections: usize,
        each: usize,
        request: Hold,
    ) -> Result<(), String> {
        for _ in 0..connections {
            let client = calls::client(&doors.world, each).await?;
            for _ in 0..each {
                let (client, request, held) = (client.clone(), request.clone(), self.held.clone());
                self.again(AGAIN, move || {
                    let (client, request, held) = (client.clone(), request.clone(), held.clone());
                    async move { drop(calls::hold(client, &request, &held).await) }
                });
            }
        }
        Ok(())
    }

    fn read_nothing(&mut self, doors: &Doors) {
        for _ in 0..100 {
            let (metrics, held) = (doors.metrics.clone(), self.held.clone());
            self.again(AGAIN, move || {
                let (metrics, held) = (metrics.clone(), held.clone());
                async move { calls::say_nothing(TcpStream::connect(metrics).await, &held).await }
            });
            let (control, held) = (doors.control.clone(), self.held.clone());
            self.again(AGAIN, move || {
                let (control, held) = (control.clone(), held.clone());
                async move { calls::say_nothing(UnixStream::connect(control).await, &held).await }
            });
        }
    }

    fn connect(&mut self, doors: &Doors) {
        for _ in 0..612 {
            let (world, held) = (doors.world.clone(), self.held.clone());
            self.again(AGAIN, move || {
                let (world, held) = (world.clone(), held.clone());
                async move { calls::say_nothing(calls::connect(&world).await, &held).await }
            });
        }
    }

    fn come_and_go(&mut self, doors: &Doors) -> Result<(), String> {
        let path = doors.backends.trim_start_matches("shm://").to_owned();
        for _ in 0..20 {
            let (path, held) = (path.clone(), self.held.clone());
            self.again(AGAIN, move || {
                let (path, held) = (path.clone(), held.clone());
                async move { calls::say_nothing(UnixStream::connect(path).await, &held).await }
            });
        }
        for group in ["other", "unknown"] {
            let (address, registration) = (address(doors)?, registration(group)?);
            self.again(OFTEN, move || {
                let (address, registration) = (address.clone(), registration.clone());
                async move { drop(Attachment::attach(&address, &Config::default(), registration).await) }
            });
        }
        Ok(())
    }

    async fn join_in_silence(&mut self, doors: &Doors) -> Result<(), String> {
        let (address, registration) = (address(doors)?, registration("other")?);
        // They have room for objects, so the gateway has more to ask them than calls.
        let config = Config { lending: true, ..Config::default() };
        let mut silent = Vec::new();
        for _ in 0..64 {
            match Attachment::attach(&address, &config, registration.clone()).await {
                Ok(session) => silent.push(session),
                Err(error) if silent.is_empty() => return Err(format!("cannot join a group: {error}")),
                // They are as many as they may be.
                Err(_) => break,
            }
        }
        self.held.store(silent.len(), Ordering::SeqCst);
        self.tasks.spawn(async move {
            let _silent = silent;
            std::future::pending::<()>().await;
        });
        let via = Config { via: Some("group:other".into()), ..Config::default() };
        let session = Attachment::connect(&address, &via).await;
        let session = session.map_err(|error| format!("cannot call by way of the gateway: {error}"))?;
        let session = Arc::new(session);
        for _ in 0..16 {
            let session = session.clone();
            self.again(OFTEN, move || {
                let session = session.clone();
                async move { call_in_vain(&session).await }
            });
        }
        for _ in 0..4 {
            let (address, registration) = (address.clone(), registration.clone());
            self.again(OFTEN, move || {
                let (address, registration) = (address.clone(), registration.clone());
                async move { drop(Attachment::attach(&address, &Config::default(), registration).await) }
            });
        }
        Ok(())
    }

    async fn call_via(&mut self, doors: &Doors) -> Result<(), String> {
        let via = |target: &str| Config { via: Some(target.into()), ..Config::default() };
        let session = Attachment::connect(&address(doors)?, &via("group:default")).await;
        let session = session.map_err(|error| format!("cannot call by way of the gateway: {error}"))?;
        let mut calls = Vec::new();
        for _ in 0..1024 {
            let mut head = Outgoing { headers: Some(Bytes::new()), ..Outgoing::default() };
            let opening = Opening { path: ECHO, deadline_ns: 0 };
            let mut opener = session.open();
            let opened = poll_fn(|cx| opener.poll_open(cx, opening, &mut head));
            match tokio::time::timeout(STILL, opened).await {
                Ok(Ok(call)) => calls.push(call),
                Ok(Err(error)) => return Err(format!("cannot begin a call: {error}")),
                // It has as many as it may.
                Err(_) => break,
            }
        }
        self.held.store(calls.len(), Ordering::SeqCst);
        self.tasks.spawn(async move {
            let _held = (session, calls);
            std::future::pending::<()>().await;
        });
        let (address, forbidden) = (address(doors)?, via("group:forbidden"));
        self.again(OFTEN, move || {
            let (address, forbidden) = (address.clone(), forbidden.clone());
            async move { drop(Attachment::connect(&address, &forbidden).await) }
        });
        Ok(())
    }

    /// Waits until no more is held, and gives how much that is.
    async fn until_still(&self) -> Result<usize, String> {
        let (began, mut before) = (Instant::now(), 0);
        loop {
            sleep(STILL).await;
            let now = self.held.load(Ordering::SeqCst);
            if now > 0 && now <= before {
                return Ok(now);
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("the attack does not come to a stand: {now} held"));
            }
            before = now;
        }
    }
}

/// How a process says what it is, that joins a group.
fn registration(group: &str) -> Result<Registration, String> {
    Registration::new(group, vec![SPLIT.to_owned()]).map_err(|error| error.to_string())
}

/// A whole call that ends at its deadline.
async fn call_in_vain(session: &Attachment) {
    let path = format!("/{SPLIT}/Call");
    let opening = Opening { path: &path, deadline_ns: now_ns() + STILL.as_nanos() as u64 };
    let mut whole = Outgoing {
        headers: Some(Bytes::new()),
        message: Some(OutgoingMessage::plain(Bytes::new().into())),
        ending: Some(Ending::HalfClose),
    };
    let mut opener = session.open();
    let Ok(call) = poll_fn(|cx| opener.poll_open(cx, opening, &mut whole)).await else { return };
    while let Ok(incoming) = poll_fn(|cx| call.poll_incoming(cx)).await {
        if incoming.is_last() {
            return;
        }
    }
}

fn address(doors: &Doors) -> Result<Address, String> {
    doors.backends.parse().map_err(|error| format!("{} is no address: {error}", doors.backends))
}
