//! Threads that share loops: turns, handlers, ends.

mod ends;
mod handlers;
mod support;
mod turns;
