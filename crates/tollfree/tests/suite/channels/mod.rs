//! Channels that have something to decide: which of several servers, whether to wait, whether to try again, whether to move
//! over to shared memory; and servers that turn calls away.

mod attempts;
mod balancing;
mod changing;
mod connecting;
mod ejecting;
mod incoming;
mod limits;
mod offers;
mod place;
mod priorities;
mod readiness;
mod reconnecting;
mod retries;
mod upgrade;
mod wire;

/// Of a request that may be sent again no more is kept than fits into 256 KiB.
const KEEPS_ALL: bool = false;
