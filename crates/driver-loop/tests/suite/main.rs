//! Loops with each other, and with the tokio driver.

mod calls;
mod ends;
mod host;
mod pairings;
mod support;
