//! Channels: calls to one of several servers, which the loop connects to and reconnects.

use std::ffi::c_int;

use tollfree_driver_loop::{CallTerms, ChannelConfig, ChannelId, ChannelState, Policy, Target};
use tollfree_layout::errors;

use crate::call::{Call, Start, TOLLFREE_FLAG_WAITS};
use crate::error::{Failure, run};
use crate::loops::Loop;
use crate::pointers::{self, Bytes};

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

/// Opens a channel to servers, one of which `policy` (`TOLLFREE_POLICY_…`) chooses for each call. It connects when a call needs it, and again when
/// a session has ended. `TOLLFREE_EVENT_CHANNEL` tells how it fares.
///
/// @return 0, or an error's number.
///
/// # Safety
/// Pointers that are not null point to as much as is said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollfree_channel_open(
    of: Loop,
    servers: *const Server<'_>,
    server_count: usize,
    policy: u32,
    channel: Option<&mut Channel>,
) -> c_int {
    run(|| {
        let channel = channel.ok_or_else(|| Failure::null("the channel"))?;
        // SAFETY: the header asks for `server_count` servers there; null and impossible lengths are refused (`pointers::tests`).
        let servers = unsafe { pointers::list(servers, server_count) }?;
        let target = |server: &Server<'_>| {
            let address = server.address.text("a server's address")?;
            Ok(Target { weight: server.weight, priority: server.priority, ..Target::new(address) })
        };
        let targets: Result<Vec<Target>, Failure> = servers.iter().map(target).collect();
        let policy = match policy {
            TOLLFREE_POLICY_PICK_FIRST => Policy::PickFirst,
            TOLLFREE_POLICY_ROUND_ROBIN => Policy::RoundRobin,
            TOLLFREE_POLICY_LEAST_OUTSTANDING => Policy::LeastOutstanding,
            other => {
                let words = format!("policy is {other}, which the header does not list");
                return Err(Failure::new(errors::USE_VALUE, words));
            }
        };
        let config = ChannelConfig { targets: targets?, policy, outlier_detection: None, throttling: None };
        of.with(|kept| {
            let opened = kept.events.open_channel(config);
            *channel = Channel::of(opened.map_err(|error| Failure::new(error.number(), error.to_string()))?);
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
/// `TOLLFREE_FLAG_WAITS` it waits on. A call that no server has looked at moves to another connection. Its events have no session.
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
        let begins = start.begins(TOLLFREE_FLAG_WAITS)?;
        let terms = CallTerms { waits_for_ready: start.waits(), retry: None };
        of.with(|kept| {
            kept.events.channel_state(channel.id()).ok_or_else(unknown)?;
            *call = Call::of(kept.events.channel_call(channel.id(), begins, terms)?);
            Ok(())
        })
    })
}
