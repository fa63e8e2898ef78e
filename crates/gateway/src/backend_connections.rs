//! Who is attached, and which of them a call goes to.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http::Response;
use parking_lot::Mutex;
use tokio::sync::watch;
use tollfree::gateway::{Attached, CallRules, Unanswered};
use tollfree_control::{BackendConnectionState, DeviceState, LoadBalancingState};
use tonic::Status;
use tonic::body::Body;

use crate::backend_connection::{BackendConnection, Handover};
use crate::client::Client;
use crate::config::{Config, HealthCheck};
use crate::conversion::{Common, Objects};
use crate::deadline;
use crate::hang::Watch;
use crate::inside::Inside;
use crate::load_balancing::{Asking, Dispatcher, Waiting};
use crate::memory::{Charge, GroupHoldings};
use crate::metrics::{Metrics, Spread};
use crate::peer::Peer;
use crate::policies::Policies;
use crate::reflection::Reflection;
use crate::refusal::{Refusal, Refused};
use crate::reload::Current;
use crate::routing::{Standing, Table, members, takers};
use crate::shares::{Claim, Crowd, Owner, Shares, Stake, Turn};
use crate::tables::GroupTables;

/// Backend connections that may turn a call away, since they are leaving, before it ends with that.
const TURNED_AWAY_MAX: u32 = 16;
/// Groups that the config does not name, and that figures show after their last process has gone.
const GROUPS_KNOWN_MAX: usize = 64;

/// A call's part of a backend connection's room, until it is dropped.
pub(crate) struct Spot {
    backend_connection: Arc<BackendConnection>,
    backend_connections: Arc<BackendConnections>,
}

/// A call's place at a backend connection, until it is dropped.
pub(crate) struct Place {
    // Given back before the claim, so that a call that waits for that finds room.
    spot: Spot,
    claim: Claim,
}

impl Place {
    pub(crate) fn group(&self) -> &str {
        self.spot.backend_connection.group()
    }

    pub(crate) fn backend_connection(&self) -> &Arc<BackendConnection> {
        &self.spot.backend_connection
    }

    /// For memory that the call holds.
    pub(crate) fn charge(&self) -> Charge {
        Charge::none(self.claim.stake())
    }
}

impl Drop for Spot {
    fn drop(&mut self) {
        self.backend_connection.load().end();
        let dispatcher = self.backend_connection.dispatcher();
        dispatcher.outstanding.dec();
        if !dispatcher.queue.is_empty() {
            self.backend_connections.serve_waiting(dispatcher);
        }
    }
}

/// A call that wants a backend connection.
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
    /// What its connection holds of a group.
    fn stake(&self, shares: &Arc<Shares>) -> Arc<Stake> {
        self.client.claimant().stake(shares, self.owner)
    }
}

/// Why a call has no place.
enum Unplaced {
    /// There is nobody for it.
    Nobody(Refused),
    /// The group takes no more.
    Refused(Refused),
    /// It has to wait for one of this group.
    Full(Arc<Dispatcher>, Claim),
    /// Its client holds as much of this group as it may.
    Crowded(Arc<Dispatcher>, Crowd),
}

/// All that are attached.
pub(crate) struct BackendConnections {
    table: ArcSwap<Table>,
    changes: Mutex<u64>,
    version: watch::Sender<u64>,
    began: Instant,
    /// By group.
    dispatchers: Mutex<HashMap<String, Arc<Dispatcher>>>,
    config: Current,
    /// What the conversions of all of them have in common.
    conversion: Arc<Common>,
    /// By group.
    tables: ArcSwap<GroupTables>,
    /// Backend connections that there were.
    count: AtomicU64,
    /// Who looks for backend connections that hang.
    watch: Watch,
    metrics: Arc<Metrics>,
}

impl BackendConnections {
    pub(crate) fn new(config: Current, metrics: Arc<Metrics>) -> BackendConnections {
        let mut table = Table::default();
        table.configure(&config.load());
        let backends = &config.load().backends;
        let conversion = Common::new(backends.objects, backends.on_unconvertible);
        BackendConnections {
            table: ArcSwap::from_pointee(table),
            changes: Mutex::new(0),
            version: watch::Sender::new(0),
            began: Instant::now(),
            dispatchers: Mutex::default(),
            conversion: Arc::new(conversion),
            config,
            tables: ArcSwap::default(),
            count: AtomicU64::new(0),
            watch: Watch::default(),
            metrics,
        }
    }

    /// Adds a backend connection that has attached.
    pub(crate) fn add(self: &Arc<Self>, attached: Attached) -> Arc<BackendConnection> {
        attached.metrics(&self.metrics.common);
        let dispatcher = self.dispatcher(attached.group());
        let holdings = GroupHoldings::new(attached.group(), &dispatcher.shares, &self.config, &self.metrics);
        let conversions = self.metrics.conversions(attached.group());
        let attached = Arc::new(attached);
        let objects =
            Objects::new(attached.clone(), self.conversion.clone(), conversions, Arc::new(holdings));
        let id = self.count.fetch_add(1, Ordering::Relaxed);
        let backend_connection = Arc::new(BackendConnection::new(attached, objects, dispatcher, id));
        self.change(|table| {
            // Here, so that a config that comes to hold meanwhile finds it or is found by it.
            let device = self.config.load().device_of(backend_connection.group());
            backend_connection.attached().set_registers(&device.registers());
            backend_connection.use_tables(self.tables.load().get(backend_connection.group()).cloned());
            table.add(&backend_connection);
        });
        self.metrics.backend_connections(backend_connection.group()).inc();
        self.follow(backend_connection.dispatcher());
        self.serve_waiting(backend_connection.dispatcher());
        backend_connection
    }

    fn dispatcher(&self, group: &str) -> Arc<Dispatcher> {
        let mut dispatchers = self.dispatchers.lock();
        self.forget_departed_of(&mut dispatchers);
        let begun = || {
            let config = self.config.load();
            let dispatcher = Dispatcher::new(group, &config.load_balancing_of(group), &self.metrics);
            self.restrict(&dispatcher, &config, self.table.load().policies());
            Arc::new(dispatcher)
        };
        dispatchers.entry(group.to_owned()).or_insert_with(begun).clone()
    }

    /// Holds a group to what a config says of it.
    fn restrict(&self, dispatcher: &Dispatcher, config: &Config, policies: &Policies) {
        let group = &*dispatcher.group;
        dispatcher.shares.set_calls_max(config.groups.get(group).and_then(|group| group.calls));
        let rules = policies.of_group(Some(group));
        dispatcher.outliers.configure(rules.and_then(|rules| rules.outlier_detection()));
    }

    /// A group's backend connections have changed.
    fn follow(&self, dispatcher: &Arc<Dispatcher>) {
        let table = self.table.load();
        let own = table.attached().iter().filter(|other| Arc::ptr_eq(other.dispatcher(), dispatcher));
        let members = own.map(|own| (own.load().id(), own.conduct().clone()));
        dispatcher.outliers.members(members.collect());
    }

    /// What the service config says of a call.
    pub(crate) fn rules_of(&self, path: &str, group: Option<&str>) -> Option<Arc<CallRules>> {
        let table = self.table.load();
        if table.policies().are_none() {
            return None;
        }
        let wanted = group.or_else(|| table.group_of(path));
        table.policies().of_group(wanted).cloned()
    }

    /// The group that gets the calls of a path.
    pub(crate) fn group_of(&self, path: &str) -> Option<String> {
        self.table.load().group_of(path).map(str::to_owned)
    }

    /// How a group's backends are asked for their health, if they are.
    pub(crate) fn health_check_of(&self, group: &str) -> Option<HealthCheck> {
        self.config.load().health_check_of(group).cloned()
    }

    /// How many backend connections a group has.
    pub(crate) fn count_of(&self, group: &str) -> usize {
        self.table.load().attached().iter().filter(|attached| attached.group() == group).count()
    }

    /// All groups of which something is there.
    pub(crate) fn dispatchers(&self) -> Vec<Arc<Dispatcher>> {
        self.dispatchers.lock().values().cloned().collect()
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

    pub(crate) fn remove(self: &Arc<Self>, backend_connection: &Arc<BackendConnection>) {
        self.change(|table| table.remove(backend_connection));
        self.metrics.backend_connections(backend_connection.group()).dec();
        self.follow(backend_connection.dispatcher());
        self.count_announced(backend_connection);
        // Connections that were this one's are others' now.
        self.serve_waiting(backend_connection.dispatcher());
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
    pub(crate) fn state(&self) -> BTreeMap<String, Vec<BackendConnectionState>> {
        let mut groups: BTreeMap<String, Vec<BackendConnectionState>> = BTreeMap::new();
        for backend_connection in self.table.load().attached() {
            groups.entry(backend_connection.group().to_owned()).or_default().push(backend_connection.state());
        }
        groups
    }

    /// How the requests of each group are spread, in the order of the groups' names.
    pub(crate) fn spreads(&self) -> Vec<Spread> {
        let table = self.table.load();
        let mut groups: BTreeMap<&str, (&Dispatcher, u32, u32, u32)> = BTreeMap::new();
        for backend_connection in table.attached() {
            let group = groups.entry(backend_connection.group()).or_insert((
                &**backend_connection.dispatcher(),
                0,
                0,
                0,
            ));
            let outstanding = backend_connection.load().outstanding();
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

    /// The same, for the control socket.
    pub(crate) fn load_balancing(&self) -> BTreeMap<String, LoadBalancingState> {
        let of = |spread: Spread| {
            let Spread { group, policy, waiting, imbalance } = spread;
            (group, LoadBalancingState { policy, waiting, imbalance })
        };
        self.spreads().into_iter().map(of).collect()
    }

    /// How the calls of each group are announced to those who are attached, and what was announced so far.
    pub(crate) fn devices(&self) -> BTreeMap<String, DeviceState> {
        let config = self.config.load();
        let mut groups = BTreeMap::new();
        for backend_connection in self.table.load().attached() {
            let counted = self.count_announced(backend_connection);
            let registers = config.device_of(backend_connection.group());
            groups.insert(backend_connection.group().to_owned(), DeviceState { registers, ..counted });
        }
        groups
    }

    /// Counts what was announced to a backend connection since that was counted last, and gives the counts of its group.
    fn count_announced(&self, backend_connection: &BackendConnection) -> DeviceState {
        backend_connection
            .count_announced(|before, now| self.metrics.announced(backend_connection.group(), before, now))
    }

    /// Routes, balances and announces calls as another config says, which is the current one already.
    pub(crate) fn configure(self: &Arc<Self>, config: &Config) {
        let dispatchers: Vec<_> = self.dispatchers.lock().values().cloned().collect();
        for dispatcher in &dispatchers {
            dispatcher.rules.change(&config.load_balancing_of(&dispatcher.group));
        }
        self.change(|table| {
            table.configure(config);
            for backend_connection in table.attached() {
                backend_connection
                    .attached()
                    .set_registers(&config.device_of(backend_connection.group()).registers());
            }
        });
        let table = self.table.load();
        // There may be room now where there was none.
        for dispatcher in &dispatchers {
            self.restrict(dispatcher, config, table.policies());
            self.serve_waiting(dispatcher);
        }
    }

    /// From now on these tables are the operator's. Backend connections that are attached already have their messages changed by them, too.
    pub(crate) fn use_tables(self: &Arc<Self>, tables: GroupTables) {
        self.tables.store(Arc::new(tables));
        self.change(|table| {
            let tables = self.tables.load();
            for backend_connection in table.attached() {
                backend_connection.use_tables(tables.get(backend_connection.group()).cloned());
            }
        });
    }

    /// Who looks for backend connections that hang.
    pub(crate) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// It has changed which backend connections get calls: watchers of health and waiting calls of this group look again.
    pub(crate) fn turned(self: &Arc<Self>, dispatcher: &Dispatcher) {
        self.change(|_| {});
        self.serve_waiting(dispatcher);
    }

    /// What answers calls of the reflection service, if the gateway does.
    pub(crate) fn reflection(&self) -> Option<Reflection> {
        self.tables.load().reflection().cloned()
    }

    /// Each backend connection that is attached.
    pub(crate) fn all(&self) -> Vec<Arc<BackendConnection>> {
        self.table.load().attached().to_vec()
    }

    /// The backend connection that is all there is of a group.
    ///
    /// # Errors
    /// There is none, or one would have to be chosen.
    pub(crate) fn only_one(&self, group: &str) -> Result<Arc<BackendConnection>, &'static str> {
        let table = self.table.load();
        let mut backend_connections =
            table.attached().iter().filter(|backend_connection| backend_connection.group() == group);
        match (backend_connections.next(), backend_connections.next()) {
            (Some(backend_connection), None) if !backend_connection.is_leaving() => {
                Ok(backend_connection.clone())
            }
            (Some(_), Some(_)) => {
                Err("the group has several backend connections, among which the gateway chooses")
            }
            _ => Err("nobody of the group is attached at the moment"),
        }
    }

    /// Whether a process has attached in a group. Of processes that the gateway's pid namespace has no number for, none is known.
    pub(crate) fn is_of(&self, process: &Peer, group: &str) -> bool {
        let is_same = |backend_connection: &Arc<BackendConnection>| {
            backend_connection.group() == group
                && Peer::of_attached(backend_connection.attached()).is_same_process(process)
        };
        self.table.load().attached().iter().any(is_same)
    }

    /// How often it has changed who is attached, or how calls are routed.
    pub(crate) fn version(&self) -> u64 {
        *self.version.borrow()
    }

    /// Tells when who is attached has changed, or how calls are routed.
    pub(crate) fn changed(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Whether any backend connection gets calls now.
    pub(crate) fn take_calls(&self) -> bool {
        self.table.load().attached().iter().any(|backend_connection| backend_connection.takes_calls())
    }

    pub(crate) fn standing(&self, service: &str) -> Standing {
        self.table.load().standing(service)
    }

    /// Who gets a call, which may have a claim already.
    fn place(self: &Arc<Self>, wanted: &Wanted<'_>, claim: Option<Claim>) -> Result<Place, Unplaced> {
        let table = self.table.load();
        let (backend_connections, group) = table.serving(wanted.path, wanted.group);
        let Some(first) = members(backend_connections, group).next() else {
            return Err(Unplaced::Nobody(table.nobody(wanted.path)));
        };
        let dispatcher = first.dispatcher();
        let claim = claim.filter(|claim| claim.stake().is_of(&dispatcher.shares));
        let admitted = match &claim {
            Some(_) => None,
            None => dispatcher.shares.admit().map_err(|most| Unplaced::Refused(too_many_calls(most)))?,
        };
        let claim = match claim {
            Some(claim) => claim,
            // Where the backend connections have a bound of their own, what they can work on waits for them, and not for its client's share.
            None if wanted.has_message && !dispatcher.rules.is_unbounded() => {
                wanted.stake(&dispatcher.shares).pass()
            }
            None => wanted
                .stake(&dispatcher.shares)
                .claim()
                .map_err(|crowd| Unplaced::Crowded(dispatcher.clone(), crowd))?,
        };
        let claim = claim.admitted(admitted);
        let asking = Asking { path: wanted.path, connection: wanted.client.connection() };
        let begun = || self.begin(takers(backend_connections, group), dispatcher, &asking);
        let is_direct = dispatcher.rules.is_unbounded() && dispatcher.queue.is_empty();
        match if is_direct { begun() } else { dispatcher.queue.if_nobody_waits(begun) } {
            Some(spot) => Ok(Place { spot, claim }),
            None => Err(Unplaced::Full(dispatcher.clone(), claim)),
        }
    }

    /// Has one of a group's backend connections begin a request.
    fn begin<'t>(
        self: &Arc<Self>,
        members: impl Iterator<Item = &'t Arc<BackendConnection>> + Clone,
        dispatcher: &Dispatcher,
        asking: &Asking<'_>,
    ) -> Option<Spot> {
        let with_load = members.map(|backend_connection| (backend_connection.load(), backend_connection));
        let first =
            with_load.clone().filter(|(_, backend_connection)| !backend_connection.is_second_choice());
        let chosen = match first.clone().next() {
            Some(_) => dispatcher.rules.choose(asking, first),
            None => dispatcher.rules.choose(asking, with_load),
        }?;
        chosen.begin();
        dispatcher.count(chosen.hit);
        let backend_connection = chosen.backend_connection;
        backend_connection.call_begins();
        dispatcher.outstanding.inc();
        self.watch.call_begins();
        Some(Spot { backend_connection: backend_connection.clone(), backend_connections: self.clone() })
    }

    /// Has requests begin that wait for a group's backend connections, for as long as there is room.
    pub(crate) fn serve_waiting(self: &Arc<Self>, dispatcher: &Dispatcher) {
        let table = self.table.load();
        let group = Some(dispatcher.group.as_str());
        let place = |waiting: &Waiting<Spot>| {
            let (backend_connections, _) = table.serving(&waiting.path, group);
            let asking = Asking { path: &waiting.path, connection: waiting.connection };
            self.begin(takers(backend_connections, group), dispatcher, &asking)
        };
        let is_full = || {
            !takers(table.attached(), group)
                .any(|backend_connection| dispatcher.rules.has_room(backend_connection.load()))
        };
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
                Err(Unplaced::Refused(refused)) => return Err(refused),
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
        // Who has never been attached may be about to, as long as the gateway is new.
        let since = if refused.why == Refusal::Absent { wanted.began } else { self.began };
        let left = self.table.load().patience().saturating_sub(since.elapsed());
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
        // A call that a backend connection has turned away goes first.
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
                    Some((since + self.table.load().patience(), refused))
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
        let (backend_connections, group) = table.serving(wanted.path, wanted.group);
        let first = members(backend_connections, group).next();
        first
            .map(|backend_connection| backend_connection.dispatcher().clone())
            .ok_or_else(|| table.nobody(wanted.path))
    }

    /// Has the backend connection of a place answer a call, or another where that one is leaving and has not looked at it. Gives the place
    /// of the last one beside what came of it.
    pub(crate) async fn hand(
        self: &Arc<Self>,
        wanted: &Wanted<'_>,
        mut place: Place,
        mut handover: Handover,
    ) -> Result<(Result<Response<Body>, Inside>, Place), Refused> {
        let mut turned_away = 0;
        loop {
            match place.spot.backend_connection.hand(&mut handover).await {
                Err(unanswered) if unanswered.may_fail_over && turned_away < TURNED_AWAY_MAX => {
                    turned_away += 1;
                    self.metrics.failovers.inc();
                    let Place { spot, claim } = place;
                    drop(spot);
                    place = self.place_again(wanted, Some(claim)).await?;
                }
                Err(Unanswered { again_after: Some(pause), .. }) => {
                    self.metrics.retries(&place.spot.backend_connection.dispatcher().group).inc();
                    let Place { spot, claim } = place;
                    drop(spot);
                    deadline::in_time(wanted.deadline, tokio::time::sleep(pause)).await?;
                    place = self.place_again(wanted, Some(claim)).await?;
                }
                handed => return Ok((handed.map_err(|unanswered| unanswered.status.into()), place)),
            }
        }
    }
}

/// A turn to wait for something of a group.
fn turn_in(dispatcher: &Dispatcher, stake: &Arc<Stake>) -> Result<Turn, Refused> {
    let limit = dispatcher.rules.waiting();
    stake.wait(limit).ok_or_else(|| {
        let status = Status::resource_exhausted(format!(
            "as many calls wait in this group as this client may have there, of the {limit} that load_balancing.waiting allows; try again later"
        ));
        Refused { why: Refusal::Waiting, status }
    })
}

fn too_many_calls(most: u64) -> Refused {
    let status = Status::unavailable(format!(
        "the group has as many calls as the {most} that groups.NAME.calls allows; try again later"
    ));
    Refused { why: Refusal::Calls, status }
}
