//! Channels that have something to decide: which of several servers, whether to wait, whether to try again; and servers
//! that turn calls away.

mod balancing;
mod limits;
mod place;
mod readiness;
mod retries;
