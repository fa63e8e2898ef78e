//! The tests of pools, in one binary: a test that needs a process of its own says `alone!()`. The models of `tests/loom.rs` are
//! built otherwise.

mod connections;
mod fetches;
mod forks;
mod hostile;
mod invitations;
mod kills;
mod machine;
mod manners;
mod members;
mod neighbors;
mod overlays;
mod place;
mod quiet;
mod segmented_messages;
mod unread;
