//! tokio for suites of tests, with runtimes that count what each test leaves behind. For tests only.
//!
//! A suite has in its first file
//! ```text
//! extern crate tollfree_counting as tokio;
//! ```
//! and every `#[tokio::test]` of it, whoever adds one, fails if it leaves a task, and the last one that runs at a time if the process
//! has more descriptors, or more regions mapped, than before the first.
#![forbid(unsafe_code)]

pub mod runtime;
/// tokio's own runtimes, of which nothing is counted: for processes that a test starts, and for what has several futures run by one.
pub mod uncounted {
    pub use tokio::runtime::{Builder, Runtime};
}
mod under_way;

pub use tokio::*;

pub use crate::under_way::{afterwards, leave_tasks_uncounted, spawn_for_test};
