//! Stand-ins for Linux's own system calls.

pub mod linux;
pub mod nix;
pub mod rustix;

/// What nothing is. Handles keep it to themselves, so that the compiler doesn't call code above this part unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Never {}
