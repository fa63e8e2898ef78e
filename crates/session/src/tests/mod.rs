//! Tests that need the inside of a session: its states, its violations, its edges.

mod edges;
mod ends;
mod script;
mod transitions;
mod unencoded;
mod violations;
