//! Calls of backends to elsewhere: to their own group, and to the targets that the config allows it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use http::{HeaderMap, Request, Response};
use parking_lot::Mutex;
use tokio::sync::watch;
use tollfree::gateway::{Admission, Dispatch, OutOfBandMessages, header_list, read_file, remove_ours};
use tonic::Status;
use tonic::body::Body;
use tower_service::Service;

use crate::account::{Account, Accounts, Counted, Used};
use crate::arrival;
use crate::backend_connection::{BackendConnection, Handover};
use crate::backend_connections::{BackendConnections, Place, Wanted};
use crate::backends::Tenants;
use crate::bodies::{Asked, BodyProgress, Limited, Passage};
use crate::client::Client;
use crate::config::{self, Config};
use crate::conversion::says_encoding;
use crate::deadline;
use crate::frontend::call as hand_on;
use crate::inside::Inside;
use crate::memory::Charge;
use crate::metrics::Metrics;
use crate::notices::Notices;
use crate::peer::Peer;
use crate::refusal::{Refusal, Refused};
use crate::space::Space;
use crate::target::{Closed, Files, Reporter, Target, TargetNotices};
use crate::tls::CERTIFICATE_LEN_MAX;

/// What the log calls the way to a direct connection.
const DIRECT_CONNECTION: &str = "a direct connection";

/// The way out, for all groups.
pub(crate) struct Egress {
    tenants: Arc<Tenants>,
    backend_connections: Arc<BackendConnections>,
    metrics: Arc<Metrics>,
    /// Files of the targets that have some of their own, and of all others.
    files: HashMap<String, Files>,
    common: Files,
    config: config::EgressConfig,
    accounts: Accounts,
    direct_connections: Notices,
    target_notices: Arc<TargetNotices>,
}

impl Egress {
    /// Must be called in a tokio runtime.
    pub(crate) fn new(
        tenants: Arc<Tenants>,
        backend_connections: Arc<BackendConnections>,
        metrics: Arc<Metrics>,
        config: config::EgressConfig,
        files: EgressFiles,
    ) -> Egress {
        let accounts = Accounts::new(tenants.config().clone(), metrics.clone());
        let EgressFiles { files, common } = files;
        let (direct_connections, target_notices) = (Notices::default(), Arc::default());
        Egress {
            tenants,
            backend_connections,
            metrics,
            files,
            common,
            config,
            accounts,
            direct_connections,
            target_notices,
        }
    }

    /// The backend connection that calls to a group would all go to, where they need no gateway between.
    fn may_be_met(&self, group: &str) -> Result<Arc<BackendConnection>, &'static str> {
        match self.tenants.has_direct_connections(group) {
            true => self.backend_connections.only_one(group),
            false => {
                Err("the gateway's config gives the group none: groups.NAME.direct_connections = true does")
            }
        }
    }

    /// Resolves when another backend connection, or none, would be met, or by none of this process.
    async fn met_otherwise(&self, peer: &Peer, group: &str, backend_connection: &Arc<BackendConnection>) {
        let mut changed = self.backend_connections.changed();
        let target = format!("group:{group}");
        // The backend connections say so, too, when another config holds.
        while self.may_be_met(group).is_ok_and(|met| Arc::ptr_eq(&met, backend_connection))
            && self.tenants.may_call(peer, &target)
        {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// The account that the calls of a process to a target are for: of the groups that may call there, the first that the
    /// process has attached in; of one that has attached in none of them, the first. `None`: it may not call there.
    fn account_of(&self, peer: &Peer, target: &str) -> Option<Arc<Account>> {
        let groups = self.tenants.callers(peer, target);
        let attached = groups.iter().find(|group| self.backend_connections.is_of(peer, group));
        attached.or(groups.first()).map(|group| self.accounts.of(group))
    }

    /// A target that a group calls. Must be called in a tokio runtime.
    fn target(&self, account: &Arc<Account>, name: &str) -> Result<Used, Status> {
        account.target(name, |connections| {
            let config = self.config.targets.get(name).cloned().unwrap_or_default();
            let files = self.files.get(name).unwrap_or(&self.common);
            let reporter = Reporter {
                notices: self.target_notices.clone(),
                config: self.tenants.config().clone(),
                group: account.group().to_owned(),
                target: name.to_owned(),
            };
            Target::open(reporter, &config, files, connections, self.tenants.changes())
        })
    }
}

/// The files of targets, as they are when the gateway starts.
pub(crate) struct EgressFiles {
    files: HashMap<String, Files>,
    common: Files,
}

impl EgressFiles {
    /// Reads them, which blocks the thread. What is wrong with targets that have settings is said now.
    ///
    /// # Errors
    /// What can't be read or can't be meant, and the key that says it.
    pub(crate) fn read(config: &config::EgressConfig) -> Result<EgressFiles, (String, String)> {
        let read = |key: &str, file: &Option<PathBuf>| {
            let Some(file) = file else { return Ok(None) };
            let bytes = read_file(file, CERTIFICATE_LEN_MAX);
            bytes.map(Some).map_err(|error| (key.to_owned(), format!("{} {error}", file.display())))
        };
        let common = Files { ca: read("egress.ca", &config.ca)?, identity: None };
        let mut files = HashMap::new();
        for (name, target) in &config.targets {
            let key = |key: &str| format!("egress.targets.\"{name}\".{key}");
            let ca = read(&key("ca"), &target.ca)?.or_else(|| common.ca.clone());
            let certificate = read(&key("certificate"), &target.certificate)?;
            let identity = certificate.zip(read(&key("key"), &target.key)?);
            files.insert(name.clone(), Files { ca, identity });
        }
        for (name, target) in &config.targets {
            let checked = Target::check(name, target, files.get(name).unwrap_or(&common));
            checked.map_err(|why| (format!("egress.targets.\"{name}\""), why))?;
        }
        Ok(EgressFiles { files, common })
    }
}

/// Whose account a session's calls are for.
#[derive(Default)]
struct Payer {
    /// Who was attached, and which config held, when that was looked up last.
    versions: Option<(u64, u64)>,
    account: Option<Arc<Account>>,
}

/// The calls of one session of a backend, which all have one target.
#[derive(Clone)]
pub(crate) struct Via {
    egress: Arc<Egress>,
    target: Arc<str>,
    client: Arc<Client>,
    peer: Peer,
    payer: Arc<Mutex<Payer>>,
    /// Its direct connection stands.
    is_short: Arc<AtomicBool>,
    let_go: watch::Receiver<bool>,
}

impl Via {
    /// Until `let_go`.
    pub(crate) fn new(egress: &Arc<Egress>, peer: Peer, target: &str, let_go: watch::Receiver<bool>) -> Via {
        let via = Via {
            egress: egress.clone(),
            target: target.into(),
            client: Arc::new(peer.client()),
            peer,
            payer: Arc::default(),
            is_short: Arc::default(),
            let_go,
        };
        if via.account().is_none() {
            let words = format!("no group of this process may call {target}");
            egress.metrics.refused(Refusal::Target, &via.client, "", &words);
        }
        via
    }

    /// Of the group that a call made now counts for, where one may call there.
    fn account(&self) -> Option<Arc<Account>> {
        let Egress { backend_connections, tenants, .. } = &*self.egress;
        // Before it is looked up: what changes meanwhile is looked up again.
        let versions = Some((backend_connections.version(), tenants.version()));
        let mut payer = self.payer.lock();
        if payer.versions != versions {
            *payer = Payer { versions, account: self.egress.account_of(&self.peer, &self.target) };
        }
        payer.account.clone()
    }

    /// Has the only backend connection of a group let the process in.
    ///
    /// # Errors
    /// Why it is not let in; calls go through the gateway then.
    async fn shorten(self, deadline: Option<Instant>) -> Result<Response<Answered>, Status> {
        let Some(group) = self.target.strip_prefix("group:").filter(|_| self.account().is_some()) else {
            return Err(Status::permission_denied(format!(
                "no group of this process may call {}",
                self.target
            )));
        };
        let Peer::Local(process) = self.peer else {
            return Err(Status::failed_precondition("the process that calls is on another host"));
        };
        let backend_connection = self.egress.may_be_met(group).map_err(Status::failed_precondition)?;
        let Some(seat) = Seat::take(&self.is_short) else {
            return Err(Status::resource_exhausted("this session has a direct connection already"));
        };
        let admitted = deadline::in_time(deadline, backend_connection.attached().admit(process)).await;
        let admission = admitted.map_err(|late| self.refused("", late))?;
        let admission = admission.map_err(|status| Inside::from(status).told(group, DIRECT_CONNECTION))?;
        self.egress.metrics.direct_connections.inc();
        if let Some(unsaid) = self.egress.direct_connections.turn(&self.egress.tenants.config().load(), group)
        {
            tracing::info!(peer = ?self.peer, group, process = ?backend_connection.attached().process(), unsaid, "a direct connection");
        }
        let (group, mut let_go) = (group.to_owned(), self.let_go.clone());
        let (egress, limits) = (self.egress.clone(), self.limits());
        let response = admission.answer(async move {
            let _seat = seat;
            tokio::select! {
                _ = let_go.wait_for(|go| *go) => {}
                () = egress.met_otherwise(&self.peer, &group, &backend_connection) => {}
            }
        });
        let (to, path) = (self.target.clone(), DIRECT_CONNECTION.to_owned());
        Ok(response.map(|body| Answered { body: limits.answer(body), to, path, _held: None }))
    }

    fn limits(&self) -> CallLimits {
        CallLimits {
            config: self.egress.tenants.config().load_full(),
            passage: Arc::new(Passage::new(&self.client)),
            metrics: self.egress.metrics.clone(),
        }
    }

    async fn call_out(self, mut request: Request<Body>) -> Result<Response<Answered>, Status> {
        let began = Instant::now();
        let path = request.uri().path().strip_prefix('/').unwrap_or_default().to_owned();
        // Calls to elsewhere have the service config of their target, which the channel goes by.
        let group = self.target.strip_prefix("group:");
        let rules = group.and_then(|group| self.egress.backend_connections.rules_of(&path, Some(group)));
        let most = rules.as_ref().and_then(|rules| rules.timeout(request.uri().path()));
        let limited = deadline::limit(request.headers_mut(), most);
        let deadline = limited.and_then(|()| deadline::end_of(request.headers(), began));
        let deadline = deadline.map_err(|refused| self.refused(&path, refused))?;
        if Admission::is_asked_for(&request) {
            return self.shorten(deadline).await;
        }
        let target = &*self.target;
        let Some(account) = self.account() else {
            return Err(Status::permission_denied(format!(
                "no group of this process may call {target}: name it under via in the gateway's config"
            )));
        };
        let call = account.call()?;
        let limits = self.limits();
        let message_bytes = usize::try_from(limits.config.limits.message_bytes).unwrap_or(usize::MAX);
        let out_of_band = OutOfBandMessages::of(&request, message_bytes);
        let Some(group) = target.strip_prefix("group:") else {
            remove_ours(request.headers_mut());
            let (len, max) = (header_list::len_of(request.headers()), limits.config.limits.header_bytes);
            if len > max as usize {
                let status = Status::resource_exhausted(format!(
                    "the request's headers have {len} bytes by HTTP/2's count; limits.header_bytes allows {max}"
                ));
                return Err(self.refused(&path, Refused { why: Refusal::Headers, status }));
            }
            let used = self.egress.target(&account, target)?;
            let channel = deadline::in_time(deadline, used.target().channel()).await;
            let channel =
                channel.map_err(|late| self.refused(&path, late))?.map_err(|closed| match closed {
                    Closed::Unknown => Status::unavailable(format!(
                        "{target} can't be called: no address of it can be found; the gateway's log says why"
                    )),
                    Closed::Crowded => account.no_connection(target),
                })?;
            // The channel holds the call to what is left now.
            let charge =
                |()| self.egress.backend_connections.charge(account.group(), &self.client, account.owner());
            let [asked, answered] = [(); 2].map(charge);
            let (mut parts, body) = request.into_parts();
            self.shrink(&mut parts.headers, &path, began)?;
            let request = Request::from_parts(parts, Body::new(limits.asked(body, None, asked)));
            let response = hand_on(channel, request).await;
            limits.check().map_err(|refused| self.refused(&path, refused))?;
            let response = response.map_err(|inside| inside.told(target, &path))?;
            let held = Held { _call: call, _account: account, _used: Some(used), _place: None };
            let to = self.target.clone();
            return Ok(response.map(|body| {
                let body = limits.answer(body).charged(answered);
                Answered { body, to, path, _held: Some(held) }
            }));
        };
        let (mut parts, body) = request.into_parts();
        let mut wanted = Wanted {
            path: &path,
            group: Some(group),
            client: &self.client,
            owner: Some(account.owner()),
            has_message: false,
            began,
            deadline,
        };
        // Whether objects are wanted is known when the call has a backend connection.
        out_of_band.iter().for_each(OutOfBandMessages::hold);
        let asked = |charge| limits.asked(body, out_of_band.clone(), charge);
        let held_to = (&*limits.passage, &limits.config.limits);
        let placed = arrival::place(&self.egress.backend_connections, &mut wanted, held_to, asked).await;
        let (place, asked) = placed.map_err(|refused| self.refused(&path, refused))?;
        self.shrink(&mut parts.headers, &path, began)?;
        self.client.sign(&mut parts.headers);
        let dispatch = Dispatch::new(Request::from_parts(parts, Body::new(asked)));
        let dispatch = dispatch.count_holdings(limits.passage.clone());
        let space = says_encoding(dispatch.headers()).then(|| limits.space([place.charge(), place.charge()]));
        let handover = Handover::new(dispatch, space.clone().map(|space| space as _), rules);
        let handed = self.egress.backend_connections.hand(&wanted, place, handover).await;
        let (handed, place) = handed.map_err(|refused| self.refused(&path, refused))?;
        limits.check().map_err(|refused| self.refused(&path, refused))?;
        space.iter().for_each(|space| space.answered());
        let mut response = handed.map_err(|inside| inside.told(group, &path))?;
        remove_ours(response.headers_mut());
        let answered = place.charge();
        let held = Held { _call: call, _account: account, _used: None, _place: Some(place) };
        let to = self.target.clone();
        Ok(response.map(|body| {
            let body = limits.answer(body).charged(answered).out_of_band(out_of_band);
            Answered { body, to, path, _held: Some(held) }
        }))
    }

    /// Leaves a request the time that it has left of what it was given when it `began`.
    fn shrink(&self, headers: &mut HeaderMap, path: &str, began: Instant) -> Result<(), Status> {
        deadline::shrink(headers, began).map_err(|refused| self.refused(path, refused))
    }

    fn refused(&self, path: &str, refused: Refused) -> Status {
        self.egress.metrics.refused(refused.why, &self.client, path, refused.status.message());
        refused.status
    }
}

impl Service<Request<Body>> for Via {
    type Response = Response<Answered>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Answered>, Status>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().call_out(request))
    }
}

/// That a session has a direct connection, or is about to.
struct Seat(Arc<AtomicBool>);

impl Seat {
    fn take(is_taken: &Arc<AtomicBool>) -> Option<Seat> {
        (!is_taken.swap(true, Ordering::SeqCst)).then(|| Seat(is_taken.clone()))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// What a call has until its answer is over.
struct Held {
    _call: Counted,
    /// Not to begin anew while the call counts in it.
    _account: Arc<Account>,
    /// The target elsewhere.
    _used: Option<Used>,
    /// At the backend connection of a group.
    _place: Option<Place>,
}

/// What holds one call to the limits of messages and of memory.
struct CallLimits {
    config: Arc<Config>,
    passage: Arc<Passage>,
    metrics: Arc<Metrics>,
}

impl CallLimits {
    fn asked(&self, body: Body, out_of_band: Option<OutOfBandMessages>, charge: Charge) -> Asked<Body> {
        Asked::new(body, self.config.clone(), self.passage.clone(), charge).out_of_band(out_of_band)
    }

    /// The room of messages that are inflated.
    fn space(&self, charges: [Charge; 2]) -> Arc<Space> {
        let (config, passage) = (self.config.clone(), self.passage.clone());
        Arc::new(Space::new(config, passage, self.metrics.clone(), charges))
    }

    /// Whether the request has kept to them up to here, where an answer begins.
    fn check(&self) -> Result<(), Refused> {
        self.passage.answered();
        self.passage.refused(&self.config.limits).map_or(Ok(()), Err)
    }

    fn answer(&self, body: Body) -> Limited {
        Limited::new(body, self.config.clone(), self.passage.clone(), self.metrics.clone())
    }
}

/// An answer's body, with what the call has.
pub(crate) struct Answered {
    body: Limited,
    /// Where the call went.
    to: Arc<str>,
    path: String,
    _held: Option<Held>,
}

impl http_body::Body for Answered {
    type Data = bytes::Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<bytes::Bytes>, Status>>> {
        Poll::Ready(match ready!(self.body.poll(cx)) {
            BodyProgress::Frame(mut frame) => {
                if let Some(trailers) = frame.trailers_mut() {
                    remove_ours(trailers);
                }
                Some(Ok(frame))
            }
            BodyProgress::Refused(status) => Some(Err(status)),
            BodyProgress::Failed(inside) => Some(Err(inside.told(&self.to, &self.path))),
            BodyProgress::End => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}
