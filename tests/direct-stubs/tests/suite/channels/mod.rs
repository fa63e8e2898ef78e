//! What tonic's stubs do on channels that choose, wait and try again (`crates/tollfree/tests/suite/channels`), with the stubs that
//! `tollfree-build` generates: their calls are direct wherever the endpoint that is chosen has a session.

mod direct;

#[path = "../../../../../crates/tollfree/tests/suite/channels/balancing.rs"]
mod balancing;
#[path = "../../../../../crates/tollfree/tests/suite/channels/changing.rs"]
mod changing;
#[path = "../../../../../crates/tollfree/tests/suite/channels/ejecting.rs"]
mod ejecting;
#[path = "../../../../../crates/tollfree/tests/suite/channels/place.rs"]
mod place;
#[path = "../../../../../crates/tollfree/tests/suite/channels/priorities.rs"]
mod priorities;
#[path = "../../../../../crates/tollfree/tests/suite/channels/readiness.rs"]
mod readiness;
#[path = "../../../../../crates/tollfree/tests/suite/channels/retries.rs"]
mod retries;

/// A message stays with its caller until the call is over, however long it is.
const KEEPS_ALL: bool = true;
