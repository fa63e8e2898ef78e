//! Two ends and a clock, in one thread.

mod calls;
mod pair;
mod peer;
mod tape;
mod waits;
