//! One end of a session with its memory, without a runtime: what comes and goes, and whether to spin, to sleep or to ring.
//!
//! There is no thread here, no lock, no task, no socket and no clock: a driver lends a [`Connection`] its socket and the time for each step, by a
//! [`PeerIo`], and says who else wants its processor, by [`Surroundings`]. The connection's [`WaitPlanner`] says how long to look for what comes next. So
//! two ends and a seeded clock are a deterministic simulation (`tests/suite/pair.rs`).
//!
//! # One wait
//! ```text
//!            nothing there                    nothing there, the budget is not spent
//! attempt ───────────────► a short look ────► Spin: look again, after others had their turn ──┐
//!    ▲                     (glances)     └──► Probe: asleep for the peer, and looks ──────────┤
//!    │                                                                                        │ spent, or others want the processor
//!    │         the doorbell rings, or the last look finds something                           ▼
//!    └─────────────────────────────────────────────────────────────────── Park: arm the doorbell, look once more, sleep
//! ```
//! # Example
//! ```
//! use tollfree_connection::{Alone, Wait, WaitPlanner, WaitPolicy};
//! use tollfree_session::Role;
//!
//! let mut planner = WaitPlanner::new(WaitPolicy::Adaptive, Role::Client);
//! planner.wait_begins(1_000);
//! assert!(matches!(planner.decide(0, 1_000, &Alone), Wait::Spin { .. }));
//! // It has looked for ten milliseconds.
//! assert_eq!(planner.decide(10_000_000, 10_001_000, &Alone), Wait::Park);
//! ```
#![forbid(unsafe_code)]

mod activity;
mod area;
mod areas;
mod connection;
pub mod constants;
mod contention;
mod io;
mod policy;
mod publishing;
mod quota;
mod records;
mod spin_budget;
mod timers;
mod wait_hint;
mod wake_cost;

pub use activity::PeerActivity;
pub use areas::AreaAllowance;
pub use connection::{Connection, Flushed, Setup, WaitHints};
pub use contention::{Alone, Contention, Surroundings};
pub use io::{AreaFd, PeerIo, Report};
pub use policy::{Hint, Wait, WaitPlanner, WaitPolicy};
pub use publishing::{Announced, Staged};
pub use quota::QuotaHistory;
pub use wake_cost::ThreadTime;
