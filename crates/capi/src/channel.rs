//! Channels: calls to one of several servers, which the loop connects to and reconnects.

use std::collections::HashMap;
use std::ffi::c_int;

use tollfree_driver_loop::{
    CallTerms, ChannelConfig, ChannelId, ChannelState, Policy, ServiceConfig, ServiceConfigError, Target,
};
use tollfree_layout::errors;
use tollfree_os::clock::now_ns;

use crate::call::{Call, Start};
use crate::error::{Failure, run};
use crate::loops::Loop;
use crate::pointers::{self, Bytes, Growing};

/// Not connected, and nothing tries to. A call or `tollfree_channel_connect` changes that.
pub const TOLLFREE_CHANNEL_IDLE: u32 = 0;
/// Being connected.
pub const TOLLFREE_CHANNEL_CONNECTING: u32 = 1;
/// Calls can be made.
pub const TOLLFREE_CHANNEL_READY: u32 = 2;
/// The last attempts to connect have failed. The next follows.
pub const TOLLFREE_CHANNEL_FAILING: u32 = 3;

/// The first server that can be used.
pub const TOLLFREE_POLICY_PICK_FIRST: u32 = 0;
/// Each server in turn, as often as its weight says.
pub const TOLLFREE_POLICY_ROUND_ROBIN: u32 = 1;
/// The server with the fewest calls under way, beside its weight.
pub const TOLLFREE_POLICY_LEAST_OUTSTANDING: u32 = 2;

/// Calls to one or more servers. `{0}` is none. No two channels of a process have the same.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    id: u64,
}

/// A server of a channel.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Server<'a> {
    /// `shm:///path` or `shm-abstract:name`.
    address: Bytes<'a>,
    /// Its share of the calls beside the others of its priority; 0: it gets none.
    weight: u32,
    /// 0 is the highest. The next is used while no server of it can be.
    priority: u32,
}

/// What a channel is made of.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ChannelSettings<'a> {
    /// `sizeof(tollfree_channel_config)`.
    size: usize,
    /// The servers.
    servers: *const Server<'a>,
    /// How many there are: one at least.
    server_count: usize,
    /// How a server is chosen for a call: `TOLLFREE_POLICY_…`. `loadBalancingConfig` of the service config comes before.
    policy: u32,
    /// 0.
    reserved: u32,
    /// gRPC's service config, as JSON, or nothing: `loadBalancingConfig`, `retryThrottling`, and `methodConfig` with `timeout`,
    /// `waitForReady` and `retryPolicy`.
    service_config: Bytes<'a>,
}

// SAFETY: numbers and pointers; zeros are null and 0. `size` is the first.
unsafe impl Growing for ChannelSettings<'_> {
    const LEN_MIN: usize = size_of::<ChannelSettings<'static>>();
}

impl ChannelSettings<'_> {
    /// The channel that the settings describe, and what they say of its calls.
    fn read(from: *const ChannelSettings<'_>) -> Result<(ChannelConfig, ServiceConfig), Failure> {
        // SAFETY: the header asks for a structure of its size; others are refused (`pointers::tests`). ASan watches in the C tests.
        let settings = unsafe { pointers::read(from) }?;
        // SAFETY: the header asks for `server_count` servers there; null and impossible lengths are refused (`pointers::tests`).
        let servers = unsafe { pointers::list(settings.servers, settings.server_count) }?;
        if servers.is_empty() {
            return Err(Failure::new(
                errors::USE_LENGTH,
                "a channel has one server at least: pass its address",
            ));
        }
        let target = |server: &Server<'_>| {
            let address = server.address.text("a server's address")?;
            Ok(Target { weight: server.weight, priority: server.priority, ..Target::new(address) })
        };
        let targets: Result<Vec<Target>, Failure> = servers.iter().map(target).collect();
        let policy = match settings.policy {
            TOLLFREE_POLICY_PICK_FIRST => Policy::PickFirst,
            TOLLFREE_POLICY_ROUND_ROBIN => Policy::RoundRobin,
            TOLLFREE_POLICY_LEAST_OUTSTANDING => Policy::LeastOutstanding,
            other => {
                let words = format!("policy is {other}, which the header does not list");
                return Err(Failure::new(errors::USE_VALUE, words));
            }
        };
        let calls = match settings.service_config.text("the service config")? {
            "" => ServiceConfig::default(),
            json => ServiceConfig::parse(json)?,
        };
        let config = ChannelConfig {
            targets: targets?,
            policy: calls.balance.unwrap_or(policy),
            outlier_detection: calls.outlier_detection.clone(),
            throttling: calls.throttling,
            health_service: calls.health_service.clone(),
        };
        Ok((config, calls))
    }
}

impl From<ServiceConfigError> for Failure {
    fn from(error: ServiceConfigError) -> Failure {
        Failure::new(errors::USE_VALUE, error.to_string())
    }
}

/// What service configs say of the calls of a loop's channels.
#[derive(Debug, Default)]
pub(crate) struct CallRules(HashMap<ChannelId, ServiceConfig>);

impl CallRules {
    fn opened(&mut self, channel: ChannelId, config: ServiceConfig) {
        self.0.insert(channel, config);
    }

    fn closed(&mut self, channel: ChannelId) {
        self.0.remove(&channel);
    }

    /// What holds for a call, and when it has to be over, if anything says so.
    fn of(&self, channel: ChannelId, start: &Start<'_>, path: &str) -> (CallTerms, Option<u64>) {
        let asked = start.waits();
        let Some(config) = self.0.get(&channel) else {
            return (CallTerms { waits_for_ready: asked.unwrap_or(false), retry: None }, None);
        };
        let method = config.method(path);
        let until_ns = method
            .timeout
            .map(|timeout| now_ns().saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX)));
        let waits_for_ready = asked.or(method.waits).unwrap_or(false);
        (CallTerms { waits_for_ready, retry: method.retry.clone() }, until_ns)
    }
}

impl Channel {
    pub(crate) const NONE: Channel = Channel { id: 0 };

    pub(crate) fn of(channel: ChannelId) -> Channel {
        Channel { id: channel.to_bits() }
    }

    fn id(self) -> ChannelId {
        ChannelId::from_bits(self.id)
    }
}

/// A channel's state as C has it.
pub(crate) fn number_of(state: ChannelState) -> u32 {
    match state {
        ChannelState::Idle => TOLLFREE_CHANNEL_IDLE,
        ChannelState::Connecting => TOLLFREE_CHANNEL_CONNECTING,
        ChannelState::Ready => TOLLFREE_CHANNEL_READY,
        ChannelState::TransientFailure => TOLLFREE_CHANNEL_FAILING,
    }
}

fn unknown() -> Failure {
    Failure::new(errors::USE_SESSION, "this channel is closed, or is no channel of this loop")
}

/// Opens a channel. It connects when a call needs it, and again when a session has ended. `TOLLFREE_EVENT_CHANNEL` tells how it fares.
///
/// @return 0, or an error's number.
///
/// # Safety
/// Pointers that are not null point to as much as is said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollfree_channel_open(
    of: Loop,
    config: *const ChannelSettings<'_>,
    channel: Option<&mut Channel>,
) -> c_int {
    run(|| {
        let channel = channel.ok_or_else(|| Failure::null("the channel"))?;
        let (config, calls) = ChannelSettings::read(config)?;
        of.with(|kept| {
            let opened = kept.events.open_channel(config);
            let opened = opened.map_err(|error| Failure::new(error.number(), error.to_string()))?;
            kept.call_rules.opened(opened, calls);
            *channel = Channel::of(opened);
            Ok(())
        })
    })
}

/// Ends a channel with all of its calls: `TOLLFREE_EVENT_ENDED` with gRPC's status CANCELLED follows for each.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_channel_close(of: Loop, channel: Channel) -> c_int {
    run(|| {
        of.with(|kept| {
            kept.events.channel_state(channel.id()).ok_or_else(unknown)?;
            kept.events.close_channel(channel.id());
            kept.call_rules.closed(channel.id());
            Ok(())
        })
    })
}

/// Connects a channel that is idle, and keeps it connected.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_channel_connect(of: Loop, channel: Channel) -> c_int {
    run(|| {
        of.with(|kept| {
            kept.events.channel_state(channel.id()).ok_or_else(unknown)?;
            kept.events.connect_channel(channel.id());
            Ok(())
        })
    })
}

/// How a channel fares: `TOLLFREE_CHANNEL_…`.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_channel_state(of: Loop, channel: Channel, state: Option<&mut u32>) -> c_int {
    run(|| {
        let state = state.ok_or_else(|| Failure::null("the state"))?;
        of.with(|kept| {
            *state = number_of(kept.events.channel_state(channel.id()).ok_or_else(unknown)?);
            Ok(())
        })
    })
}

/// Begins a call in a channel. It waits for a connection. Where connecting fails it ends with UNAVAILABLE, whose text names the socket; with
/// `TOLLFREE_FLAG_WAITS` it waits on. A call that no server has looked at moves to another connection; other calls are made again where the
/// service config says so. Its events have no session.
///
/// @return 0, or an error's number.
///
/// # Safety
/// Pointers that are not null point to as much as is said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollfree_channel_call(
    of: Loop,
    channel: Channel,
    start: *const Start<'_>,
    call: Option<&mut Call>,
) -> c_int {
    run(|| {
        let call = call.ok_or_else(|| Failure::null("the call"))?;
        // SAFETY: the header asks for a structure of its size; others are refused (`pointers::tests`). ASan watches in the C tests.
        let start = unsafe { pointers::read(start) }?;
        let mut begins = start.begins_in_channel()?;
        of.with(|kept| {
            kept.events.channel_state(channel.id()).ok_or_else(unknown)?;
            let (terms, until_ns) = kept.call_rules.of(channel.id(), &start, begins.path);
            begins.deadline_ns = [begins.deadline_ns, until_ns].into_iter().flatten().min();
            *call = Call::of(kept.events.channel_call(channel.id(), begins, terms)?);
            Ok(())
        })
    })
}
