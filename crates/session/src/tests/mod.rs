//! Tests that need the inside of a session: its states, its violations, its edges.

mod credit;
mod deferred;
mod edges;
mod ends;
mod heads;
mod outgoing;
pub(crate) mod script;
mod segmented;
mod transitions;
mod violations;
