//! Loops with each other, and with the tokio driver.

mod calls;
mod channels;
mod ends;
mod health;
mod host;
mod pairings;
mod pools;
mod support;
