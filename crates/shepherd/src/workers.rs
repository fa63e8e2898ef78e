//! Who is attached, and which of them a call goes to.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http::Response;
use parking_lot::Mutex;
use tokio::sync::watch;
use tollfree::shepherd::{Announced, Attached, Handing, Unanswered};
use tollfree_control::{ConnectionState, DeviceState, SteeringState, WorkerState};
use tonic::Status;
use tonic::body::Body;

use crate::client::Client;
use crate::config::Config;
use crate::deadline;
use crate::inside::Inside;
use crate::memory::{Charge, Kept};
use crate::metrics::{Metrics, Spread};
use crate::peer::Peer;
use crate::refusal::{Refusal, Refused};
use crate::reload::Current;
use crate::shares::{Claim, Crowd, Owner, Shares, Stake, Turn};
use crate::steering::{Asking, Dispatcher, Load, Waiting};
use crate::tables::GroupTables;

/// Workers that may turn a call away, since they are leaving, before it ends with that.
const TURNED_AWAY_MAX: u32 = 16;
/// Services that are remembered after the last process that served them has gone.
const KNOWN_COUNT_MAX: usize = 4096;

/// Groups that the config does not name, and that figures show after their last process has gone.
const GROUPS_KNOWN_MAX: usize = 64;

/// A worker that is attached: one session of a business process.
pub(crate) struct Worker {
    attached: Attached,
    dispatcher: Arc<Dispatcher>,
    since: Instant,
    load: Load,
    /// Calls that its process takes at once.
    places: u32,
    calls: AtomicU64,
    /// What was announced to it, as far as that is counted.
    announced: Mutex<Announced>,
    /// It takes no new calls, and is about to be removed.
    is_leaving: AtomicBool,
}

impl Worker {
    fn new(attached: Attached, dispatcher: Arc<Dispatcher>, id: u64) -> Worker {
        Worker {
            places: attached.call_count_max(),
            attached,
            dispatcher,
            since: Instant::now(),
            load: Load::new(id),
            calls: AtomicU64::new(0),
            announced: Mutex::default(),
            is_leaving: AtomicBool::new(false),
        }
    }

    fn state(&self) -> WorkerState {
        let peer = self.attached.process().identity;
        WorkerState {
            remote: self.attached.remote().map(|remote| format!("{} at {}", remote.subject, remote.address)),
            pid: peer.pid,
            uid: peer.uid,
            worker: self.attached.worker(),
            services: self.attached.services().to_vec(),
            outstanding: self.load.outstanding(),
            calls: self.calls.load(Ordering::Relaxed),
            attached_ms: self.since.elapsed().as_millis() as u64,
        }
    }

    /// By which its session is closed.
    pub(crate) fn connection_id(&self) -> String {
        format!("w{}", self.load.id())
    }

    /// Its session, as one of the shepherd's connections.
    pub(crate) fn connection(&self) -> ConnectionState {
        ConnectionState {
            id: self.connection_id(),
            kind: "worker".to_owned(),
            place: self.group().to_owned(),
            peer: format!("{:?}, worker {}", Peer::of_attached(&self.attached), self.attached.worker()),
            open_ms: self.since.elapsed().as_millis() as u64,
            calls: self.load.outstanding(),
            calls_total: self.calls.load(Ordering::Relaxed),
            received_bytes: None,
            sent_bytes: None,
            is_closing: self.is_leaving.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn attached(&self) -> &Attached {
        &self.attached
    }

    fn group(&self) -> &str {
        self.attached.group()
    }
}

/// A call's part of a worker's room, until it is dropped.
pub(crate) struct Spot {
    worker: Arc<Worker>,
    workers: Arc<Workers>,
}

/// A call's place at a worker, until it is dropped.
pub(crate) struct Place {
    // Given back before the claim, so that whoever waits for that finds room.
    spot: Spot,
    claim: Claim,
}

impl Place {
    pub(crate) fn group(&self) -> &str {
        self.spot.worker.group()
    }

    /// For memory that the call holds.
    pub(crate) fn charge(&self) -> Charge {
        Charge::none(self.claim.stake())
    }

    /// Has the worker answer a call.
    ///
    /// # Errors
    /// [`Unanswered`]; where the call may be handed on, this worker gets no further one.
    async fn hand(&self, handing: &mut Handing) -> Result<Response<Body>, Unanswered> {
        let worker = &self.spot.worker;
        let handed = worker.attached.hand(handing).await;
        if handed.as_ref().is_err_and(|unanswered| unanswered.may_be_handed_on) {
            worker.is_leaving.store(true, Ordering::Relaxed);
        }
        handed
    }
}

impl Drop for Spot {
    fn drop(&mut self) {
        self.worker.load.end();
        let dispatcher = &self.worker.dispatcher;
        dispatcher.outstanding.dec();
        if !dispatcher.queue.is_empty() {
            self.workers.serve_waiting(dispatcher);
        }
    }
}

/// A call that wants a worker.
pub(crate) struct Wanted<'w> {
    /// As `acme.v1.Orders/Get`.
    pub(crate) path: &'w str,
    /// Whose it is to be, whatever the routes say.
    pub(crate) group: Option<&'w str>,
    /// The connection that it came by.
    pub(crate) client: &'w Client,
    /// Whose share of the group it counts in, besides its connection's.
    pub(crate) owner: Option<&'w Owner>,
    /// A message of the request is here, or its end.
    pub(crate) has_message: bool,
    pub(crate) began: Instant,
    pub(crate) deadline: Option<Instant>,
}

impl Wanted<'_> {
    fn service(&self) -> &str {
        service_of(self.path)
    }

    /// What its connection holds of a group.
    fn stake(&self, shares: &Arc<Shares>) -> Arc<Stake> {
        self.client.claimant().stake(shares, self.owner)
    }
}

fn service_of(path: &str) -> &str {
    path.split('/').next().unwrap_or_default()
}

/// Why a call has no place.
enum Unplaced {
    /// There is nobody for it.
    Nobody(Refused),
    /// It has to wait for one of this group.
    Full(Arc<Dispatcher>, Claim),
    /// Its client holds as much of this group as it may.
    Crowded(Arc<Dispatcher>, Crowd),
}

/// Whether a service has somebody who serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Served,
    /// It is configured, or has been attached.
    Absent,
    Unknown,
}

/// What calls are routed by. A change makes a new one.
#[derive(Clone, Default)]
struct Table {
    /// In the order in which they attached.
    by_service: HashMap<String, Vec<Arc<Worker>>>,
    attached: Vec<Arc<Worker>>,
    known: BTreeSet<String>,
    routes: Arc<BTreeMap<String, String>>,
    /// How long a call waits for somebody who serves it.
    patience: Duration,
}

impl Table {
    /// Routes as a config has them. Services stay known that it doesn't name any more.
    fn configure(&mut self, config: &Config) {
        let mut routes = config.routes.clone();
        for (name, group) in &config.groups {
            for service in &group.services {
                routes.entry(service.clone()).or_insert_with(|| name.clone());
            }
        }
        for route in routes.keys() {
            self.known.insert(route.split('/').next().unwrap_or_default().to_owned());
        }
        self.routes = Arc::new(routes);
        self.patience = Duration::from_millis(config.limits.attach_wait_ms);
    }

    /// Says to each group how many calls its workers may have at once.
    fn count_places(&self) {
        let mut groups: BTreeMap<&str, (&Dispatcher, u64)> = BTreeMap::new();
        for worker in &self.attached {
            let group = groups.entry(worker.group()).or_insert((&worker.dispatcher, 0));
            group.1 += u64::from(worker.dispatcher.rules.places_of(worker.places));
        }
        groups.into_values().for_each(|(dispatcher, places)| dispatcher.shares.set_capacity(places));
    }
}

/// All that are attached.
pub(crate) struct Workers {
    table: ArcSwap<Table>,
    changes: Mutex<u64>,
    version: watch::Sender<u64>,
    began: Instant,
    /// By group.
    dispatchers: Mutex<HashMap<String, Arc<Dispatcher>>>,
    config: Current,
    /// By group.
    tables: ArcSwap<GroupTables>,
    /// Workers that there were.
    count: AtomicU64,
    metrics: Arc<Metrics>,
}

impl Workers {
    pub(crate) fn new(config: Current, metrics: Arc<Metrics>) -> Workers {
        let mut table = Table::default();
        table.configure(&config.load());
        Workers {
            table: ArcSwap::from_pointee(table),
            changes: Mutex::new(0),
            version: watch::Sender::new(0),
            began: Instant::now(),
            dispatchers: Mutex::default(),
            config,
            tables: ArcSwap::default(),
            count: AtomicU64::new(0),
            metrics,
        }
    }

    /// Adds a worker that has attached.
    pub(crate) fn add(self: &Arc<Self>, mut attached: Attached) -> Arc<Worker> {
        attached.metrics(&self.metrics.common);
        attached.count_fates(&self.metrics.fates(attached.group()));
        let dispatcher = self.dispatcher(attached.group());
        let kept = Kept::new(attached.group(), &dispatcher.shares, &self.config, &self.metrics);
        attached.count_holdings(Arc::new(kept));
        let id = self.count.fetch_add(1, Ordering::Relaxed);
        let worker = Arc::new(Worker::new(attached, dispatcher, id));
        self.change(|table| {
            // Here, so that a config that comes to hold meanwhile finds it or is found by it.
            let device = self.config.load().device_of(worker.group());
            worker.attached.set_registers(&device.registers());
            worker.attached.use_tables(self.tables.load().get(worker.group()).cloned());
            table.attached.push(worker.clone());
            for service in worker.attached.services() {
                table.by_service.entry(service.clone()).or_default().push(worker.clone());
                if table.known.len() < KNOWN_COUNT_MAX {
                    table.known.insert(service.clone());
                }
            }
        });
        self.metrics.workers(worker.group()).inc();
        self.serve_waiting(&worker.dispatcher);
        worker
    }

    fn dispatcher(&self, group: &str) -> Arc<Dispatcher> {
        let mut dispatchers = self.dispatchers.lock();
        self.forget_departed_of(&mut dispatchers);
        let begun =
            || Arc::new(Dispatcher::new(group, &self.config.load().steering_of(group), &self.metrics));
        dispatchers.entry(group.to_owned()).or_insert_with(begun).clone()
    }

    /// Forgets groups, and their figures, that the config does not name, that nobody is of, and that have no call.
    pub(crate) fn forget_departed(&self) {
        self.forget_departed_of(&mut self.dispatchers.lock());
    }

    fn forget_departed_of(&self, dispatchers: &mut HashMap<String, Arc<Dispatcher>>) {
        let config = self.config.load();
        let mut known = 0;
        dispatchers.retain(|group, dispatcher| {
            // Without groups in the config, processes give them what names they like.
            known += 1;
            let is_known = match config.groups.is_empty() {
                true => known <= GROUPS_KNOWN_MAX,
                false => config.groups.contains_key(group),
            };
            let stays = is_known || !dispatcher.is_unused();
            if !stays {
                self.metrics.forget(group);
            }
            stays
        });
    }

    /// For memory that a group's call to elsewhere holds.
    pub(crate) fn charge(&self, group: &str, client: &Client, owner: &Owner) -> Charge {
        let shares = &self.dispatcher(group).shares;
        Charge::none(&client.claimant().stake(shares, Some(owner)))
    }

    /// For memory that a call holds before it has a place. Where nobody is there who serves it, waits until somebody is, for as long as
    /// the config says.
    ///
    /// # Errors
    /// Nobody has come, or the call's time is over.
    pub(crate) async fn charge_before(&self, wanted: &Wanted<'_>) -> Result<Charge, Refused> {
        let mut changed = None;
        loop {
            match self.standing_of(wanted) {
                Ok(dispatcher) => return Ok(Charge::none(&wanted.stake(&dispatcher.shares))),
                Err(nobody) => self.wait_for_somebody(wanted, nobody, &mut changed).await?,
            }
        }
    }

    pub(crate) fn remove(self: &Arc<Self>, worker: &Arc<Worker>) {
        self.change(|table| {
            table.attached.retain(|other| !Arc::ptr_eq(other, worker));
            for service in worker.attached.services() {
                if let Some(workers) = table.by_service.get_mut(service) {
                    workers.retain(|other| !Arc::ptr_eq(other, worker));
                    if workers.is_empty() {
                        table.by_service.remove(service);
                    }
                }
            }
        });
        self.metrics.workers(worker.group()).dec();
        self.count_announced(worker);
        // Connections that were this one's are others' now.
        self.serve_waiting(&worker.dispatcher);
    }

    fn change(&self, change: impl FnOnce(&mut Table)) {
        let mut changes = self.changes.lock();
        let mut table = Table::clone(&self.table.load());
        change(&mut table);
        table.count_places();
        self.table.store(Arc::new(table));
        *changes += 1;
        self.version.send_replace(*changes);
    }

    /// Who is attached, by group, in the order in which they attached.
    pub(crate) fn state(&self) -> BTreeMap<String, Vec<WorkerState>> {
        let mut groups: BTreeMap<String, Vec<WorkerState>> = BTreeMap::new();
        for worker in &self.table.load().attached {
            groups.entry(worker.group().to_owned()).or_default().push(worker.state());
        }
        groups
    }

    /// How the requests of each group are spread, in the order of the groups' names.
    pub(crate) fn spreads(&self) -> Vec<Spread> {
        let table = self.table.load();
        let mut groups: BTreeMap<&str, (&Dispatcher, u32, u32, u32)> = BTreeMap::new();
        for worker in &table.attached {
            let group = groups.entry(worker.group()).or_insert((&worker.dispatcher, 0, 0, 0));
            let outstanding = worker.load.outstanding();
            *group = (group.0, group.1 + 1, group.2 + outstanding, group.3.max(outstanding));
        }
        let spread = |(group, (dispatcher, count, sum, most)): (&str, (&Dispatcher, u32, u32, u32))| Spread {
            group: group.to_owned(),
            policy: dispatcher.rules.policy(),
            waiting: dispatcher.shares.waiting() as u32,
            imbalance: f64::from(most) - f64::from(sum) / f64::from(count),
        };
        groups.into_iter().map(spread).collect()
    }

    /// The same, for those who ask what the shepherd does.
    pub(crate) fn steering(&self) -> BTreeMap<String, SteeringState> {
        let of = |spread: Spread| {
            let Spread { group, policy, waiting, imbalance } = spread;
            (group, SteeringState { policy, waiting, imbalance })
        };
        self.spreads().into_iter().map(of).collect()
    }

    /// How the calls of each group are announced to those who are attached, and what was announced so far.
    pub(crate) fn devices(&self) -> BTreeMap<String, DeviceState> {
        let config = self.config.load();
        let mut groups = BTreeMap::new();
        for worker in &self.table.load().attached {
            let counted = self.count_announced(worker);
            let registers = config.device_of(worker.group());
            groups.insert(worker.group().to_owned(), DeviceState { registers, ..counted });
        }
        groups
    }

    /// Counts what was announced to a worker since that was counted last, and gives the counts of its group.
    fn count_announced(&self, worker: &Worker) -> DeviceState {
        let mut counted = worker.announced.lock();
        let before = std::mem::replace(&mut *counted, worker.attached.announced());
        self.metrics.announced(worker.group(), &before, &counted)
    }

    /// Routes, steers and announces calls as another config says, which is the current one already.
    pub(crate) fn configure(self: &Arc<Self>, config: &Config) {
        let dispatchers: Vec<_> = self.dispatchers.lock().values().cloned().collect();
        for dispatcher in &dispatchers {
            dispatcher.rules.change(&config.steering_of(&dispatcher.group));
        }
        self.change(|table| {
            table.configure(config);
            for worker in &table.attached {
                worker.attached.set_registers(&config.device_of(worker.group()).registers());
            }
        });
        // There may be room now where there was none.
        for dispatcher in &dispatchers {
            self.serve_waiting(dispatcher);
        }
    }

    /// From now on these tables are the operator's. Workers that are attached already have their messages changed by them, too.
    pub(crate) fn use_tables(self: &Arc<Self>, tables: GroupTables) {
        self.tables.store(Arc::new(tables));
        self.change(|table| {
            let tables = self.tables.load();
            for worker in &table.attached {
                worker.attached.use_tables(tables.get(worker.group()).cloned());
            }
        });
    }

    /// Each worker that is attached.
    pub(crate) fn all(&self) -> Vec<Arc<Worker>> {
        self.table.load().attached.clone()
    }

    /// The worker that is all there is of a group.
    ///
    /// # Errors
    /// There is none, or one would have to be chosen.
    pub(crate) fn only_one(&self, group: &str) -> Result<Arc<Worker>, &'static str> {
        let table = self.table.load();
        let mut workers = table.attached.iter().filter(|worker| worker.group() == group);
        match (workers.next(), workers.next()) {
            (Some(worker), None) if !worker.is_leaving.load(Ordering::Relaxed) => Ok(worker.clone()),
            (Some(_), Some(_)) => Err("the group has several workers, among which the shepherd chooses"),
            _ => Err("nobody of the group is attached at the moment"),
        }
    }

    /// Whether a process has attached in a group. Of processes that the shepherd's pid namespace has no number for, none is known.
    pub(crate) fn is_of(&self, process: &Peer, group: &str) -> bool {
        let is_same = |worker: &Arc<Worker>| {
            worker.group() == group && Peer::of_attached(&worker.attached).is_same_process(process)
        };
        self.table.load().attached.iter().any(is_same)
    }

    /// How often it has changed who is attached, or how calls are routed.
    pub(crate) fn version(&self) -> u64 {
        *self.version.borrow()
    }

    /// Tells when who is attached has changed, or how calls are routed.
    pub(crate) fn changed(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    pub(crate) fn standing(&self, service: &str) -> Standing {
        let table = self.table.load();
        let route = table.routes.get(service);
        let mut workers = table.by_service.get(service).into_iter().flatten();
        match workers.any(|worker| route.is_none_or(|group| group == worker.group())) {
            true => Standing::Served,
            false if table.known.contains(service) => Standing::Absent,
            false => Standing::Unknown,
        }
    }

    /// Workers that serve a call's service, and the group of them that gets it.
    fn serving<'t>(table: &'t Table, wanted: &Wanted<'t>) -> (&'t [Arc<Worker>], Option<&'t str>) {
        let service = service_of(wanted.path);
        let workers = table.by_service.get(service).map_or(&[][..], Vec::as_slice);
        let routed =
            || table.routes.get(wanted.path).or_else(|| table.routes.get(service)).map(String::as_str);
        // Without a route, the group that attached with the service first keeps it as long as one of it is attached.
        let first = || workers.first().map(|worker| worker.group());
        (workers, wanted.group.or_else(routed).or_else(first))
    }

    /// Who gets a call, which may have a claim already.
    fn place(self: &Arc<Self>, wanted: &Wanted<'_>, claim: Option<Claim>) -> Result<Place, Unplaced> {
        let table = self.table.load();
        let (workers, group) = Workers::serving(&table, wanted);
        let Some(first) = members(workers, group).next() else {
            return Err(Unplaced::Nobody(nobody(&table, wanted.service())));
        };
        let dispatcher = &first.dispatcher;
        let claim = match claim.filter(|claim| claim.stake().is_of(&dispatcher.shares)) {
            Some(claim) => claim,
            // Where the workers have a bound of their own, what they can work on waits for them, and not for its client's share.
            None if wanted.has_message && !dispatcher.rules.is_unbounded() => {
                wanted.stake(&dispatcher.shares).pass()
            }
            None => wanted
                .stake(&dispatcher.shares)
                .claim()
                .map_err(|crowd| Unplaced::Crowded(dispatcher.clone(), crowd))?,
        };
        let asking = Asking { path: wanted.path, connection: wanted.client.connection() };
        let begun = || self.begin(members(workers, group), dispatcher, &asking);
        let is_direct = dispatcher.rules.is_unbounded() && dispatcher.queue.is_empty();
        match if is_direct { begun() } else { dispatcher.queue.if_nobody_waits(begun) } {
            Some(spot) => Ok(Place { spot, claim }),
            None => Err(Unplaced::Full(dispatcher.clone(), claim)),
        }
    }

    /// Has one of a group's workers begin a request.
    fn begin<'t>(
        self: &Arc<Self>,
        members: impl Iterator<Item = &'t Arc<Worker>> + Clone,
        dispatcher: &Dispatcher,
        asking: &Asking<'_>,
    ) -> Option<Spot> {
        let chosen = dispatcher.rules.choose(asking, members.map(|worker| (&worker.load, worker)))?;
        chosen.begin();
        dispatcher.count(chosen.hit);
        let worker = chosen.worker;
        worker.calls.fetch_add(1, Ordering::Relaxed);
        dispatcher.outstanding.inc();
        Some(Spot { worker: worker.clone(), workers: self.clone() })
    }

    /// Has requests begin that wait for a group's workers, for as long as there is room.
    fn serve_waiting(self: &Arc<Self>, dispatcher: &Dispatcher) {
        let table = self.table.load();
        let group = Some(dispatcher.group.as_str());
        let place = |waiting: &Waiting<Spot>| {
            let workers = table.by_service.get(service_of(&waiting.path)).map_or(&[][..], Vec::as_slice);
            let asking = Asking { path: &waiting.path, connection: waiting.connection };
            self.begin(members(workers, group), dispatcher, &asking)
        };
        let is_full =
            || !members(&table.attached, group).any(|worker| dispatcher.rules.has_room(&worker.load));
        dispatcher.queue.serve(place, is_full);
    }

    /// Who gets a call. Where nobody is there who serves it, waits until somebody is, for as long as the config says; where all have as
    /// much as they may, waits until one has room.
    pub(crate) async fn place_in_time(self: &Arc<Self>, wanted: &Wanted<'_>) -> Result<Place, Refused> {
        self.place_again(wanted, None).await
    }

    /// The same for a call that may have a claim already, since it had a place.
    async fn place_again(
        self: &Arc<Self>,
        wanted: &Wanted<'_>,
        mut claim: Option<Claim>,
    ) -> Result<Place, Refused> {
        let is_again = claim.is_some();
        let (mut changed, mut turn) = (None, None);
        loop {
            let refused = match self.place(wanted, claim.take()) {
                Ok(place) => return Ok(place),
                Err(Unplaced::Full(dispatcher, claim)) => {
                    turn = None;
                    match self.wait_in_queue(wanted, &dispatcher, claim, is_again).await {
                        Some(placed) => return placed,
                        None => continue,
                    }
                }
                Err(Unplaced::Crowded(dispatcher, crowd)) => {
                    self.wait_for_share(wanted, &dispatcher, crowd, &mut turn).await?;
                    continue;
                }
                Err(Unplaced::Nobody(refused)) => refused,
            };
            self.wait_for_somebody(wanted, refused, &mut changed).await?;
        }
    }

    /// Waits for somebody who serves a call that was `refused` since nobody does, until there is a reason to look again.
    ///
    /// # Errors
    /// The patience that the config allows is over, or the call's time.
    async fn wait_for_somebody(
        &self,
        wanted: &Wanted<'_>,
        refused: Refused,
        changed: &mut Option<watch::Receiver<u64>>,
    ) -> Result<(), Refused> {
        let Some(changed) = changed else {
            // From here on no change is missed.
            *changed = Some(self.changed());
            return Ok(());
        };
        // Who has never been attached may be about to, as long as the shepherd is new.
        let since = if refused.why == Refusal::Absent { wanted.began } else { self.began };
        let left = self.table.load().patience.saturating_sub(since.elapsed());
        if left.is_zero() {
            return Err(refused);
        }
        // At the end of the time, the next turn is the last one.
        let change = tokio::time::timeout(left, changed.changed());
        deadline::in_time(wanted.deadline, change).await.map(drop)
    }

    /// Waits until a client may hold one more place of a group, for as long as `limits.place_wait_ms`, and the call's deadline, allow.
    async fn wait_for_share(
        &self,
        wanted: &Wanted<'_>,
        dispatcher: &Arc<Dispatcher>,
        crowd: Crowd,
        turn: &mut Option<(Turn, Instant)>,
    ) -> Result<(), Refused> {
        let Some((turn, since)) = turn else {
            *turn = Some((turn_in(dispatcher, &wanted.stake(&dispatcher.shares))?, Instant::now()));
            // From here on no place that comes free is missed: the next look decides.
            return Ok(());
        };
        let mut changed = self.changed();
        let limit_ms = self.config.load().limits.place_wait_ms;
        tokio::select! {
            biased;
            () = turn.freed(crowd) => Ok(()),
            () = deadline::until(wanted.deadline) => Err(deadline::late()),
            () = deadline::until(since.checked_add(Duration::from_millis(limit_ms))) => {
                let status = Status::resource_exhausted(format!(
                    "this client has as many calls under way as its share of the group's places allows, and none of them ended within {limit_ms} ms; make fewer calls at once"
                ));
                Err(Refused { why: Refusal::Places, status })
            }
            _ = changed.changed() => Ok(()),
        }
    }

    /// Waits in a group's queue. None where the call is to be placed anew, since another group has its service now.
    async fn wait_in_queue(
        self: &Arc<Self>,
        wanted: &Wanted<'_>,
        dispatcher: &Arc<Dispatcher>,
        claim: Claim,
        is_again: bool,
    ) -> Option<Result<Place, Refused>> {
        let mut changed = self.changed();
        let _turn = match turn_in(dispatcher, claim.stake()) {
            Ok(turn) => turn,
            Err(refused) => return Some(Err(refused)),
        };
        // A call that a worker has turned away goes first.
        let order = (!is_again).then(|| claim.stake().order());
        let connection = wanted.client.connection();
        let mut entry = dispatcher.queue.enter(wanted.path, connection, wanted.began, order);
        // There may be room since the look that led here.
        self.serve_waiting(dispatcher);
        let mut nobody_since = None;
        loop {
            let patience = match self.standing_of(wanted) {
                Ok(now) if Arc::ptr_eq(&now, dispatcher) => {
                    nobody_since = None;
                    None
                }
                Ok(_) => return None,
                Err(refused) => {
                    let since = *nobody_since.get_or_insert_with(Instant::now);
                    Some((since + self.table.load().patience, refused))
                }
            };
            let (nobody_until, refused) = patience.unzip();
            tokio::select! {
                biased;
                // An entry stays in the queue until it has a place.
                Ok(spot) = &mut entry.granted => return Some(Ok(Place { spot, claim })),
                () = deadline::until(wanted.deadline) => return Some(Err(deadline::late())),
                () = deadline::until(nobody_until) => return refused.map(Err),
                _ = changed.changed() => {}
            }
        }
    }

    /// The group that has a call's service at the moment.
    fn standing_of(&self, wanted: &Wanted<'_>) -> Result<Arc<Dispatcher>, Refused> {
        let table = self.table.load();
        let (workers, group) = Workers::serving(&table, wanted);
        let first = members(workers, group).next();
        first.map(|worker| worker.dispatcher.clone()).ok_or_else(|| nobody(&table, wanted.service()))
    }

    /// Has the worker of a place answer a call, or another where that one is leaving and has not looked at it. Gives the place
    /// of the last one beside what came of it.
    pub(crate) async fn hand(
        self: &Arc<Self>,
        wanted: &Wanted<'_>,
        mut place: Place,
        mut handing: Handing,
    ) -> Result<(Result<Response<Body>, Inside>, Place), Refused> {
        let mut turned_away = 0;
        loop {
            match place.hand(&mut handing).await {
                Err(unanswered) if unanswered.may_be_handed_on && turned_away < TURNED_AWAY_MAX => {
                    turned_away += 1;
                    self.metrics.handed_on.inc();
                    let Place { spot, claim } = place;
                    drop(spot);
                    place = self.place_again(wanted, Some(claim)).await?;
                }
                handed => return Ok((handed.map_err(|unanswered| unanswered.status.into()), place)),
            }
        }
    }
}

/// Workers of a group that take calls.
fn members<'t>(
    workers: &'t [Arc<Worker>],
    group: Option<&str>,
) -> impl Iterator<Item = &'t Arc<Worker>> + Clone {
    workers
        .iter()
        .filter(move |worker| Some(worker.group()) == group && !worker.is_leaving.load(Ordering::Relaxed))
}

/// A turn to wait for something of a group.
fn turn_in(dispatcher: &Dispatcher, stake: &Arc<Stake>) -> Result<Turn, Refused> {
    let limit = dispatcher.rules.waiting();
    stake.wait(limit).ok_or_else(|| {
        let status = Status::resource_exhausted(format!(
            "as many calls wait in this group as this client may have there, of the {limit} that steering.waiting allows; try again later"
        ));
        Refused { why: Refusal::Waiting, status }
    })
}

fn nobody(table: &Table, service: &str) -> Refused {
    match table.known.contains(service) {
        true => Refused {
            why: Refusal::Absent,
            status: Status::unavailable(format!(
                "nobody who serves {service} is attached at the moment; try again"
            )),
        },
        false => Refused {
            why: Refusal::Unimplemented,
            status: Status::unimplemented(format!("there is no service {service} here")),
        },
    }
}
