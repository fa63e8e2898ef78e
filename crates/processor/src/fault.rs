//! From where the engine stopped to an error that people can read.

use crate::decode::{Frame, MERGED};
use crate::limits::DecodeError;
use crate::plan::Plan;
use std::borrow::Cow;
use tollfree_layout::table::{Table, Text};

/// What went wrong, as the engine notes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    Truncated,
    Varint,
    Tag,
    Utf8,
    Depth,
    Fields,
    Required,
    Room(usize),
    /// What only Thrift has: see the errors of the same names.
    TypeCode,
    Element,
    Length,
    Bool,
    FieldId,
    Union,
}

/// Where and why the engine stopped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    pub why: Why,
    pub offset: usize,
    pub type_idx: u32,
    /// Place of the field among its type's; none if the tag is not known.
    pub field_idx: Option<u32>,
    /// Which element of it, if it is a list and one of its elements is wrong.
    pub element_idx: Option<u32>,
}

/// One step of a path: a field of a type, and which element of it.
pub(crate) struct Step {
    pub type_idx: u32,
    pub field_idx: u32,
    pub element_idx: Option<u32>,
}

/// A longer name is cut in a path, in bytes.
const NAME_LEN_MAX: u32 = 256;
/// Where a path has become longer than this, steps up to the last one are left out, in bytes.
const PATH_LEN_MAX: usize = 2048;

/// A name of the table, cut if it is too long. (A table that came from elsewhere may have names of megabytes, and a path leads
/// through hundreds of them.)
fn name_of(table: &Table, name: Text) -> Cow<'_, str> {
    if name.len <= NAME_LEN_MAX {
        return table.text(name).into();
    }
    let cut = String::from_utf8_lossy(table.text_bytes(Text { len: NAME_LEN_MAX, ..name }));
    format!("{}…", cut.trim_end_matches(char::REPLACEMENT_CHARACTER)).into()
}

/// `Type.outer.inner[3].name`.
pub(crate) fn path(plan: &Plan, root: u32, steps: &[Step]) -> String {
    let table = &plan.table;
    let mut out = name_of(table, table.types()[root as usize].name).into_owned();
    let mut is_cut = false;
    for (idx, step) in steps.iter().enumerate() {
        if out.len() > PATH_LEN_MAX && idx + 1 < steps.len() {
            if !std::mem::replace(&mut is_cut, true) {
                out.push_str(".…");
            }
            continue;
        }
        out.push('.');
        out.push_str(&name_of(table, table.fields_of(step.type_idx)[step.field_idx as usize].name));
        if let Some(idx) = step.element_idx {
            out.push_str(&format!("[{idx}]"));
        }
    }
    out
}

/// The steps to the message that `frames` lead to from the root.
pub(crate) fn steps(frames: &[Frame]) -> Vec<Step> {
    let step = |frame: &Frame| Step {
        type_idx: frame.type_idx,
        field_idx: frame.field_idx,
        element_idx: (frame.element_idx < MERGED).then_some(frame.element_idx),
    };
    frames.iter().map(step).collect()
}

/// The error for a fault. `frames` lead from the root to the message in which it happened.
pub(crate) fn explain(
    plan: &Plan,
    root: u32,
    frames: &[Frame],
    fault: &Fault,
    limits: &crate::Limits,
) -> DecodeError {
    let mut steps = steps(frames);
    if let Some(field_idx) = fault.field_idx {
        steps.push(Step { type_idx: fault.type_idx, field_idx, element_idx: fault.element_idx });
    }
    error(fault.why, path(plan, root, &steps), fault.offset, limits)
}

/// The error for a reason.
pub(crate) fn error(why: Why, path: String, offset: usize, limits: &crate::Limits) -> DecodeError {
    match why {
        Why::Truncated => DecodeError::Truncated { path, offset },
        Why::Varint => DecodeError::Varint { path, offset },
        Why::Tag => DecodeError::Tag { path, offset },
        Why::Utf8 => DecodeError::Utf8 { path, offset },
        Why::Depth => DecodeError::Limit { path, offset, what: "levels of messages", limit: limits.depth },
        Why::Fields => DecodeError::Limit { path, offset, what: "fields", limit: limits.fields },
        Why::Required => DecodeError::Required { path, offset },
        Why::TypeCode => DecodeError::TypeCode { path, offset },
        Why::Element => DecodeError::Element { path, offset },
        Why::Length => DecodeError::Length { path, offset },
        Why::Bool => DecodeError::Bool { path, offset },
        Why::FieldId => DecodeError::FieldId { path, offset },
        Why::Union => DecodeError::Union { path, offset },
        Why::Room(need) => DecodeError::ArenaExhausted { path, offset, need },
    }
}
