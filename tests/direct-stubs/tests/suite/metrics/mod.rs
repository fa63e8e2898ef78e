//! The figures of channels and servers: which names they have, and what they count of known calls.

mod calls;
mod place;
mod process;
