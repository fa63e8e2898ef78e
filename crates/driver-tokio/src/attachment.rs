//! What users of the transport hold: an attachment to a peer.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tollfree_connection::{Announced, PeerActivity};
use tollfree_kill_points::{Point, here};
use tollfree_os::tokio_net::UnixStream;
use tollfree_os::tokio_net::unix::{SocketAddr, UCred};
use tollfree_rendezvous::{Address, OfferedSocket, PeerIdentity};
use tollfree_session::Closed;

use crate::cooperative_budget::CooperativeBudget;
use crate::inherited::OfProcess;
use crate::link::Seed;
use crate::registers::Registers;
use crate::remote::{LocalPeer, RemoteIdentity};
use crate::shaking;
use crate::shared::{Shared, Socket};
use tollfree_host::{
    Attached, Config, ConnectError, ConnectErrorKind, DIAL_PAUSE, HandshakeError, PeerPool, Purpose,
    Registration, STARTING, patience,
};

/// What lies in a ring, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// Written, and not given back by the peer, who gives back many records at once.
    pub unread_len: u64,
    /// The ring's length.
    pub ring_len: u64,
}

/// This side's hold on a session. Dropping it ends the session; calls under way end UNAVAILABLE at both ends.
pub struct Attachment {
    pub(crate) shared: Arc<Shared>,
    pub(crate) accepts: CooperativeBudget,
    /// Set where the session is one over memory.
    local: Option<LocalPeer>,
    /// The peer's end of the socket, where the system said it.
    peer_addr: Option<Arc<SocketAddr>>,
    peer_cred: Option<UCred>,
}

impl fmt::Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attachment").field("peer", &self.shared.identity).finish_non_exhaustive()
    }
}

/// Connects to the socket. A server whose backlog is full is busy accepting others: it gets the time of a handshake, `busy`. One that
/// does not listen gets `starting`.
async fn dial(path: &Path, busy: Duration, starting: Duration) -> std::io::Result<UnixStream> {
    let began = tokio::time::Instant::now();
    loop {
        let error = match UnixStream::connect(path).await {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        if began.elapsed() >= patience(&error, busy, starting) {
            return Err(error);
        }
        tokio::time::sleep(DIAL_PAUSE).await;
    }
}

impl Attachment {
    /// Connects to a server, or to a gateway that is to call a target ([`Config::via`]). Must be called in a tokio runtime with
    /// IO and time.
    ///
    /// # Errors
    /// [`ConnectError`], which names the socket.
    pub async fn connect(address: &Address, config: &Config) -> Result<Attachment, ConnectError> {
        let purpose = config.purpose();
        let (attachment, _) =
            Attachment::meet(address, &address.socket_path(), config, &purpose, None).await?;
        Ok(attachment)
    }

    /// Connects to a gateway as a process that it is to call: this side is the session's server. Must be called in a tokio
    /// runtime with IO and time.
    ///
    /// # Errors
    /// [`ConnectError`], which names the socket.
    pub async fn attach(
        address: &Address,
        config: &Config,
        registration: Registration,
    ) -> Result<Attachment, ConnectError> {
        let purpose = Purpose::Attach(registration);
        let (attachment, _) =
            Attachment::meet(address, &address.socket_path(), config, &purpose, None).await?;
        Ok(attachment)
    }

    /// Connects to a socket that a server has named, with a ticket that it gave. The attachment comes with the answer to
    /// its token: whether it is the answer of that server is still to be asked.
    ///
    /// # Errors
    /// [`ConnectError`], which names the socket. It is one, too, when the token is refused or not answered.
    pub async fn connect_with(
        socket: &OfferedSocket,
        config: &Config,
        ticket: &tollfree_host::Ticket,
    ) -> Result<(Attachment, tollfree_host::Token), ConnectError> {
        let path = socket.socket_path();
        let met = Attachment::meet(socket.address(), &path, config, &Purpose::Call, Some(ticket)).await?;
        let (attachment, Some(answer)) = met else {
            return Err(ConnectError {
                address: socket.address().to_string(),
                kind: HandshakeError::NoAnswer.into(),
            });
        };
        Ok((attachment, answer))
    }

    async fn meet(
        address: &Address,
        path: &Path,
        config: &Config,
        purpose: &Purpose,
        ticket: Option<&tollfree_host::Ticket>,
    ) -> Result<(Attachment, Option<tollfree_host::Token>), ConnectError> {
        let error = |kind| ConnectError { address: address.to_string(), kind };
        let dialled = dial(path, config.handshake_timeout, STARTING).await;
        let socket = dialled.map_err(|source| error(ConnectErrorKind::of(source, path)))?;
        let socket = OfProcess::new(socket);
        here(Point::Connected);
        let attached = shaking::connect(&socket, config, purpose, ticket).await;
        let attached = attached.map_err(|kind| error(kind.into()))?;
        let answer = attached.answer;
        let attachment = Attachment::new(attached, socket.into_inner(), config)
            .map_err(|source| error(ConnectErrorKind::Io(source)))?;
        Ok((attachment, answer))
    }

    /// Connects to a gateway of another host, which both certificates prove to each other: to be called by it, or to call by way of
    /// it. It refuses every other purpose. Must be called in a tokio runtime with IO and time.
    ///
    /// # Errors
    /// [`ConnectError`], which names the address.
    #[cfg(feature = "tls")]
    pub async fn connect_over(
        address: &crate::StreamAddress,
        certificates: &crate::Certificates,
        config: &Config,
        purpose: Purpose,
    ) -> Result<Attachment, ConnectError> {
        let error = |kind| ConnectError { address: address.to_string(), kind };
        let config = config.over_stream();
        let met = crate::link::dial(address, certificates, &config, purpose).await;
        let (attached, seed, socket) = met.map_err(|kind| error(kind.into()))?;
        Attachment::over_stream(attached, seed, socket, &config)
            .map_err(|source| error(ConnectErrorKind::Io(source)))
    }

    #[cfg(feature = "tls")]
    pub(crate) fn over_stream(
        attached: Attached,
        seed: Box<Seed>,
        socket: tokio::net::TcpStream,
        config: &Config,
    ) -> std::io::Result<Attachment> {
        let socket = Socket::from_owned_fd_unchecked(tollfree_os::tcp_fd(socket.into_std()?)?)?;
        Attachment::begin(attached, Some(seed), socket, config)
    }

    pub(crate) fn new(
        attached: Attached,
        socket: UnixStream,
        config: &Config,
    ) -> std::io::Result<Attachment> {
        let peer_addr = socket.peer_addr().ok().map(Arc::new);
        let peer_cred = socket.peer_cred().ok();
        let socket = Socket::from_owned_fd_unchecked(socket.into_std()?.into())?;
        let mut attachment = Attachment::begin(attached, None, socket, config)?;
        (attachment.peer_addr, attachment.peer_cred) = (peer_addr, peer_cred);
        attachment.local = Some(LocalPeer::of_memory(attachment.shared.identity));
        Ok(attachment)
    }

    fn begin(
        attached: Attached,
        seed: Option<Box<Seed>>,
        socket: Socket,
        config: &Config,
    ) -> std::io::Result<Attachment> {
        let shared = Shared::new(attached, seed, socket, config)?;
        shared.start_driver(&Handle::current())?;
        here(Point::SessionBegun);
        Ok(Attachment {
            shared,
            accepts: CooperativeBudget::default(),
            local: None,
            peer_addr: None,
            peer_cred: None,
        })
    }

    /// Why the session is over, if it is.
    pub fn closed(&self) -> Option<Closed> {
        match self.shared.enter() {
            Ok(core) => core.session().closed().cloned(),
            Err(closed) => Some(closed),
        }
    }

    /// What lies in this side's ring; `None` when the session is over.
    pub fn backlog(&self) -> Option<Backlog> {
        let core = self.shared.enter().ok()?;
        let (unread_len, ring_len) = core.connection.backlog();
        core.session().closed().is_none().then_some(Backlog { unread_len, ring_len })
    }

    /// How far the peer has come with what was published for it. Costs a few loads under the session's lock, and wakes nobody. `None`: the
    /// session is over, or one over a byte stream, which ends by itself when its peer is silent.
    pub fn peer_activity(&self) -> Option<PeerActivity> {
        self.local?;
        let core = self.shared.enter().ok()?;
        core.session().closed().is_none().then(|| core.connection.peer_activity())
    }

    /// Whether new calls can be opened: not closed, and not draining.
    pub fn is_open(&self) -> bool {
        self.shared
            .enter()
            .is_ok_and(|core| core.session().closed().is_none() && !core.session().is_draining())
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

    /// Whether the two sides are members of one pool, so that messages may be segmented messages.
    pub fn peer_pool(&self) -> PeerPool {
        self.shared.peer_pool
    }

    /// Whether messages to the server, which has attached to a gateway, may be segmented messages of a pool that it joins later on
    /// ([`Config::lending`](crate::Config::lending)).
    pub fn lends(&self) -> bool {
        self.shared.lends
    }

    /// SegmentedMessages sent that the peer has not taken hold of yet.
    pub fn segmented_messages_in_flight(&self) -> usize {
        self.shared.enter().map_or(0, |core| core.session().segmented_messages_in_flight())
    }

    /// Whether the peer had to be given the bytes of the segmented message that it took last, since it can't map what this side can. So it
    /// is likely to be with the next.
    pub fn gives_inline(&self) -> bool {
        self.shared.enter().is_ok_and(|core| core.session().gives_inline())
    }

    /// Looks whether the peer has taken segmented messages of which it could not yet be heard, for it wakes nobody to say so. `true`: some
    /// need not be kept any more.
    pub fn look_for_taken(&self) -> bool {
        self.shared.look_for_taken()
    }

    /// Announces requests in another way from now on (gateway), and asks the process that has attached to wait for them so, which it
    /// does when it is about to wait the next time. Nothing is lost by that: what was to wait for more is announced at once.
    pub fn set_registers(&self, registers: &Registers) {
        if let Ok(mut core) = self.shared.enter() {
            core.set_registers(registers, &self.shared.socket);
        }
    }

    /// What was announced to the peer so far.
    pub fn announced(&self) -> Announced {
        self.shared.enter().map_or_else(|_| Announced::default(), |core| core.announced())
    }

    /// Who is at the other end.
    pub fn peer(&self) -> PeerIdentity {
        self.shared.identity
    }

    /// Who is at the other end, where that is a process of this host. `None`: the session is one over a byte stream, at either end.
    pub fn local_peer(&self) -> Option<LocalPeer> {
        self.local
    }

    /// Who is at the other end, where that is a process of another host: its identity has no process and no user then.
    pub fn remote(&self) -> Option<&RemoteIdentity> {
        self.shared.remote.as_ref()
    }

    /// What the side that connected wants: the peer at a listener, else this side.
    pub fn purpose(&self) -> &Purpose {
        &self.shared.purpose
    }

    /// The address of the peer's end of the socket, which a client's usually has none of, in tokio's words.
    pub fn peer_addr(&self) -> Option<Arc<SocketAddr>> {
        self.peer_addr.clone()
    }

    /// Who is at the other end, in tokio's words.
    pub fn peer_cred(&self) -> Option<UCred> {
        self.peer_cred
    }

    /// What the peer calls itself.
    pub fn agent(&self) -> &str {
        &self.shared.agent
    }

    /// Calls under way.
    pub fn live_count(&self) -> u32 {
        self.shared.enter().map_or(0, |core| core.session().live_count())
    }

    /// Calls that may be under way at once.
    pub fn call_count_max(&self) -> u32 {
        self.shared.enter().map_or(0, |core| core.session().stream_count_max())
    }

    /// Sends what is held back, before something that may take long.
    pub fn flush(&self) {
        if let Ok(mut core) = self.shared.enter()
            && core.connection.holds()
        {
            core.flush(&self.shared.socket);
        }
    }

    /// Takes no more calls (server). The client is told which it may send again elsewhere.
    pub fn drain(&self) {
        if let Ok(mut core) = self.shared.enter() {
            core.session_mut().drain();
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

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("peer", &self.identity).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tollfree_os::rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

    use super::*;

    #[tokio::test]
    async fn a_server_that_has_bound_its_socket_is_given_time_to_listen() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        let listener = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        let long = Duration::from_secs(60);
        let refused = dial(&path, long, Duration::ZERO).await.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        let dialled = {
            let path = path.clone();
            tokio::spawn(async move { dial(&path, long, long).await })
        };
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(!dialled.is_finished());
        rustix::net::listen(&listener, 1).unwrap();
        dialled.await.unwrap().unwrap();
    }
}
