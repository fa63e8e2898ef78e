//! The tests of regions, in one binary: a test that needs a process of its own says `alone!()`. (What else the
//! testkit has uses regions.)

#[allow(unreachable_pub, reason = "the testkit's own")]
#[path = "../../../../tests/testkit/src/alone.rs"]
mod alone;
mod exhaustion;
mod forbidden;
mod fork;
mod hostile_fds;
mod leaks;
mod private;
mod regions;
mod seals;

use alone::is_alone;
