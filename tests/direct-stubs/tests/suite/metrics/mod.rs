//! The figures of channels and servers: which names they have, and what they count of known calls.

mod calls;
pub(crate) mod place;
mod process;
