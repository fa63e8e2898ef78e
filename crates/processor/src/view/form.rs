//! What readers need of each field, derived once from the table.

use crate::plan::FieldPlan;
use tollfree_layout::table::{Kind, Label};

/// What a slot or an element is to readers: one of [`super::Value`]'s variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Form {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U32,
    U64,
    F32,
    F64,
    Enum,
    String,
    Bytes,
    Message,
    /// A map, too.
    List,
}

impl Form {
    /// The form of one value.
    pub(crate) fn of(kind: Kind) -> Form {
        match kind {
            Kind::Double => Form::F64,
            Kind::Float => Form::F32,
            Kind::Int64 | Kind::Sfixed64 | Kind::Sint64 => Form::I64,
            Kind::Uint64 | Kind::Fixed64 => Form::U64,
            Kind::Int32 | Kind::Sfixed32 | Kind::Sint32 => Form::I32,
            Kind::Uint32 | Kind::Fixed32 => Form::U32,
            Kind::Bool => Form::Bool,
            Kind::String => Form::String,
            Kind::Bytes => Form::Bytes,
            Kind::Enum => Form::Enum,
            Kind::I8 => Form::I8,
            Kind::I16 => Form::I16,
            Kind::Message => Form::Message,
        }
    }

    /// The form of a field's slot.
    pub(crate) fn of_slot(kind: Kind, label: Label) -> Form {
        if label.is_list() { Form::List } else { Form::of(kind) }
    }
}

/// One field, as a reader of all fields sees it.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct FieldView {
    pub slot_off: u32,
    pub form: Form,
}

const _: () = assert!(size_of::<FieldView>() == 8);

impl FieldView {
    pub(crate) fn new(field: &FieldPlan) -> FieldView {
        FieldView { slot_off: field.slot_off, form: field.form }
    }
}
