//! Two ends and a clock, in one thread.

mod pair;
mod waits;
