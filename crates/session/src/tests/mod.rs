//! Tests that need the inside of a session: its states, its violations, its edges.

mod deferred;
mod edges;
mod ends;
pub(crate) mod script;
mod transitions;
mod violations;
