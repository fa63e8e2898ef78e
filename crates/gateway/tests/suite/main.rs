//! The gateway: from outside (`world`), as processes that are restarted, killed and stopped (`processes`), by the suite that all
//! transports pass (`conformance`), and as a command (`program`). One binary.

// Each test counts what it leaves behind.
extern crate tollfree_counting as tokio;

mod conformance;
mod processes;
mod program;
mod world;

use tollfree_stubs as stubs;
