//! The RPC processor: tables in, objects that are read in place out.
//!
//! A schema compiled to a table drives the decoding of a message straight into one relocatable piece of memory,
//! a flat message, that is read where it lies; the same table drives encoding. (Cerebros 4.2 and 4.3 for the
//! table, Split gRPC 3 for flat messages; `spec/table.md` and `spec/flat.md` are the formats.)
//!
//! Unsafe code stands only in the modules marked as hot in their first line. They rely on two facts: a
//! [`Table`](tollfree_layout::table::Table) exists only if its loader has checked it, and an [`Object`] exists
//! only if the decoder has made it or [`Processor::verify`] has accepted it.
#[cfg(target_endian = "big")]
compile_error!("flat messages are little endian and accessed in place; big-endian targets are not supported");

mod arena;
mod arenas;
mod builder;
mod copy;
mod decode;
mod encode;
mod fast_decode;
mod fault;
mod finish;
mod limits;
mod list;
mod method_map;
mod object;
mod owned;
mod packed;
#[cfg(target_arch = "x86_64")]
mod pairs;
mod plan;
mod processor;
#[cfg(feature = "tonic")]
mod status;
mod tail;
pub mod thrift;
mod trusted;
pub mod typed;
mod utf8;
mod varint;
mod verify;
mod view;

pub use arena::{Arena, Memory};
pub use arenas::{Arenas, Slot};
pub use builder::{BuildError, Edit, EditList, ObjectBuilder};
pub use encode::{EncodeBuffer, EncodeError};
pub use limits::{DecodeError, Limits};
pub use method_map::{Method, MethodMap, MethodMapError};
pub use object::Object;
pub use owned::{OwnError, OwnedObject};
pub use processor::Processor;
pub use trusted::Trust;
pub use verify::VerifyError;
pub use view::{Field, FieldError, FieldType, Fields, List, Record, Text, Value};
