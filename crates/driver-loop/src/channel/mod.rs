//! Channels: calls to one of several servers, by the rules of `tollfree_balancer`. The loop connects, reconnects and chooses; a call waits for a
//! connection, and is made again where that is safe or its policy says so.

mod call;
mod endpoint;
mod health;

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tollfree_balancer::{
    List, OutlierDetection, Pick, Policy, Pushback, RetryPolicy, Target, Throttle, Throttling,
};
use tollfree_rendezvous::{Address, AddressError};

pub(crate) use call::{ChannelCall, Unplaced};
pub(crate) use endpoint::{Endpoint, Next};
pub(crate) use health::{Health, NextWatch, UNIMPLEMENTED, WATCH, Watch, request as health_request};

use crate::{CallId, SessionId};

/// Settings of a channel.
#[derive(Clone, Debug)]
pub struct ChannelConfig {
    /// The servers: `shm:` or `shm-abstract:` addresses.
    pub targets: Vec<Target>,
    /// How one is chosen for a call.
    pub policy: Policy,
    /// Whether servers whose calls fail get none for a while.
    pub outlier_detection: Option<OutlierDetection>,
    /// `retryThrottling`, for all calls together.
    pub throttling: Option<Throttling>,
    /// The service whose health each server is asked for, `""` for all that it has: one that does not serve gets no calls. `PickFirst` never asks, as in gRPC.
    pub health_service: Option<Arc<str>>,
}

impl ChannelConfig {
    /// One server.
    pub fn new(address: &Address) -> ChannelConfig {
        ChannelConfig {
            targets: vec![Target::new(address.to_string())],
            policy: Policy::PickFirst,
            outlier_detection: None,
            throttling: None,
            health_service: None,
        }
    }
}

/// A channel of a loop. Never given to another, in any loop of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(u64);

impl ChannelId {
    /// As a number, for programs in other languages. Never 0.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The id of that number. Of a number that no channel has, [`EventLoop`](crate::EventLoop) knows nothing.
    pub fn from_bits(bits: u64) -> ChannelId {
        ChannelId(bits)
    }
}

/// How a channel fares, in gRPC's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelState {
    /// Not connected, and nobody tries to. A call or [`connect_channel`](crate::EventLoop::connect_channel) changes that.
    Idle,
    /// Being connected.
    Connecting,
    /// Calls can be made.
    Ready,
    /// The last attempts to connect have failed. The next follows.
    TransientFailure,
}

/// What is beside a call's [start](crate::CallStart) in a channel.
#[derive(Clone, Debug, Default)]
pub struct CallTerms {
    /// It waits for a connection however often connecting fails (gRPC's wait-for-ready), as long as its deadline allows.
    pub waits_for_ready: bool,
    /// When it is made again after it failed.
    pub retry: Option<Arc<RetryPolicy>>,
}

/// Numbers of channels' calls have this bit, and those of a session's own calls don't.
const OF_CHANNEL: u64 = 1 << 63;
/// Stands for the session in the names of channels' calls: they may go from one to another.
pub(crate) const NO_SESSION: SessionId = SessionId { idx: u32::MAX, generation: u32::MAX };
/// The channels and calls of this process that there have been: an id of one loop is no id of another.
static ID_COUNT: AtomicU64 = AtomicU64::new(0);

fn next_id() -> u64 {
    ID_COUNT.fetch_add(1, Ordering::Relaxed) + 1
}

/// Whether a call's number is a channel's.
pub(crate) fn is_of_channel(number: u64) -> bool {
    number & OF_CHANNEL != 0
}

/// What is due at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// An endpoint may be tried again.
    Endpoint(ChannelId, usize),
    /// A call that is nowhere has to be over, or is to be made again.
    Call(u64),
    /// A server is to be watched again.
    Watch(NextWatch),
}

/// One channel.
#[derive(Debug)]
pub(crate) struct Channel {
    list: List<usize>,
    endpoints: Vec<Endpoint>,
    policy: Policy,
    throttle: Option<Throttle>,
    /// What of its servers' health is asked for.
    health_service: Option<Arc<str>>,
    /// Calls that wait for a connection, in order; some may be over.
    waiting: VecDeque<u64>,
    /// What the application was told last.
    told: ChannelState,
    /// The application wants it connected, or its policy does.
    stays_connected: bool,
}

/// What a channel leaves behind.
#[derive(Debug)]
pub(crate) struct Remains {
    /// Its calls, which are over, with the sessions that they are in.
    pub(crate) calls: Vec<(u64, Option<SessionId>)>,
    /// The sessions that it had or was to have.
    pub(crate) sessions: Vec<SessionId>,
}

/// What a choice came to.
#[derive(Debug)]
pub(crate) enum Choice {
    At { session: SessionId, endpoint: usize },
    Wait,
    Failing(String),
}

impl Channel {
    fn new(config: ChannelConfig, now_ns: u64) -> Result<Channel, AddressError> {
        let ChannelConfig { targets, policy, outlier_detection, throttling, health_service } = config;
        let mut endpoints = Vec::new();
        let mut list = List::new(policy, outlier_detection, now_ns);
        list.replace(targets, now_ns, |target, record| {
            let address: Address = target.address.parse()?;
            endpoints.push(Endpoint::new(address, record.cloned()));
            Ok::<_, AddressError>(endpoints.len() - 1)
        })?;
        Ok(Channel {
            list,
            endpoints,
            policy,
            throttle: throttling.map(Throttle::new),
            health_service: health_service.filter(|_| policy != Policy::PickFirst),
            waiting: VecDeque::new(),
            told: ChannelState::Idle,
            stays_connected: false,
        })
    }

    pub(crate) fn endpoint(&self, idx: usize) -> &Endpoint {
        &self.endpoints[idx]
    }

    pub(crate) fn endpoint_mut(&mut self, idx: usize) -> &mut Endpoint {
        &mut self.endpoints[idx]
    }

    /// The service whose health is asked for, if health is checked.
    pub(crate) fn health_service(&self) -> Option<&str> {
        self.health_service.as_deref()
    }

    pub(crate) fn endpoint_count(&self) -> usize {
        self.endpoints.len()
    }

    /// Why one of its servers can't be reached, if one can't.
    pub(crate) fn failing_words(&self) -> Option<&str> {
        self.endpoints.iter().find_map(Endpoint::failing_words)
    }

    /// Chooses for a call that came at a time, and gives the endpoints that have to be connected for it. `avoid`: where it was last.
    pub(crate) fn choose(&self, came_ns: u64, avoid: Option<usize>, now_ns: u64) -> (Choice, Vec<usize>) {
        let idle = RefCell::new(Vec::new());
        let look = |idx: &usize| {
            let endpoint = &self.endpoints[*idx];
            if endpoint.may_connect(now_ns) {
                idle.borrow_mut().push(*idx);
            }
            endpoint.look(came_ns, now_ns)
        };
        let load = |idx: &usize| self.endpoints[*idx].call_count();
        let choice = match self.list.pick(|idx| Some(*idx) == avoid, look, load) {
            Pick::Chosen(chosen) => Choice::At { session: chosen.reached, endpoint: *chosen.endpoint },
            Pick::Wait if self.endpoints.is_empty() => Choice::Failing("the channel has no servers".into()),
            Pick::Wait => Choice::Wait,
            Pick::Failing(reason) => Choice::Failing(
                reason
                    .unwrap_or_else(|| "all servers of the channel are out of use for their failures".into()),
            ),
        };
        (choice, idle.into_inner())
    }

    /// A call waits for a connection.
    pub(crate) fn waits(&mut self, number: u64) {
        self.waiting.push_back(number);
    }

    /// The calls that wait, in order.
    pub(crate) fn take_waiting(&mut self) -> VecDeque<u64> {
        std::mem::take(&mut self.waiting)
    }

    /// The application wants it to be connected.
    pub(crate) fn stays_connected(&mut self) {
        self.stays_connected = true;
    }

    /// Whether an endpoint is connected where no call needs it now.
    pub(crate) fn stays(&self) -> bool {
        self.stays_connected || self.policy != Policy::PickFirst
    }

    /// Whether calls wait for a connection, or did.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Sees to ejections that are due.
    pub(crate) fn sweep(&mut self, now_ns: u64) {
        let _ = self.list.sweep(now_ns);
    }

    pub(crate) fn state(&self) -> ChannelState {
        let any = |state| self.endpoints.iter().any(|endpoint| endpoint.state() == state);
        [ChannelState::Ready, ChannelState::Connecting, ChannelState::TransientFailure]
            .into_iter()
            .find(|state| any(*state))
            .unwrap_or(ChannelState::Idle)
    }

    /// The state, if the application does not know it.
    pub(crate) fn news(&mut self) -> Option<ChannelState> {
        let state = self.state();
        (std::mem::replace(&mut self.told, state) != state).then_some(state)
    }
}

/// All channels of a loop, and their calls.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    channels: HashMap<ChannelId, Channel>,
    calls: HashMap<u64, ChannelCall>,
    /// Whose sessions these are.
    sessions: HashMap<SessionId, (ChannelId, usize)>,
    /// Calls of the loop's own, one in a session at most.
    watches: HashMap<CallId, Watch>,
    dues: BTreeSet<(u64, Due)>,
}

impl Channels {
    /// Whether there is nothing to be seen to.
    pub(crate) fn is_empty(&self) -> bool {
        self.channels.is_empty() && self.calls.is_empty() && self.sessions.is_empty()
    }

    pub(crate) fn open(&mut self, config: ChannelConfig, now_ns: u64) -> Result<ChannelId, AddressError> {
        let channel = Channel::new(config, now_ns)?;
        let id = ChannelId(next_id());
        self.channels.insert(id, channel);
        Ok(id)
    }

    /// Takes a channel out.
    pub(crate) fn close(&mut self, id: ChannelId) -> Option<Remains> {
        self.channels.remove(&id)?;
        let of_channel = self.calls.iter_mut().filter(|(_, call)| call.channel() == id && !call.is_over());
        let mut calls: Vec<_> = of_channel.map(|(number, call)| (*number, call.ends())).collect();
        calls.sort_unstable_by_key(|(number, _)| *number);
        let sessions =
            self.sessions.iter().filter(|(_, (of, _))| *of == id).map(|(session, _)| *session).collect();
        Some(Remains { calls, sessions })
    }

    pub(crate) fn channel(&self, id: ChannelId) -> Option<&Channel> {
        self.channels.get(&id)
    }

    pub(crate) fn channel_mut(&mut self, id: ChannelId) -> Option<&mut Channel> {
        self.channels.get_mut(&id)
    }

    /// A call begins.
    pub(crate) fn begin(&mut self, call: ChannelCall) -> u64 {
        let number = OF_CHANNEL | next_id();
        self.calls.insert(number, call);
        number
    }

    pub(crate) fn call(&self, number: u64) -> Option<&ChannelCall> {
        self.calls.get(&number)
    }

    pub(crate) fn call_mut(&mut self, number: u64) -> Option<&mut ChannelCall> {
        self.calls.get_mut(&number)
    }

    /// A call's attempt has failed with a status: what becomes of the call.
    pub(crate) fn call_fails(
        &mut self,
        number: u64,
        code: u16,
        pushback: Pushback,
        now_ns: u64,
    ) -> Option<Unplaced> {
        let call = self.calls.get_mut(&number)?;
        let throttle = self.channels.get(&call.channel()).and_then(|channel| channel.throttle.as_ref());
        Some(call.fails(code, pushback, throttle, now_ns))
    }

    /// A call has succeeded, and is over.
    pub(crate) fn succeeded(&mut self, number: u64) {
        if let Some(call) = self.end(number, Some(0))
            && let Some(throttle) =
                self.channels.get(&call.channel()).and_then(|channel| channel.throttle.as_ref())
        {
            throttle.succeeded();
        }
    }

    /// A call is over. What its endpoint is told depends on how: `code` is `None` where nobody can say.
    pub(crate) fn end(&mut self, number: u64, code: Option<u16>) -> Option<ChannelCall> {
        self.left(number, code);
        let call = self.calls.remove(&number)?;
        self.not_due(number, &call);
        Some(call)
    }

    /// A call is no longer where it was placed.
    pub(crate) fn left(&mut self, number: u64, code: Option<u16>) {
        if let Some(call) = self.calls.get_mut(&number)
            && let Some((_, idx)) = call.leave()
            && let Some(channel) = self.channels.get_mut(&call.channel())
        {
            channel.endpoint_mut(idx).call_ended(code);
        }
    }

    /// Where a call is. `None`: nowhere yet.
    pub(crate) fn session_of(&self, number: u64) -> Option<SessionId> {
        self.calls.get(&number)?.placed().map(|(session, _)| session)
    }

    /// A session is a channel's.
    pub(crate) fn session_begins(&mut self, session: SessionId, channel: ChannelId, endpoint: usize) {
        self.sessions.insert(session, (channel, endpoint));
    }

    pub(crate) fn endpoint_of(&self, session: SessionId) -> Option<(ChannelId, usize)> {
        self.sessions.get(&session).copied()
    }

    /// A session has ended, or was never begun.
    pub(crate) fn session_ended(&mut self, session: SessionId) -> Option<(ChannelId, usize)> {
        self.sessions.remove(&session)
    }

    pub(crate) fn watch_begins(&mut self, call: CallId, watch: Watch) {
        self.watches.insert(call, watch);
    }

    pub(crate) fn has_watch(&self, call: CallId) -> bool {
        self.watches.contains_key(&call)
    }

    /// A watch, with the server and the service that it asks for.
    pub(crate) fn watched(&mut self, call: CallId) -> Option<(&mut Watch, Address, Arc<str>)> {
        let watch = self.watches.get_mut(&call)?;
        let channel = self.channels.get(&watch.channel)?;
        let address = channel.endpoint(watch.endpoint).address().clone();
        Some((watch, address, channel.health_service.clone()?))
    }

    pub(crate) fn watch_ends(&mut self, call: CallId) -> Option<Watch> {
        self.watches.remove(&call)
    }

    /// The watch in a session.
    pub(crate) fn watch_in(&self, session: SessionId) -> Option<CallId> {
        self.watches.keys().find(|call| call.session() == session).copied()
    }

    /// Something is due at a time. What is due more often than once is looked at more often.
    pub(crate) fn due_at(&mut self, at_ns: u64, due: Due) {
        self.dues.insert((at_ns, due));
    }

    /// A call does not wait any more.
    pub(crate) fn placed(&mut self, number: u64) {
        if let Some(call) = self.calls.get(&number) {
            self.dues.remove(&(call.deadline_ns(), Due::Call(number)));
        }
    }

    fn not_due(&mut self, number: u64, call: &ChannelCall) {
        self.dues.remove(&(call.deadline_ns(), Due::Call(number)));
    }

    /// When the first thing is due.
    pub(crate) fn first_due_ns(&self) -> Option<u64> {
        self.dues.first().map(|(at_ns, _)| *at_ns)
    }

    /// Takes what is due by now.
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Option<Due> {
        self.dues.first().filter(|(at_ns, _)| *at_ns <= now_ns)?;
        self.dues.pop_first().map(|(_, due)| due)
    }
}

/// The name of a channel's call.
pub(crate) fn name_of(number: u64) -> CallId {
    CallId::new(NO_SESSION, number)
}

/// `grpc-previous-rpc-attempts` behind a call's own metadata.
pub(crate) fn with_attempts(metadata: &Bytes, failed: u32) -> Bytes {
    if failed == 0 {
        return metadata.clone();
    }
    let mut block = metadata.to_vec();
    // A name and a number are short enough.
    let _ = tollfree_layout::metadata::pack(
        &mut block,
        tollfree_balancer::PREVIOUS_ATTEMPTS,
        failed.to_string().as_bytes(),
    );
    block.into()
}
