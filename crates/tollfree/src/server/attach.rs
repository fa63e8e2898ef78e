//! A server behind a gateway: it attaches there instead of listening, and again whenever the gateway has gone.

use std::ffi::OsString;
use std::fmt;
use std::future::pending;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tollfree_driver_tokio::{
    Attachment, Config, ConnectError, LocalPeer, PeerPolicy, Purpose, Registration, is_master_of,
    is_same_user, own_user,
};
use tollfree_os::{has_more_rights, user_number};
use tollfree_pool::Pool;
use tollfree_processor::Trust;

use crate::endpoint::chance;
use crate::endpoint::place::{Files, Misplaced, Place};
use crate::endpoint::redial::{Failure, Pace, failure};
use crate::server::Server;
use crate::server::bound::served;
use crate::server::control::{Control, LocalRights};
use crate::server::direct_connection::Admitting;
use crate::server::joining::Memberships;
use crate::server::moving::{MoveRequest, Moving};
use crate::server::session_task::{Age, ServerContext, SessionTask};
use crate::status::ServeError;

/// Names the user that gateways run as.
const GATEWAY_USER: &str = "TOLLFREE_GATEWAY_USER";
/// The group of a server that is given no other.
const GROUP: &str = "default";
/// A session that lasted for this long was a good one: the next attempt to attach is the first.
const GOOD: Duration = Duration::from_secs(1);

/// A server that is about to attach to a gateway ([`Server::attach`]). Awaited, it serves until it is shut down.
#[must_use = "nothing is served before this is awaited"]
pub struct Attaching {
    server: Server,
    uri: String,
    group: String,
    backend_connection_count: u32,
    certificates: Files,
    /// Whom the program names as its gateway's user.
    gateway_user: Option<String>,
    signal: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl fmt::Debug for Attaching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attaching")
            .field("uri", &self.uri)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Serves behind a gateway, which hands in calls from elsewhere: the same services, and no address of its own. When the
    /// gateway goes away, calls under way end, and the server attaches again as soon as there is one. A gateway that is not
    /// there yet is waited for.
    ///
    /// [`peers`](Server::peers) says which users the gateway may run as. Other settings hold as in a session with any client, but
    /// [`max_connection_age`](Server::max_connection_age), which is for clients.
    ///
    /// # Errors
    /// [`ServeError`], when awaited: the address or a name is none, or the gateway at the socket refuses this server for good
    /// the first time.
    ///
    /// # Example
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (_, greeter) = tonic_health::server::health_reporter();
    /// tollfree::Server::builder()
    ///     .add_service(greeter) // GreeterServer::new(…), as tonic generates it
    ///     .attach("shm:///run/tollfree/gateway.sock")
    ///     .group("greeters")
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Gateways of other hosts
    /// `device+tls://host:port` attaches over TCP with TLS, where [`Attaching::certificates`] says with which certificate. The gateway's
    /// has to name the host. [`peers`](Server::peers) doesn't hold there, messages never go by ref, and no task spins.
    pub fn attach(self, uri: impl Into<String>) -> Attaching {
        Attaching {
            server: self,
            uri: uri.into(),
            group: GROUP.into(),
            backend_connection_count: 1,
            certificates: None,
            gateway_user: None,
            signal: Box::pin(pending()),
        }
    }
}

impl Attaching {
    /// The group that the gateway is to count this process to, by whose name it may be told what to route there: `default` unless
    /// this says otherwise. Up to 64 visible ASCII characters.
    pub fn group(mut self, name: impl Into<String>) -> Attaching {
        self.group = name.into();
        self
    }

    /// How many sessions to have with the gateway, each with a pair of rings and a task of its own: 1 unless this says otherwise.
    pub fn backend_connections(mut self, count: u32) -> Attaching {
        self.backend_connection_count = count.max(1);
        self
    }

    /// The user that the gateway runs as, by name or number, where that is neither this process's own nor one that [`Server::peers`] names. Without this,
    /// the variable `TOLLFREE_GATEWAY_USER` says so, which programs with more rights than the user that started them ignore.
    ///
    /// A gateway of this user may send calls. That its objects are read without verifying is said by [`Server::trusted_gateways`] only.
    pub fn gateway_user(mut self, user: impl Into<String>) -> Attaching {
        self.gateway_user = Some(user.into());
        self
    }

    /// What to show and to trust at a gateway of another host, PEM files each: who signs the gateway's certificate, this process's
    /// own, and its key. They are read anew for each session.
    #[cfg(feature = "tls")]
    pub fn certificates(
        mut self,
        ca: impl Into<std::path::PathBuf>,
        certificate: impl Into<std::path::PathBuf>,
        key: impl Into<std::path::PathBuf>,
    ) -> Attaching {
        self.certificates = Some(tollfree_driver_tokio::Certificates {
            ca: ca.into(),
            certificate: certificate.into(),
            key: key.into(),
        });
        self
    }

    /// Where to attach.
    fn place(&self) -> Result<Place, ServeError> {
        let wrong =
            |why: Misplaced| ServeError::Address { address: self.uri.clone(), reason: why.to_string() };
        Place::of(&self.uri, &self.certificates).map_err(wrong)
    }

    /// Serves until `signal` resolves: the gateway is told to send no more calls, and those under way are answered.
    pub fn until(mut self, signal: impl Future<Output = ()> + Send + 'static) -> Attaching {
        self.signal = Box::pin(signal);
        self
    }

    async fn run(self) -> Result<(), ServeError> {
        if let Some((setting, reason)) = self.server.refused {
            return Err(ServeError::Setting { setting, reason });
        }
        let place = self.place()?;
        let Attaching { server, uri, group, backend_connection_count, gateway_user, mut signal, .. } = self;
        let said = gateway_user.map(|user| ("Attaching::gateway_user", user));
        let said = said.or_else(|| variable(has_more_rights(), std::env::var_os(GATEWAY_USER)));
        let peers = gateway_peers(&server.config.peers, said)?;
        let mut services: Vec<String> = server.services.keys().map(|name| (*name).to_owned()).collect();
        services.sort_unstable();
        let registration = Registration::new(&group, services)
            .map_err(|source| ServeError::Socket { address: uri, source })?;
        Purpose::Attach(registration.clone())
            .check()
            .map_err(|reason| ServeError::Setting { setting: "attach", reason })?;
        let config = Config { pool: server.sharing.pool_id(), lending: true, peers, ..server.config.clone() };
        let trusted = server.trusted_gateways.clone();
        let duty = Arc::new(ServerContext { age: Age::default(), ..server.duty()? });
        let (stop, stopped) = watch::channel(false);
        let (admitting, mut admitted) = Admitting::new(config.clone(), stopped.clone());
        let memberships = Memberships::default();
        let (mut backend_connections, mut neighbors) = (JoinSet::new(), JoinSet::new());
        for backend_connection in 0..backend_connection_count {
            let backend_connection = BackendConnection {
                place: place.clone(),
                config: config.clone(),
                registration: Registration { backend_connection, ..registration.clone() },
                duty: duty.clone(),
                admitting: admitting.clone(),
                memberships: memberships.clone(),
                trusted: trusted.clone(),
            };
            backend_connections.spawn(Arc::new(backend_connection).run(stopped.clone()));
        }
        let publish = duty.tally.clone().publish();
        tokio::pin!(publish);
        let mut result = Ok(());
        loop {
            tokio::select! {
                () = &mut publish => {}
                () = &mut signal, if !*stop.borrow() => { _ = stop.send(true); }
                ended = backend_connections.join_next() => {
                    let Some(ended) = ended else { break };
                    if let Err(error) = served(ended) {
                        result = result.and(Err(error));
                        _ = stop.send(true);
                    }
                }
                Some(neighbor) = admitted.recv() => { neighbors.spawn(neighbor.serve(duty.clone())); }
                Some(_) = neighbors.join_next() => {}
            }
        }
        // They have been told to end, as the gateway was; their calls are answered first.
        while neighbors.join_next().await.is_some() {}
        result
    }
}

impl IntoFuture for Attaching {
    type Output = Result<(), ServeError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<(), ServeError>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// What the variable says, to a program that may listen to it.
fn variable(is_secure: bool, value: Option<OsString>) -> Option<(&'static str, String)> {
    let value = value.filter(|value| !value.is_empty())?;
    if is_secure {
        tracing::warn!(
            ?value,
            "{GATEWAY_USER} is ignored: this program has more rights than the user that started it"
        );
        return None;
    }
    Some((GATEWAY_USER, value.to_string_lossy().into_owned()))
}

/// Who may be the gateway: those whom the server names, and the user that was `said`, with where that was.
fn gateway_peers(peers: &PeerPolicy, said: Option<(&'static str, String)>) -> Result<PeerPolicy, ServeError> {
    let Some((setting, user)) = said else { return Ok(peers.clone()) };
    let unknown = |problem: String| ServeError::GatewayUser { setting, user: user.clone(), problem };
    let number = match user.parse() {
        Ok(number) => number,
        Err(_) => user_number(&user)
            .map_err(|error| unknown(error.to_string()))?
            .ok_or_else(|| unknown("there is no such user on this host; write its name or number".into()))?,
    };
    Ok(match peers {
        PeerPolicy::Anyone => PeerPolicy::Anyone,
        PeerPolicy::Users(users) => PeerPolicy::Users([&users[..], &[number]].concat()),
        PeerPolicy::SameUser => {
            let own = Some(own_user()).filter(|own| is_same_user(*own, *own));
            PeerPolicy::Users(own.into_iter().chain([number]).collect())
        }
    })
}

/// One session with the gateway, and the next one when it has ended.
struct BackendConnection {
    place: Place,
    config: Config,
    registration: Registration,
    duty: Arc<ServerContext>,
    admitting: Admitting,
    memberships: Memberships,
    /// Whose gateways' objects need not be verified. `None`: root's, and this process's own user's.
    trusted: Option<PeerPolicy>,
}

impl BackendConnection {
    /// Whether a gateway is trusted with objects. One of another host has no user that a kernel vouches for.
    fn trust(&self, gateway: LocalPeer) -> Option<Trust> {
        let uid = gateway.identity().uid;
        let is_trusted = match &self.trusted {
            None => is_master_of(uid, own_user()),
            Some(policy) => policy.allows(uid),
        };
        is_trusted.then(Trust::as_own_code)
    }

    /// Serves one session, and says why it ended.
    async fn serve(
        self: Arc<Self>,
        attachment: Attachment,
        stopped: watch::Receiver<bool>,
        moving: Moving,
    ) -> String {
        let local = attachment.local_peer();
        let trust = local.and_then(|gateway| self.trust(gateway));
        let attachment = Arc::new(attachment);
        let reads_in = Arc::<OnceLock<Pool>>::default();
        let joining = trust.map(|_| self.memberships.joining(reads_in.clone()));
        let rights = local.map(|gateway| LocalRights::of(gateway, self.admitting.clone(), joining));
        let control = Control::new(self.duty.services.clone(), moving, rights);
        let task = SessionTask::new(attachment.clone(), self.duty.clone());
        task.of_gateway(Arc::new(control), trust, reads_in).run(stopped).await;
        attachment.closed().map_or_else(String::new, |closed| closed.to_string())
    }

    fn tell_attached(&self, attachment: &Attachment) {
        let trust = attachment.local_peer().and_then(|gateway| self.trust(gateway));
        tracing::info!(
            address = %self.place,
            group = &*self.registration.group,
            backend_connection = self.registration.backend_connection,
            gateway = ?attachment.peer(),
            objects = if trust.is_some() { "trusted" } else { "verified" },
            "attached to a gateway"
        );
    }

    async fn attach(&self) -> Result<Attachment, ConnectError> {
        let registration = self.registration.clone();
        match &self.place {
            Place::Memory(address) => Attachment::attach(address, &self.config, registration).await,
            #[cfg(feature = "tls")]
            Place::Stream(address, certificates) => {
                Attachment::connect_over(address, certificates, &self.config, Purpose::Attach(registration))
                    .await
            }
        }
    }

    /// # Errors
    /// The gateway refuses for good, and has never let this backend connection in.
    async fn run(self: Arc<Self>, stopped: watch::Receiver<bool>) -> Result<(), ServeError> {
        let mut sessions = Sessions::default();
        let result = self.attach_again(stopped, &mut sessions).await;
        sessions.ended().await;
        result
    }

    async fn attach_again(
        self: &Arc<Self>,
        stopped: watch::Receiver<bool>,
        sessions: &mut Sessions,
    ) -> Result<(), ServeError> {
        let mut stop = stopped.clone();
        let stop = async move { drop(stop.wait_for(|stop| *stop).await) };
        tokio::pin!(stop);
        let pace = if self.place.is_stream() { Pace::Remote } else { Pace::Local };
        let (mut failures, mut refusals, mut was_attached) = (0_u32, 0_u32, false);
        // What has kept it from serving since it last did, said once.
        let (mut said, mut was_short) = (String::new(), false);
        // A gateway that waits for the next session.
        let mut moves: Option<MoveRequest> = None;
        loop {
            let attached = tokio::select! {
                biased;
                () = &mut stop => return Ok(()),
                attached = self.attach() => attached,
            };
            let refused_before = refusals;
            let trouble = match attached {
                Ok(attachment) => {
                    was_attached = true;
                    moves.take().into_iter().for_each(MoveRequest::attached);
                    if !was_short {
                        self.tell_attached(&attachment);
                    }
                    let began = Instant::now();
                    let (moving, asked) = Moving::new();
                    let serving = self.clone().serve(attachment, stopped.clone(), moving);
                    let ended = match sessions.serve(serving, asked).await {
                        Turn::Ended(words) => words,
                        Turn::Moves(request) => {
                            moves = Some(request);
                            (failures, refusals, was_short) = (0, 0, false);
                            said.clear();
                            continue;
                        }
                    };
                    if *stopped.borrow() {
                        return Ok(());
                    }
                    was_short = began.elapsed() < GOOD;
                    if !was_short {
                        (failures, refusals) = (0, 0);
                        said.clear();
                    } else {
                        // It was let in, and refused then.
                        refusals = refusals.saturating_add(1);
                    }
                    ended
                }
                Err(error) if !was_attached && !error.kind.is_transient() => return Err(error.into()),
                Err(error) => {
                    refusals = match failure(&error) {
                        Failure::Absent => 0,
                        Failure::Refused => refusals.saturating_add(1),
                    };
                    error.to_string()
                }
            };
            if trouble != said {
                tracing::warn!(
                    address = %self.place,
                    backend_connection = self.registration.backend_connection,
                    reason = trouble,
                    "no calls come from the gateway; attaching again until they do"
                );
                said = trouble;
            }
            let pause = match refusals > refused_before {
                true => pace.delay_of_refused(refused_before, chance()),
                false => pace.delay_unasked(failures, chance()),
            };
            failures = failures.saturating_add(1);
            tokio::select! {
                biased;
                () = &mut stop => return Ok(()),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}

/// What becomes of the present session.
enum Turn {
    /// It has ended, in these words.
    Ended(String),
    /// Its gateway wants the next one beside it.
    Moves(MoveRequest),
}

/// The sessions of a backend connection: the present one, and those before it whose gateways have calls left.
#[derive(Default)]
struct Sessions(JoinSet<String>);

impl Sessions {
    /// Serves one until it ends, or its gateway asks for the next.
    async fn serve(
        &mut self,
        serving: impl Future<Output = String> + Send + 'static,
        mut asked: mpsc::Receiver<MoveRequest>,
    ) -> Turn {
        let present = self.0.spawn(serving).id();
        loop {
            tokio::select! {
                Some(ended) = self.0.join_next_with_id() => match ended {
                    Ok((id, words)) if id == present => return Turn::Ended(words),
                    Ok(_) => {}
                    Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
                    // The runtime ends.
                    Err(_) => return Turn::Ended(String::new()),
                },
                Some(request) = asked.recv() => return Turn::Moves(request),
            }
        }
    }

    /// Waits for all of them.
    async fn ended(mut self) {
        while self.0.join_next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_ignored_with_more_rights() {
        let value = || Some(OsString::from("gw"));
        assert_eq!(variable(false, value()), Some((GATEWAY_USER, "gw".to_owned())));
        assert_eq!(variable(true, value()), None);
        assert_eq!(variable(false, Some(OsString::new())), None);
    }

    #[test]
    fn a_gateway_s_user_comes_beside_those_who_may_be() {
        let with = |peers, user: &str| gateway_peers(&peers, Some(("x", user.to_owned())));
        let own = own_user();
        let same = with(PeerPolicy::SameUser, "4000000000").unwrap();
        assert!(same.allows(4_000_000_000) && same.allows(own) && !same.allows(4_000_000_001));
        let listed = with(PeerPolicy::Users(vec![7]), "root").unwrap();
        assert!(listed.allows(0) && listed.allows(7) && !listed.allows(8));
        assert_eq!(gateway_peers(&PeerPolicy::SameUser, None).unwrap(), PeerPolicy::SameUser);
        let error = with(PeerPolicy::SameUser, "no-such-name-here").unwrap_err().to_string();
        assert!(error.contains("x") && error.contains("no-such-name-here"), "{error}");
    }
}
