//! Messages whose types were compiled with the program: what generated views and builders stand on.
//!
//! `tollfree-build` writes the table into the program, and for each message a type, a view and an editor. The places of
//! fields are read out of the table while the program is compiled, so a read is a test of presence and a load.
//!
//! # Soundness
//!
//! Generated code holds nothing that has to be believed. A [`Typed`] record exists only of objects that a processor made
//! whose table is, byte for byte, [`Compiled::BLOB`], and `place` takes the places of fields out of the same bytes, each
//! for the type that its record has. So code that is written by hand, or generated wrongly, does not compile, or reads
//! another field of the same kind; it cannot read outside of an object.

mod edit;
mod kind;
mod owned;
mod place;
mod prost;
mod read;
mod same;

pub use edit::{EditOf, ListMut, MapMut, MessageMut};
pub use kind::{Bytes, Enum, Key, Kind, Msg, Plain, Str, UncheckedStr};
pub use owned::{Builder, Owned};
pub use place::{Many, One, Pairs};
pub use prost::{InProst, ProstError, ProstKind};
pub use read::{Elements, Entries, ListView, MapView, MessageView, Typed};

use crate::processor::Processor;
use std::sync::OnceLock;
use tollfree_layout::table::Table;

/// A table that was compiled with the program, and the processor that is made of it once.
#[derive(Debug)]
pub struct StaticTable {
    blob: &'static [u8],
    processor: OnceLock<Processor>,
}

impl StaticTable {
    /// The table with these bytes, which is loaded when it is first needed.
    #[must_use]
    pub const fn new(blob: &'static [u8]) -> StaticTable {
        StaticTable { blob, processor: OnceLock::new() }
    }
}

/// The table that a set of messages was generated with. Generated code implements it.
pub trait Compiled: Sized + 'static {
    /// Its bytes, in a `static` that [`Compiled::table`] has, too.
    const BLOB: &'static [u8];

    /// The table itself.
    fn table() -> &'static StaticTable;
}

/// The processor of the messages that were generated with a table: decodes, verifies, encodes and builds them. It is made
/// when it is first asked for. (Not a function of the trait, for then somebody could put another in its place.)
///
/// # Panics
/// If the bytes are no table: then they are not those that were generated.
#[must_use]
#[inline]
pub fn processor<C: Compiled>() -> &'static Processor {
    let table = C::table();
    assert!(std::ptr::eq(table.blob, C::BLOB), "the table is another than its types were compiled with");
    table.processor.get_or_init(|| load(table.blob))
}

#[cold]
fn load(blob: &'static [u8]) -> Processor {
    match Table::load(blob) {
        Ok(table) => Processor::for_good(table),
        Err(error) => panic!("generate the views anew with the same version of tollfree-build: {error}"),
    }
}

/// A message's type. Generated code implements it, for types that have no values.
pub trait Message: Sized + 'static {
    /// The table that it is part of.
    type Compiled: Compiled;
    /// Its place in that table.
    const TYPE_IDX: u32;
    /// Reads one.
    type View<'a>: Copy + From<Typed<'a, Self>> + Into<Typed<'a, Self>>;
    /// Changes one that is being built.
    type Mut<'d>: From<EditOf<'d, Self>>;
}
