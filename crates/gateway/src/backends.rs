//! The socket of backends: who may attach as what.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tollfree::PeerPolicy;
use tollfree::gateway::{
    Accepted, Admits, Attached, BackendListener, Limits, SocketFile, StreamPolicy, is_listed, is_same_user,
    own_user,
};

use crate::backend_connections::BackendConnections;
use crate::client::Client;
use crate::config::{BackendsConfig, Config, FileMode, UserGroup};
use crate::egress::{Egress, Via};
use crate::metrics::Metrics;
use crate::notices::Notices;
use crate::peer::Peer;
use crate::refusal::Refusal;
use crate::reload::Current;
use crate::takeover::{Sockets, Takeover};
use crate::tls::{Certificates, Protocol, TlsError};

/// Services that servers have beside their own, and that each group may attach with. The gateway answers for health itself.
const EVERYBODYS: [&str; 3] = [
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
];
/// What a process is told that may not stay attached.
pub(crate) const NOT_ANY_MORE: &str = "the gateway's config does not let it attach so any more: its log, and the error of attaching anew, say why";

/// Which users may attach to which groups, and with what.
pub(crate) struct Tenants {
    config: Current,
    /// Whom the socket was bound for.
    peers: PeerPolicy,
    version: watch::Sender<u64>,
}

/// Everybody who is in some group.
fn peers(config: &Config) -> PeerPolicy {
    let mut users: Vec<u32> = config.groups.values().flat_map(|group| group.users.iter().copied()).collect();
    if users.is_empty() {
        return PeerPolicy::SameUser;
    }
    // Not where it is an id that others have too: nobody listed them.
    users.extend(Some(own_user()).filter(|user| is_same_user(*user, own_user())));
    PeerPolicy::Users(users)
}

impl Tenants {
    pub(crate) fn new(config: Current) -> Tenants {
        let peers = peers(&config.load());
        Tenants { config, peers, version: watch::Sender::new(0) }
    }

    /// Whether the socket lets in a user's processes.
    pub(crate) fn may_come(&self) -> impl Fn(u32) -> bool {
        |user| self.peers.allows(user)
    }

    /// The config that holds now.
    pub(crate) fn config(&self) -> &Current {
        &self.config
    }

    /// Another config holds.
    pub(crate) fn changed(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    /// Tells when another config holds.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Which of the configs that have held this is.
    pub(crate) fn version(&self) -> u64 {
        *self.version.borrow()
    }

    /// Resolves when it is not any more as `may_call` said.
    async fn decided_otherwise(&self, peer: &Peer, target: &str, before: bool) {
        let mut version = self.version.subscribe();
        while self.may_call(peer, target) == before {
            if version.changed().await.is_err() {
                std::future::pending().await
            }
        }
    }

    /// Whether a process is a group's: by its user, or by its certificate's subject.
    pub(crate) fn is_of(&self, peer: &Peer, group: &str) -> bool {
        let config = self.config.load();
        match (config.groups.get(group), peer) {
            (Some(group), Peer::Remote(remote)) => {
                group.subjects.iter().any(|subject| **subject == *remote.subject)
            }
            (None, Peer::Remote(_)) => false,
            (Some(group), Peer::Local(peer)) if !group.users.is_empty() => is_listed(peer.uid, &group.users),
            (Some(_), Peer::Local(peer)) => PeerPolicy::SameUser.allows(peer.uid),
            (None, Peer::Local(_)) => config.groups.is_empty(),
        }
    }

    /// Whether processes that call a group may do so without the gateway between.
    pub(crate) fn has_direct_connections(&self, group: &str) -> bool {
        self.config.load().groups.get(group).is_some_and(|group| group.direct_connections)
    }

    /// Whether some group of a process may call there.
    pub(crate) fn may_call(&self, peer: &Peer, target: &str) -> bool {
        !self.callers(peer, target).is_empty()
    }

    /// The groups of a process that may call there: the one that is called, if it's one of them, then others by name.
    pub(crate) fn callers(&self, peer: &Peer, target: &str) -> Vec<String> {
        let called = target.strip_prefix("group:").filter(|group| self.is_of(peer, group));
        let config = self.config.load();
        let others = config.groups.iter().filter(|(name, group)| {
            called != Some(name.as_str())
                && group.via.iter().any(|via| via == target)
                && self.is_of(peer, name)
        });
        called.map(str::to_owned).into_iter().chain(others.map(|(name, _)| name.clone())).collect()
    }

    /// Whether a process may attach, or stay so, as it says.
    ///
    /// # Errors
    /// Which group or service it may not have, and why.
    pub(crate) fn check_attached(&self, attached: &Attached) -> Result<(), String> {
        self.check(&Peer::of_attached(attached), attached.group(), attached.services())
    }

    /// Whether a process may attach as it says; the words are told to it, which a handshake has room for 120 bytes of.
    pub(crate) fn check(&self, peer: &Peer, group: &str, services: &[String]) -> Result<(), String> {
        let config = self.config.load();
        if !config.groups.is_empty() && !config.groups.contains_key(group) {
            return Err(format!("the gateway's config has no group {group}"));
        }
        if !self.is_of(peer, group) {
            return Err(match peer {
                Peer::Local(peer) => {
                    format!("user {} is not in the users of group {group} in the gateway's config", peer.uid)
                }
                Peer::Remote(remote) => format!(
                    "{} is not in the subjects of group {group} in the gateway's config",
                    remote.subject
                ),
            });
        }
        let allowed = config.groups.get(group).map_or(&[][..], |group| &group.services);
        for service in services.iter().filter(|service| !EVERYBODYS.contains(&service.as_str())) {
            let owner = config.groups.iter().find(|(_, group)| group.services.contains(service));
            match owner {
                Some((owner, _)) if owner == group => {}
                Some((owner, _)) => {
                    return Err(format!("service {service} is group {owner}'s, not {group}'s"));
                }
                None if allowed.is_empty() => {}
                None => return Err(format!("service {service} is not in the services of group {group}")),
            }
        }
        Ok(())
    }
}

/// Why there is no socket for backends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendsError {
    /// That of this host's.
    #[error("backends.socket: {0}")]
    Socket(tollfree::ServeError),
    /// Its file can't be given to those who are to use it.
    #[error("{0}")]
    File(String),
    /// That of other hosts'.
    #[error("backends.stream: {0}")]
    Stream(tollfree::ServeError),
    /// Its certificates.
    #[error("backends.stream: {0}")]
    Certificates(#[from] TlsError),
}

/// Refuses backends that may not attach, before they have a session: so their attempts end with an error.
fn admits(tenants: Arc<Tenants>, metrics: Arc<Metrics>) -> Admits {
    Admits::new(move |who, registration| {
        let peer = Peer::of_attacher(who);
        tenants.check(&peer, &registration.group, &registration.services).inspect_err(|reason| {
            metrics.refused_inside(Refusal::Attach, &(&peer, &registration.group), reason);
        })
    })
}

/// What takeovers call the socket for backends of other hosts.
const STREAM: &str = "backends.stream";

/// The socket for backends of other hosts.
struct Remote {
    listener: BackendListener,
    certificates: Arc<Certificates>,
    /// Its other descriptor, while another gateway may be about to take it.
    kept: Option<std::net::TcpListener>,
    address: String,
    limits: Limits,
}

impl Remote {
    /// Binds it, or takes the running gateway's.
    async fn bind(
        stream: &crate::config::Stream,
        limits: Limits,
        claim: Option<&mut Takeover>,
    ) -> Result<Remote, BackendsError> {
        let certificates = Arc::new(Certificates::read(&stream.files(), Protocol::Device).await?);
        let address = stream.address.clone();
        let socket = |source| tollfree::ServeError::Socket { address: address.clone(), source };
        let passed = claim.map(|claim| claim.tcp(STREAM, &address)).transpose();
        let passed = passed.map_err(|error| BackendsError::Stream(socket(error)))?.flatten();
        let policy = policy(&certificates);
        let listener = match passed {
            Some(passed) => BackendListener::adopt_stream(passed, &address, policy, limits.clone()),
            None => BackendListener::bind_stream(&address, policy, limits.clone()).await,
        };
        let listener = listener.map_err(BackendsError::Stream)?;
        Ok(Remote { listener, certificates, kept: None, address, limits })
    }

    fn socket(&self) -> Weak<TcpListener> {
        self.listener.stream_socket().unwrap_or_default()
    }

    /// Lets nobody in for now: another process accepts from the socket.
    async fn pause(&mut self) -> std::io::Result<()> {
        let socket = self.socket();
        if let Some(open) = socket.upgrade() {
            let kept = std::os::fd::AsFd::as_fd(&*open).try_clone_to_owned()?;
            self.kept = Some(std::net::TcpListener::from(kept));
        }
        self.listener.close();
        while socket.strong_count() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// Lets processes in again.
    fn resume(&mut self) -> Result<(), BackendsError> {
        let Some(kept) = self.kept.take() else { return Ok(()) };
        let policy = policy(&self.certificates);
        let listener = BackendListener::adopt_stream(kept, &self.address, policy, self.limits.clone());
        self.listener = listener.map_err(BackendsError::Stream)?;
        Ok(())
    }
}

fn policy(certificates: &Arc<Certificates>) -> StreamPolicy {
    let current = certificates.clone();
    StreamPolicy {
        tls: Arc::new(move || current.current()),
        subject: Arc::new(|certificate| Client::subject_of(certificate).map(Into::into)),
    }
}

/// What is asked of the sockets while another gateway takes their place.
pub(crate) enum SocketOrder {
    /// Backends of other hosts are the other gateway's to let in.
    Yield(oneshot::Sender<Result<(), BackendsError>>),
    /// The other gateway has not come: all are let in here again.
    Resume(oneshot::Sender<Result<(), BackendsError>>),
}

/// Gives the socket's file the group of users and the mode that the config says.
///
/// # Errors
/// The key that can't be followed, and why.
fn own_socket(backends: &BackendsConfig, path: Option<&Path>) -> Result<(), String> {
    let Some(path) = path else { return Ok(()) };
    let shown = path.display();
    if let Some(UserGroup(group)) = backends.group {
        let owned = std::os::unix::fs::chown(path, None, Some(group));
        owned.map_err(|error| {
            format!(
                "backends.group: {shown} can't be given to group {group}: {error}; the gateway has to be in it"
            )
        })?;
    }
    if let Some(FileMode(mode)) = backends.mode {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(path, permissions)
            .map_err(|error| format!("backends.mode: {shown} can't have mode {mode:04o}: {error}"))?;
    }
    Ok(())
}

/// The bound sockets.
pub(crate) struct Backends {
    backend_listener: BackendListener,
    /// For processes of other hosts.
    remote: Option<Remote>,
    config: BackendsConfig,
    limits: Limits,
    tenants: Arc<Tenants>,
    backend_connections: Arc<BackendConnections>,
    metrics: Arc<Metrics>,
    egress: Arc<Egress>,
    arrivals: Notices,
    departures: Arc<Notices>,
}

/// What comes to the task that lets backends in.
enum Arrival {
    Process(Accepted),
    Order(SocketOrder),
}

/// When backends are let go: all but one of these wait until the calls from the world are over.
pub(crate) struct Going {
    /// Nobody new is let in.
    pub(crate) closed: watch::Receiver<bool>,
    /// Sessions of channels that call elsewhere may go: they find another gateway.
    pub(crate) via: watch::Receiver<bool>,
    /// All may.
    pub(crate) all: watch::Receiver<bool>,
}

impl Backends {
    /// Binds them. In the place of a running gateway, backends find the socket once it is [published](Backends::publish).
    pub(crate) async fn bind(
        config: &Config,
        tenants: Arc<Tenants>,
        backend_connections: Arc<BackendConnections>,
        metrics: Arc<Metrics>,
        egress: Arc<Egress>,
        mut claim: Option<&mut Takeover>,
    ) -> Result<Backends, BackendsError> {
        let (backends, profile) = (config.backends.clone(), &config.profile);
        let limits = Limits {
            peers: tenants.peers.clone(),
            admits: Some(admits(tenants.clone(), metrics.clone())),
            wait: backends.wait.into(),
            objects: backends.objects,
            ring_len: profile.ring_bytes as usize,
            area_len: profile.area_bytes as usize,
            ..Limits::default()
        };
        let remote = match &backends.stream {
            None => None,
            Some(stream) => Some(Remote::bind(stream, limits.clone(), claim.as_deref_mut()).await?),
        };
        let bound = match claim {
            None => BackendListener::bind(&*backends.socket, limits.clone()).await,
            Some(_) => BackendListener::bind_beside(&*backends.socket, limits.clone()).await,
        };
        let backend_listener = bound.map_err(BackendsError::Socket)?;
        own_socket(&backends, backend_listener.path()).map_err(BackendsError::File)?;
        backend_listener.metrics(&metrics.common);
        if let Some(remote) = &remote {
            remote.listener.metrics(&metrics.common);
        }
        Ok(Backends {
            backend_listener,
            remote,
            config: backends,
            limits,
            tenants,
            backend_connections,
            metrics,
            egress,
            arrivals: Notices::default(),
            departures: Arc::default(),
        })
    }

    /// Has backends find the socket that was bound for a gateway that takes another's place.
    pub(crate) async fn publish(&mut self) -> Result<(), BackendsError> {
        self.backend_listener.publish().await.map_err(BackendsError::Socket)
    }

    /// Has another gateway take the socket for backends of other hosts.
    pub(crate) fn offer(&self, sockets: &mut Sockets) {
        if let Some(remote) = &self.remote {
            sockets.add_tcp(STREAM.into(), &remote.address, remote.socket());
        }
    }

    /// Where processes of other hosts attach.
    pub(crate) fn stream_address(&self) -> Option<String> {
        self.remote.as_ref().map(|remote| remote.listener.address())
    }

    /// The next that has come, of this host or another. None comes where both sockets are closed.
    async fn arrival(&mut self) -> Option<Accepted> {
        match self.remote.as_mut().filter(|remote| remote.kept.is_none()) {
            None => self.backend_listener.accept().await,
            Some(remote) => tokio::select! {
                arrival = self.backend_listener.accept() => arrival,
                arrival = remote.listener.accept() => arrival,
            },
        }
    }

    async fn obey(&mut self, order: SocketOrder) {
        match order {
            SocketOrder::Yield(done) => {
                let paused = match &mut self.remote {
                    Some(remote) => remote.pause().await,
                    None => Ok(()),
                };
                let stream = |source| tollfree::ServeError::Socket { address: STREAM.into(), source };
                _ = done.send(paused.map_err(|error| BackendsError::Stream(stream(error))));
            }
            SocketOrder::Resume(done) => _ = done.send(self.resume().await),
        }
    }

    /// Binds the socket again, which another gateway has had.
    async fn resume(&mut self) -> Result<(), BackendsError> {
        let path = self.config.socket.strip_prefix("shm://").map(PathBuf::from);
        // It is still this one's where the other gateway has not come so far.
        let is_own = path.as_deref().and_then(SocketFile::adopt).is_some_and(|file| {
            let is_own = self.backend_listener.is_at(&file);
            file.leave();
            is_own
        });
        if !is_own {
            // In the place of the other one's, which may still be there.
            let bound = BackendListener::bind_beside(&*self.config.socket, self.limits.clone()).await;
            let mut bound = bound.map_err(BackendsError::Socket)?;
            own_socket(&self.config, bound.path()).map_err(BackendsError::File)?;
            bound.publish().await.map_err(BackendsError::Socket)?;
            bound.metrics(&self.metrics.common);
            self.backend_listener = bound;
        }
        match &mut self.remote {
            Some(remote) => remote.resume(),
            None => Ok(()),
        }
    }

    pub(crate) fn address(&self) -> &str {
        &self.config.socket
    }

    /// Lets processes in until the end, then waits until those who are in may go.
    pub(crate) async fn serve(mut self, going: Going, mut orders: mpsc::Receiver<SocketOrder>) {
        let (mut members, mut follow) = (JoinSet::new(), JoinSet::new());
        if let Some(remote) = &self.remote {
            follow.spawn(remote.certificates.clone().follow(STREAM.into(), self.metrics.clone()));
        }
        let Going { mut closed, via: via_go, all: let_go } = going;
        loop {
            let arrival = tokio::select! {
                arrival = self.arrival() => arrival.map(Arrival::Process),
                Some(_) = members.join_next() => continue,
                Some(order) = orders.recv() => Some(Arrival::Order(order)),
                _ = closed.wait_for(|closed| *closed) => break,
            };
            let accepted = match arrival {
                Some(Arrival::Order(order)) => {
                    self.obey(order).await;
                    continue;
                }
                Some(Arrival::Process(accepted)) => Some(accepted),
                None => None,
            };
            match accepted {
                Some(Accepted::Attached(attached)) => self.attach(attached, let_go.clone(), &mut members),
                Some(Accepted::Session(session)) => {
                    let (peer, target) = (Peer::of_session(&session), session.target().to_owned());
                    let before = self.tenants.may_call(&peer, &target);
                    let via = Via::new(&self.egress, peer.clone(), session.target(), let_go.clone());
                    let (mut via_go, tenants) = (via_go.clone(), self.tenants.clone());
                    let stop = async move {
                        tokio::select! {
                            _ = via_go.wait_for(|go| *go) => {}
                            () = tenants.decided_otherwise(&peer, &target, before) => {}
                        }
                    };
                    members.spawn(session.serve(via, stop));
                }
                Some(_) => {}
                None => break,
            }
        }
        self.backend_listener.close();
        if let Some(remote) = &mut self.remote {
            remote.kept = None;
            remote.listener.close();
        }
        while members.join_next().await.is_some() {}
    }

    fn attach(&self, attached: Attached, mut let_go: watch::Receiver<bool>, members: &mut JoinSet<()>) {
        if let Err(reason) = self.tenants.check_attached(&attached) {
            let who = (attached.process(), attached.group());
            self.metrics.refused_inside(Refusal::Attach, &who, &reason);
            attached.close(NOT_ANY_MORE);
            return;
        }
        let most = self
            .tenants
            .config()
            .load()
            .groups
            .get(attached.group())
            .and_then(|group| group.backend_connections);
        if most.is_some_and(|most| self.backend_connections.count_of(attached.group()) >= most as usize) {
            let reason = "the group has as many backend connections as its backend_connections in the gateway's config allows";
            self.metrics.refused_inside(Refusal::Attach, &(attached.process(), attached.group()), reason);
            attached.close(reason);
            return;
        }
        let backend_connection = self.backend_connections.add(attached);
        let attached = backend_connection.attached();
        if let Some(unsaid) = self.arrivals.turn(&self.tenants.config().load(), attached.group()) {
            tracing::info!(
                process = ?attached.process(),
                backend_connection = attached.backend_connection(),
                group = attached.group(),
                services = ?attached.services(),
                unsaid,
                "attached"
            );
        }
        let (backend_connections, departures, tenants) =
            (self.backend_connections.clone(), self.departures.clone(), self.tenants.clone());
        members.spawn(async move {
            let attached = backend_connection.attached();
            tokio::select! {
                () = attached.closed() => {}
                _ = let_go.wait_for(|go| *go) => {}
            }
            backend_connections.remove(&backend_connection);
            if let Some(unsaid) = departures.turn(&tenants.config().load(), attached.group()) {
                tracing::info!(process = ?attached.process(), backend_connection = attached.backend_connection(), unsaid, "gone");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use arc_swap::ArcSwap;
    use tollfree::PeerIdentity;
    use tollfree::gateway::RemoteIdentity;

    use super::*;

    fn user(uid: u32) -> Peer {
        Peer::Local(PeerIdentity { pid: 1, uid, gid: 0 })
    }

    fn subject(subject: &str) -> Peer {
        Peer::Remote(RemoteIdentity { subject: subject.into(), address: ([192, 0, 2, 1], 1).into() })
    }

    fn tenants(text: &str) -> Tenants {
        Tenants::new(Arc::new(ArcSwap::from_pointee(Config::from_toml(text).unwrap())))
    }

    fn own() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[test]
    fn groups_are_what_the_config_says() {
        let text = format!(
            "[groups.a]\nusers = [4000000000]\nservices = [\"x.A\"]\nvia = [\"group:b\", \"https://localhost:443\"]\n\
             [groups.b]\nsubjects = [\"CN=b\"]\n[egress]\nca = \"{}\"\n",
            file!()
        );
        let tenants = tenants(&text);
        let services = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let other = user(4_000_000_000);
        tenants.check(&other, "a", &services(&["x.A"])).unwrap();
        tenants.check(&user(own()), "b", &services(&["x.B"])).unwrap();
        tenants.check(&user(own()), "a", &services(&["x.A"])).expect_err("not this user");
        tenants.check(&user(own()), "c", &services(&["x.B"])).expect_err("no such group");
        tenants.check(&other, "a", &services(&["x.B"])).expect_err("not its service");
        tenants.check(&user(own()), "b", &services(&["x.A"])).expect_err("another's service");
        let remote = |name, group| tenants.check(&subject(name), group, &services(&["x.B"]));
        remote("CN=b", "b").unwrap();
        remote("CN=a", "b").expect_err("not this certificate, whatever user it would be here");
        remote("CN=b", "a").expect_err("a group that names none");
        let may = |peer: &Peer, targets: &[&str]| {
            targets.iter().map(|target| tenants.may_call(peer, target)).collect::<Vec<_>>()
        };
        let targets = ["group:a", "group:b", "https://localhost:443", "https://localhost:4433"];
        assert_eq!(may(&other, &targets), [true, true, true, false]);
        assert_eq!(may(&user(own()), &targets), [false, true, false, false]);
        assert_eq!(
            may(&subject("CN=b"), &targets),
            [false, true, false, false],
            "as what its certificate says"
        );
        assert_eq!(may(&subject("CN=a"), &targets), [false; 4]);
        let callers = |target| tenants.callers(&other, target);
        assert_eq!([callers("group:a"), callers("group:b")], [["a"], ["a"]]);
    }

    #[test]
    fn the_groups_of_a_user_that_may_call_are_the_called_one_and_others_by_name() {
        let via = "via = [\"group:c\", \"http://localhost:80\"]";
        let text = format!("[groups.d]\n{via}\n[groups.b]\n{via}\n[groups.a]\n[groups.c]\n{via}\n");
        let tenants = tenants(&text);
        assert_eq!(tenants.callers(&user(own()), "group:c"), ["c", "b", "d"]);
        assert_eq!(tenants.callers(&user(own()), "http://localhost:80"), ["b", "c", "d"]);
        assert_eq!(tenants.callers(&user(own()), "group:a"), ["a"]);
        assert_eq!(tenants.callers(&user(4_000_000_000), "group:c"), [""; 0]);
    }

    #[test]
    fn without_groups_nobody_calls_out() {
        let tenants = tenants("");
        tenants.check(&subject("CN=b"), "default", &[]).expect_err("nor does another host's process attach");
        assert!(!tenants.may_call(&subject("CN=b"), "group:any"));
        let own = user(own());
        assert!(tenants.may_call(&own, "group:any") && !tenants.may_call(&own, "https://localhost:443"));
        assert_eq!(tenants.peers, PeerPolicy::SameUser);
    }
}
