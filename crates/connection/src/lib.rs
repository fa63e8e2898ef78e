//! One end of a session, without a runtime: whether to spin, to sleep or to ring.
//!
//! There is no thread here, no lock, no task and no clock: a driver says what time it is, who else wants its processor, and what happened; a
//! [`WaitPlanner`] says how long to look for what comes next, a [`PublishPlanner`] when to publish what is staged and when to ring for it. So two ends and a seeded clock are a deterministic simulation
//! (`tests/suite/waits.rs`).
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

pub mod constants;
mod contention;
mod policy;
mod publishing;
mod quota;
mod spin_budget;
mod wake_cost;

pub use contention::{Alone, Contention, Surroundings};
pub use policy::{Hint, Wait, WaitPlanner, WaitPolicy};
pub use publishing::{Announced, Others, PublishPlanner, Ring, RoundEnd, Staged};
pub use quota::QuotaHistory;
pub use wake_cost::ThreadTime;
