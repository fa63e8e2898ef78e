//! The client's end: a channel that any generated client takes.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::Request;
use parking_lot::Mutex;
use tollfree_transport::{Address, Attachment, Config, ConnectError, PeerIdentity, PeerPolicy, WaitPolicy};
use tonic::Status;
use tonic::body::Body;

use crate::body::ResponseBody;
use crate::call::ResponseFuture;
use crate::status;

/// After a failed attempt to connect, calls fail at once for this long; doubled each time up to the maximum.
const BACKOFF_FIRST: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Why a channel could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// Not an address of a session.
    #[error(transparent)]
    Address(#[from] tollfree_transport::AddressError),
    /// Nobody there, or no session came of it.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

/// A way to a server over shared memory, for any client that tonic generates. Clones share the session.
///
/// A session that ends is replaced at the next call; a call whose outcome is unknown ends UNAVAILABLE and is never sent
/// again by itself. A channel may be used from several runtimes at once.
///
/// # Example
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let channel = tollfree::Channel::connect("shm:///run/app/greeter.sock").await?;
/// println!("{}", channel.path());
/// // let mut client = GreeterClient::new(channel);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Channel {
    inner: Arc<Inner>,
}

struct Inner {
    address: Address,
    name: Arc<str>,
    config: Config,
    timeout: Option<Duration>,
    current: Mutex<Option<Arc<Attachment>>>,
    /// Held while connecting: others wait for the outcome instead of connecting too.
    connecting: tokio::sync::Mutex<Backoff>,
}

#[derive(Debug, Default)]
struct Backoff {
    failures: u32,
    until: Option<Instant>,
    last: Option<Status>,
}

/// Resolves to a session, new or the one that another call has just made.
pub(crate) type Acquire = Pin<Box<dyn Future<Output = Result<Arc<Attachment>, Status>> + Send>>;

/// Settings of a channel; see [`Channel::builder`].
#[derive(Clone, Debug)]
pub struct ChannelBuilder {
    uri: String,
    config: Config,
    timeout: Option<Duration>,
}

impl ChannelBuilder {
    /// A timeout for calls that bring none or a longer one.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How tasks wait for replies.
    pub fn wait(mut self, wait: WaitPolicy) -> Self {
        self.config.wait = wait;
        self
    }

    /// Which users' servers are trusted.
    pub fn peers(mut self, peers: PeerPolicy) -> Self {
        self.config.peers = peers;
        self
    }

    /// Connects now.
    ///
    /// # Errors
    /// [`ChannelError`], which names the socket and what to do.
    pub async fn connect(self) -> Result<Channel, ChannelError> {
        let channel = self.connect_lazy()?;
        channel.connect_now().await?;
        Ok(channel)
    }

    /// Connects at the first call.
    ///
    /// # Errors
    /// [`ChannelError::Address`].
    pub fn connect_lazy(self) -> Result<Channel, ChannelError> {
        let address: Address = self.uri.parse()?;
        Ok(Channel {
            inner: Arc::new(Inner {
                name: address.to_string().into(),
                address,
                config: self.config,
                timeout: self.timeout,
                current: Mutex::new(None),
                connecting: tokio::sync::Mutex::default(),
            }),
        })
    }
}

/// Which way a channel's calls take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The server's address.
    pub address: Address,
    /// The server's process while there is a session with it.
    pub peer: Option<PeerIdentity>,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.peer {
            Some(peer) => write!(
                f,
                "shared memory with process {} of user {}, met at {}",
                peer.pid, peer.uid, self.address
            ),
            None => write!(f, "not connected to {}; the next call connects", self.address),
        }
    }
}

impl Channel {
    /// Connects to `shm:///path/to.sock` or `shm-abstract:name`. Must be called in a tokio runtime with IO and time.
    ///
    /// # Errors
    /// [`ChannelError`], which names the socket and what to do.
    pub async fn connect(uri: impl Into<String>) -> Result<Channel, ChannelError> {
        Channel::builder(uri).connect().await
    }

    /// A channel with settings.
    pub fn builder(uri: impl Into<String>) -> ChannelBuilder {
        ChannelBuilder { uri: uri.into(), config: Config::default(), timeout: None }
    }

    /// Which way calls take now.
    pub fn path(&self) -> Path {
        let peer = self.live().filter(|session| session.closed().is_none()).map(|session| session.peer());
        Path { address: self.inner.address.clone(), peer }
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.inner.timeout
    }

    pub(crate) fn peer(&self) -> &Arc<str> {
        &self.inner.name
    }

    /// The session that calls use now. It may have ended without anybody having noticed yet.
    pub(crate) fn live(&self) -> Option<Arc<Attachment>> {
        self.inner.current.lock().clone()
    }

    /// Gets hold of a session: the present one, or a new one.
    pub(crate) fn acquire(&self) -> Acquire {
        let channel = self.clone();
        Box::pin(async move { channel.acquire_now().await })
    }

    /// A session turned out to be over or draining: the next call makes a new one.
    pub(crate) fn retire(&self, attachment: &Arc<Attachment>) {
        let mut current = self.inner.current.lock();
        if current.as_ref().is_some_and(|known| Arc::ptr_eq(known, attachment)) {
            *current = None;
        }
    }

    async fn acquire_now(&self) -> Result<Arc<Attachment>, Status> {
        let mut backoff = self.inner.connecting.lock().await;
        if let Some(attachment) = self.live() {
            return Ok(attachment);
        }
        if let (Some(until), Some(last)) = (backoff.until, &backoff.last)
            && Instant::now() < until
        {
            return Err(last.clone());
        }
        match self.connect_now().await {
            Ok(attachment) => {
                *backoff = Backoff::default();
                Ok(attachment)
            }
            Err(error) => {
                let failed = status::connect(&error);
                backoff.last = Some(failed.clone());
                backoff.until = Some(Instant::now() + delay(backoff.failures));
                backoff.failures = backoff.failures.saturating_add(1);
                Err(failed)
            }
        }
    }

    async fn connect_now(&self) -> Result<Arc<Attachment>, ConnectError> {
        let inner = &self.inner;
        let attachment = Arc::new(Attachment::connect(&inner.address, &inner.config).await?);
        tracing::info!(
            address = %inner.name,
            peer = ?attachment.peer(),
            agent = attachment.agent(),
            "calls go over shared memory: the address names a session and the server answered the handshake"
        );
        *inner.current.lock() = Some(attachment.clone());
        Ok(attachment)
    }
}

/// Exponential, with jitter so that clients of one server do not come back all at once.
fn delay(failures: u32) -> Duration {
    let full = BACKOFF_FIRST.saturating_mul(1 << failures.min(16)).min(BACKOFF_MAX);
    let noise = tollfree_transport::now_ns() ^ u64::from(std::process::id());
    let share = (noise.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / (1u64 << 24) as f64;
    full.mul_f64(0.8 + 0.4 * share)
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("address", &self.inner.address).finish_non_exhaustive()
    }
}

impl tower_service::Service<Request<Body>> for Channel {
    type Response = http::Response<ResponseBody>;
    type Error = Status;
    type Future = CallFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> CallFuture {
        CallFuture { inner: ResponseFuture::new(self.clone(), request).map_err(Some) }
    }
}

/// A call under way; resolves to the response's head. Dropping it cancels the call.
#[derive(Debug)]
pub struct CallFuture {
    inner: Result<ResponseFuture, Option<Status>>,
}

impl Future for CallFuture {
    type Output = Result<http::Response<ResponseBody>, Status>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.inner {
            Ok(call) => Pin::new(call).poll(cx),
            Err(status) => {
                Poll::Ready(Err(status.take().unwrap_or_else(|| Status::internal("polled after its end"))))
            }
        }
    }
}
