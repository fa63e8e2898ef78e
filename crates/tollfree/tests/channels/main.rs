//! Channels that have something to decide: which of several servers, whether to wait, whether to try again, whether to move
//! over to shared memory; and servers that turn calls away.

mod balancing;
mod connecting;
mod limits;
mod offers;
mod place;
mod readiness;
mod retries;
mod upgrade;
