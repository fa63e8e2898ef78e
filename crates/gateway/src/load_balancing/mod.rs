//! Load balancing: which backend connection of its group gets a request.
//!
//! A [`Load`] is what is known of one backend connection, and [`Rules`] choose among loads. Both are atomics that any thread may use at once:
//! choosing takes no lock and allocates nothing. `tollfree-lab model load-balancing` runs the same code on traces.

mod affinity;
mod dispatcher;
mod load;
mod queue;
mod rates;
mod rules;

pub(crate) use dispatcher::Dispatcher;
pub use load::{FUNCTIONS_MAX, Function, Load};
pub(crate) use queue::{Order, Waiting};
pub use rules::{Asking, Chosen, Rules};
