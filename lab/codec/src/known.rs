//! bench3/M3 read by a program that knows its fields.

use tollfree_bench::message::ends;
use tollfree_processor::{Field, FieldError, List, Processor, Record, Text};

use super::ours::read_one;

/// The message that this program knows.
pub(super) const NAME: &str = "hyperprotobench.M3";
/// What the corpus and the generated messages call it.
pub(super) const PAYLOAD: &str = "bench3/M3";

macro_rules! records {
    ($($(#[$doc:meta])* $record:ident = $name:literal { $($field:ident: $type:ty),+ $(,)? })+) => { $(
        $(#[$doc])*
        struct $record { $($field: Field<$type>),+ }

        impl $record {
            fn new(processor: &Processor) -> Result<Self, FieldError> {
                let type_idx = processor.type_by_name($name).unwrap_or(u32::MAX);
                Ok(Self { $($field: processor.field(type_idx, stringify!($field))?),+ })
            }
        }
    )+ };
}

records! {
    Outer = "hyperprotobench.M3" {
        f1: u64, f2: bool, f3: i32, f4: Text<'static>, f5: Text<'static>, f6: Record<'static>,
        f7: Text<'static>, f8: i32, f9: i32, f10: i32, f11: Record<'static>, f12: i64, f13: u64,
        f14: Record<'static>,
    }
    M4 = "hyperprotobench.M3.M4" { f1: i32, f2: u64 }
    M5 = "hyperprotobench.M3.M5" { f1: List<'static>, f2: i32 }
    M6 = "hyperprotobench.M3.M6" { f1: bool, f2: bool, f3: i64, f4: i32, f5: u64 }
}

/// All fields of M3 and of the records in it.
pub(super) struct M3 {
    outer: Outer,
    m4: M4,
    m5: M5,
    m6: M6,
}

impl M3 {
    pub(super) fn new(processor: &Processor) -> Result<M3, FieldError> {
        Ok(M3 {
            outer: Outer::new(processor)?,
            m4: M4::new(processor)?,
            m5: M5::new(processor)?,
            m6: M6::new(processor)?,
        })
    }

    /// Reads every field: numbers are summed, of strings the first and last byte are looked at.
    pub(super) fn read(&self, record: Record<'_>) -> u64 {
        let Self { outer, m4, m5, m6 } = self;
        let mut sum = 0u64;
        macro_rules! add {
            ($record:ident, $of:ident: $($field:ident),+) => {
                $(if let Some(value) = $record.read(&$of.$field) {
                    sum = sum.wrapping_add(value as u64);
                })+
            };
        }
        add!(record, outer: f1, f2, f3, f8, f9, f10, f12, f13);
        for text in [&outer.f4, &outer.f5, &outer.f7] {
            if let Some(text) = record.read(text) {
                sum = sum.wrapping_add(ends(text.as_bytes()));
            }
        }
        if let Some(inner) = record.read(&outer.f6) {
            add!(inner, m4: f1, f2);
        }
        if let Some(inner) = record.read(&outer.f11) {
            if let Some(list) = inner.read(&m5.f1) {
                for element in list.iter() {
                    sum = sum.wrapping_add(read_one(element));
                }
            }
            add!(inner, m5: f2);
        }
        if let Some(inner) = record.read(&outer.f14) {
            add!(inner, m6: f1, f2, f3, f4, f5);
        }
        sum
    }
}
