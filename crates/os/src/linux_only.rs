//! Linux's own system calls.

pub use std::os::linux;

pub use {nix, rustix};
