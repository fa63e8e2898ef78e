//! What tonic's stubs do on channels that choose, wait and try again (`crates/tollfree/tests/channels`), with the stubs that
//! `tollfree-build` generates: their calls are direct wherever the endpoint that is chosen has a session.

mod direct;

#[path = "../../../../crates/tollfree/tests/channels/balancing.rs"]
mod balancing;
#[path = "../../../../crates/tollfree/tests/channels/changing.rs"]
mod changing;
#[path = "../../../../crates/tollfree/tests/channels/place.rs"]
mod place;
#[path = "../../../../crates/tollfree/tests/channels/readiness.rs"]
mod readiness;
#[path = "../../../../crates/tollfree/tests/channels/retries.rs"]
mod retries;

/// The stubs under test: those that `tollfree-build` generates.
use tollfree_direct_stubs as stubs;

/// A message stays with its caller until the call is over, however long it is.
const KEEPS_ALL: bool = true;
