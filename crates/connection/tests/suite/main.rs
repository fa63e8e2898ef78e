//! Two ends and a clock, in one thread.

mod calls;
mod pair;
mod tape;
mod waits;
