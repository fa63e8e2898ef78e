//! Which endpoint gets a call, and when a failed call or connection is tried again: without a runtime.
//!
//! A [`List`] holds the endpoints of a channel. Its owner replaces the whole list ([`List::replace`]), wherever the addresses come from, and
//! asks it for each call ([`List::pick`]). The owner knows how an endpoint is reached and whether it can be; the list knows weights,
//! priorities, turns and ejections.
//!
//! There is no clock here, no thread, no lock and no IO. Times are arguments, in nanoseconds of any monotonic clock. `pick` takes a shared
//! reference, so that threads may choose at once under a read lock; what changes the list takes an exclusive one.
//!
//! # Rules
//! - The endpoints of the highest priority (the smallest number) are used as long as one of them can be. When all of them fail, the next
//!   priority is used; when one can be used again, the calls go back. While one is still being connected, calls wait for it.
//! - Among the endpoints of a priority the [`Policy`] chooses. Equals have their turns ([`Turn`]).
//! - An endpoint whose calls fail is ejected and returns by itself ([`OutlierDetection`], gRFC A50), within its priority.
//!
//! # Example
//! ```
//! use tollfree_balancer::{List, Look, Pick, Policy, Target};
//!
//! let mut list = List::new(Policy::RoundRobin, None, 1);
//! let addresses = ["10.0.0.1:80", "10.0.0.2:80"].map(Target::new);
//! list.replace(addresses.into(), 0, |target, _| Ok::<_, String>(target.address.clone())).unwrap();
//! let mut pick = || match list.pick(|_| false, |address| Look::<_, ()>::Ready(address.clone()), |_| 0) {
//!     Pick::Chosen(chosen) => chosen.reached,
//!     _ => unreachable!("all are ready"),
//! };
//! assert_eq!([pick(), pick(), pick()].map(|address| address.to_string()), ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.1:80"]);
//! ```
#![forbid(unsafe_code)]

mod list;
mod outlier;
mod pace;
mod pick;
mod random;
mod record;
mod retry;
mod service_config;
mod target;
mod turn;

pub use list::{List, Member, Policy};
pub use outlier::{
    Cause, ConsecutiveFailureEjection, Event, FailurePercentageEjection, OutlierDetection,
    SuccessRateEjection,
};
pub use pace::{Failure, LOCAL_MAX, PROVEN, Pace, REMOTE_FIRST};
pub use pick::{Chosen, Look, Pick};
pub use record::Record;
pub use retry::{PREVIOUS_ATTEMPTS, PUSHBACK, Pushback, Retries, RetryPolicy, Throttle, Throttling};
pub use service_config::{MethodConfig, STATUS_NAMES, ServiceConfig, ServiceConfigError};
pub use target::{Health, Locality, Target};
pub use turn::Turn;
