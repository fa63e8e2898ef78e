//! The shepherd: from outside (`world`), as processes that are restarted, killed and stopped (`processes`), and by the suite that
//! all transports pass (`conformance`). One binary.

// Each test counts what it leaves behind.
extern crate tollfree_counting as tokio;

mod conformance;
mod processes;
mod world;

use tollfree_stubs as stubs;
