//! Every byte that two processes share: where it lies, how wide it is, and how it is checked.
#![forbid(unsafe_code)]

pub mod linear;
pub mod table;
