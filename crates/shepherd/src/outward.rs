//! Calls of business processes to elsewhere: to their own group, and to the targets that the config allows it.

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
use tollfree::shepherd::{Admission, Beside, Handing, header_list, read_file, remove_ours};
use tonic::Status;
use tonic::body::Body;
use tower_service::Service;

use crate::account::{Account, Accounts, Counted, Used};
use crate::arrival;
use crate::bodies::{Asked, Came, Limited, Passage};
use crate::business::Tenants;
use crate::client::Client;
use crate::config::{self, Config};
use crate::deadline;
use crate::gateway::call as hand_on;
use crate::inside::Inside;
use crate::memory::Charge;
use crate::metrics::Metrics;
use crate::notices::Notices;
use crate::peer::Peer;
use crate::refusal::{Refusal, Refused};
use crate::space::Space;
use crate::target::{Closed, Files, Reporter, Target, TargetNotices};
use crate::tls::CERTIFICATE_LEN_MAX;
use crate::workers::{Place, Wanted, Worker, Workers};

/// What the log calls the way to a shortcut.
const SHORTCUT: &str = "a shortcut";

/// The way out, for all groups.
pub(crate) struct Outward {
    tenants: Arc<Tenants>,
    workers: Arc<Workers>,
    metrics: Arc<Metrics>,
    /// Files of the targets that have some of their own, and of all others.
    files: HashMap<String, Files>,
    common: Files,
    config: config::Outward,
    accounts: Accounts,
    shortcuts: Notices,
    target_notices: Arc<TargetNotices>,
}

impl Outward {
    /// Must be called in a tokio runtime.
    pub(crate) fn new(
        tenants: Arc<Tenants>,
        workers: Arc<Workers>,
        metrics: Arc<Metrics>,
        config: config::Outward,
        files: OutwardFiles,
    ) -> Outward {
        let accounts = Accounts::new(tenants.config().clone(), metrics.clone());
        let OutwardFiles { files, common } = files;
        let (shortcuts, target_notices) = (Notices::default(), Arc::default());
        Outward { tenants, workers, metrics, files, common, config, accounts, shortcuts, target_notices }
    }

    /// The worker that calls to a group would all go to, where they need no shepherd between.
    fn may_be_met(&self, group: &str) -> Result<Arc<Worker>, &'static str> {
        match self.tenants.has_shortcuts(group) {
            true => self.workers.only_one(group),
            false => Err("the shepherd's config gives the group none: groups.NAME.shortcuts = true does"),
        }
    }

    /// Resolves when another worker, or none, would be met, or by none of this process.
    async fn met_otherwise(&self, peer: &Peer, group: &str, worker: &Arc<Worker>) {
        let mut changed = self.workers.changed();
        let target = format!("group:{group}");
        // The workers say so, too, when another config holds.
        while self.may_be_met(group).is_ok_and(|met| Arc::ptr_eq(&met, worker))
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
        let attached = groups.iter().find(|group| self.workers.is_of(peer, group));
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

/// The files of targets, as they are when the shepherd starts.
pub(crate) struct OutwardFiles {
    files: HashMap<String, Files>,
    common: Files,
}

impl OutwardFiles {
    /// Reads them, which blocks the thread. What is wrong with targets that have settings is said now.
    ///
    /// # Errors
    /// What can't be read or can't be meant, and the key that says it.
    pub(crate) fn read(config: &config::Outward) -> Result<OutwardFiles, (String, String)> {
        let read = |key: &str, file: &Option<PathBuf>| {
            let Some(file) = file else { return Ok(None) };
            let bytes = read_file(file, CERTIFICATE_LEN_MAX);
            bytes.map(Some).map_err(|error| (key.to_owned(), format!("{} {error}", file.display())))
        };
        let common = Files { ca: read("outward.ca", &config.ca)?, identity: None };
        let mut files = HashMap::new();
        for (name, target) in &config.targets {
            let key = |key: &str| format!("outward.targets.\"{name}\".{key}");
            let ca = read(&key("ca"), &target.ca)?.or_else(|| common.ca.clone());
            let certificate = read(&key("certificate"), &target.certificate)?;
            let identity = certificate.zip(read(&key("key"), &target.key)?);
            files.insert(name.clone(), Files { ca, identity });
        }
        for (name, target) in &config.targets {
            let checked = Target::check(name, target, files.get(name).unwrap_or(&common));
            checked.map_err(|why| (format!("outward.targets.\"{name}\""), why))?;
        }
        Ok(OutwardFiles { files, common })
    }
}

/// Whose account a session's calls are for.
#[derive(Default)]
struct Payer {
    /// Who was attached, and which config held, when that was looked up last.
    versions: Option<(u64, u64)>,
    account: Option<Arc<Account>>,
}

/// The calls of one session of a business process, which all have one target.
#[derive(Clone)]
pub(crate) struct Via {
    outward: Arc<Outward>,
    target: Arc<str>,
    client: Arc<Client>,
    peer: Peer,
    payer: Arc<Mutex<Payer>>,
    /// Its shortcut stands.
    is_short: Arc<AtomicBool>,
    let_go: watch::Receiver<bool>,
}

impl Via {
    /// Until `let_go`.
    pub(crate) fn new(
        outward: &Arc<Outward>,
        peer: Peer,
        target: &str,
        let_go: watch::Receiver<bool>,
    ) -> Via {
        let via = Via {
            outward: outward.clone(),
            target: target.into(),
            client: Arc::new(peer.client()),
            peer,
            payer: Arc::default(),
            is_short: Arc::default(),
            let_go,
        };
        if via.account().is_none() {
            let words = format!("no group of this process may call {target}");
            outward.metrics.refused(Refusal::Target, &via.client, "", &words);
        }
        via
    }

    /// Of the group that a call made now counts for, where one may call there.
    fn account(&self) -> Option<Arc<Account>> {
        let Outward { workers, tenants, .. } = &*self.outward;
        // Before it is looked up: what changes meanwhile is looked up again.
        let versions = Some((workers.version(), tenants.version()));
        let mut payer = self.payer.lock();
        if payer.versions != versions {
            *payer = Payer { versions, account: self.outward.account_of(&self.peer, &self.target) };
        }
        payer.account.clone()
    }

    /// Has the only worker of a group let the process in.
    ///
    /// # Errors
    /// Why it is not let in; calls go through the shepherd then.
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
        let worker = self.outward.may_be_met(group).map_err(Status::failed_precondition)?;
        let Some(seat) = Seat::take(&self.is_short) else {
            return Err(Status::resource_exhausted("this session has a shortcut already"));
        };
        let admitted = deadline::in_time(deadline, worker.attached().admit(process)).await;
        let admission = admitted.map_err(|late| self.refused("", late))?;
        let admission = admission.map_err(|status| Inside::from(status).told(group, SHORTCUT))?;
        self.outward.metrics.shortcuts.inc();
        if let Some(unsaid) = self.outward.shortcuts.turn(&self.outward.tenants.config().load(), group) {
            tracing::info!(peer = ?self.peer, group, process = ?worker.attached().process(), unsaid, "a shortcut");
        }
        let (group, mut let_go) = (group.to_owned(), self.let_go.clone());
        let (outward, limits) = (self.outward.clone(), self.limits());
        let response = admission.answer(async move {
            let _seat = seat;
            tokio::select! {
                _ = let_go.wait_for(|go| *go) => {}
                () = outward.met_otherwise(&self.peer, &group, &worker) => {}
            }
        });
        let (to, path) = (self.target.clone(), SHORTCUT.to_owned());
        Ok(response.map(|body| Answered { body: limits.answer(body), to, path, _held: None }))
    }

    fn limits(&self) -> Limits {
        Limits {
            config: self.outward.tenants.config().load_full(),
            passage: Arc::new(Passage::new(&self.client)),
            metrics: self.outward.metrics.clone(),
        }
    }

    async fn call_out(self, mut request: Request<Body>) -> Result<Response<Answered>, Status> {
        let began = Instant::now();
        let path = request.uri().path().strip_prefix('/').unwrap_or_default().to_owned();
        let deadline = deadline::end_of(request.headers(), began);
        let deadline = deadline.map_err(|refused| self.refused(&path, refused))?;
        if Admission::is_asked_for(&request) {
            return self.shorten(deadline).await;
        }
        let target = &*self.target;
        let Some(account) = self.account() else {
            return Err(Status::permission_denied(format!(
                "no group of this process may call {target}: name it under via in the shepherd's config"
            )));
        };
        let call = account.call()?;
        let limits = self.limits();
        let message_bytes = usize::try_from(limits.config.limits.message_bytes).unwrap_or(usize::MAX);
        let beside = Beside::of(&request, message_bytes);
        let Some(group) = target.strip_prefix("group:") else {
            remove_ours(request.headers_mut());
            let (len, max) = (header_list::len_of(request.headers()), limits.config.limits.header_bytes);
            if len > max as usize {
                let status = Status::resource_exhausted(format!(
                    "the request's headers have {len} bytes by HTTP/2's count; limits.header_bytes allows {max}"
                ));
                return Err(self.refused(&path, Refused { why: Refusal::Headers, status }));
            }
            let used = self.outward.target(&account, target)?;
            let channel = deadline::in_time(deadline, used.target().channel()).await;
            let channel =
                channel.map_err(|late| self.refused(&path, late))?.map_err(|closed| match closed {
                    Closed::Unknown => Status::unavailable(format!(
                        "{target} can't be called: no address of it can be found; the shepherd's log says why"
                    )),
                    Closed::Crowded => account.no_connection(target),
                })?;
            // The channel holds the call to what is left now.
            let charge = |()| self.outward.workers.charge(account.group(), &self.client, account.owner());
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
        // Whether objects are wanted is known when the call has a worker.
        beside.iter().for_each(Beside::hold);
        let asked = |charge| limits.asked(body, beside.clone(), charge);
        let rules = (&*limits.passage, &limits.config.limits);
        let placed = arrival::place(&self.outward.workers, &mut wanted, rules, asked).await;
        let (place, asked) = placed.map_err(|refused| self.refused(&path, refused))?;
        self.shrink(&mut parts.headers, &path, began)?;
        self.client.sign(&mut parts.headers);
        let handing = Handing::new(Request::from_parts(parts, Body::new(asked)));
        let mut handing = handing.count_holdings(limits.passage.clone());
        let space = handing.says_encoding().then(|| limits.space([place.charge(), place.charge()]));
        if let Some(space) = &space {
            handing = handing.room(space.clone());
        }
        let handed = self.outward.workers.hand(&wanted, place, handing).await;
        let (handed, place) = handed.map_err(|refused| self.refused(&path, refused))?;
        limits.check().map_err(|refused| self.refused(&path, refused))?;
        space.iter().for_each(|space| space.answered());
        let mut response = handed.map_err(|inside| inside.told(group, &path))?;
        remove_ours(response.headers_mut());
        let answered = place.charge();
        let held = Held { _call: call, _account: account, _used: None, _place: Some(place) };
        let to = self.target.clone();
        Ok(response.map(|body| {
            let body = limits.answer(body).charged(answered).beside(beside);
            Answered { body, to, path, _held: Some(held) }
        }))
    }

    /// Leaves a request the time that it has left of what it was given when it `began`.
    fn shrink(&self, headers: &mut HeaderMap, path: &str, began: Instant) -> Result<(), Status> {
        deadline::shrink(headers, began).map_err(|refused| self.refused(path, refused))
    }

    fn refused(&self, path: &str, refused: Refused) -> Status {
        self.outward.metrics.refused(refused.why, &self.client, path, refused.status.message());
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

/// That a session has a shortcut, or is about to.
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
    /// At the worker of a group.
    _place: Option<Place>,
}

/// What holds one call to the limits of messages and of memory.
struct Limits {
    config: Arc<Config>,
    passage: Arc<Passage>,
    metrics: Arc<Metrics>,
}

impl Limits {
    fn asked(&self, body: Body, beside: Option<Beside>, charge: Charge) -> Asked<Body> {
        Asked::new(body, self.config.clone(), self.passage.clone(), charge).beside(beside)
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
            Came::Frame(mut frame) => {
                if let Some(trailers) = frame.trailers_mut() {
                    remove_ours(trailers);
                }
                Some(Ok(frame))
            }
            Came::Refused(status) => Some(Err(status)),
            Came::Failed(inside) => Some(Err(inside.told(&self.to, &self.path))),
            Came::End => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}
