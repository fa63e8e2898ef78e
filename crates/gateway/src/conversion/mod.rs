//! Messages of methods whose handlers take flat ones: made flat here, and encoded on their way back, so that backends encode and decode nothing.
//!
//! [`Objects`] knows a backend connection's methods and hands calls to it; `converter` changes messages by the tables of a
//! method, which its process tells (`asking`, `shelves`, `own_tables`) or the operator gives ([`Tables`]). Compressed messages are inflated and deflated here, too
//! (`repacking`), and large ones lie where backends read them (`group_pools`).

mod asking;
mod converter;
mod counts;
mod encoding;
mod group_pools;
mod objects;
mod own_tables;
mod repacking;
mod shelves;
mod tables;

use tollfree::gateway::about_content;
use tonic::{Code, Status};

pub(crate) use asking::control_request;
pub(crate) use counts::{Conversion, Conversions};
pub(crate) use encoding::says_encoding;
pub(crate) use objects::Objects;
pub(crate) use own_tables::Common;
pub(crate) use repacking::Room;
pub(crate) use tables::{MethodTypes, Tables};

/// Length of what stands before each message in a body.
const PREFIX_LEN: usize = 5;

/// A status about what a call carries.
fn content(code: Code, words: impl Into<String>) -> Status {
    about_content(Status::new(code, words))
}
