//! The shepherd.
#![forbid(unsafe_code)]
