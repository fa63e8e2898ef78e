//! What is generated of one field: where it lies, how it is read, how it is set.

use proc_macro2::TokenStream;
use prost_types::FieldDescriptorProto;
use quote::{format_ident, quote};
use tollfree_schema::{FieldRow, Kind, Label};

use super::tree::{Scope, type_ident};
use super::{Types, field_type};

/// What a field, element, key or value is in generated code.
pub(super) struct Value {
    /// The processor's word for it.
    pub(super) kind: TokenStream,
    /// The type of its value, borrowing for this lifetime.
    ty: Box<dyn Fn(&TokenStream) -> TokenStream>,
    pub(super) borrows: bool,
    /// The type that changes it, if it is a message.
    pub(super) edits: Option<TokenStream>,
}

impl Value {
    /// The type of the value, borrowing for `lifetime`.
    pub(super) fn ty(&self, lifetime: &TokenStream) -> TokenStream {
        (self.ty)(lifetime)
    }
}

/// The value of a row, whose type has this descriptor, seen from a module.
pub(super) fn value(
    types: &Types<'_>,
    row: &FieldRow,
    descriptor: &FieldDescriptorProto,
    from: &Scope,
) -> Value {
    let typed = quote!(::tollfree_processor::typed);
    let plain = |kind: TokenStream, ty: TokenStream| Value {
        kind,
        ty: Box::new(move |_| ty.clone()),
        borrows: false,
        edits: None,
    };
    let scalar = |name: &str| {
        let name = format_ident!("{name}");
        plain(quote!(#name), quote!(#name))
    };
    match row.kind {
        Kind::Double => scalar("f64"),
        Kind::Float => scalar("f32"),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => scalar("i64"),
        Kind::Uint64 | Kind::Fixed64 => scalar("u64"),
        Kind::Uint32 | Kind::Fixed32 => scalar("u32"),
        Kind::Bool => scalar("bool"),
        Kind::Enum => match types.enums.get(field_type(descriptor)) {
            Some(found) => {
                let path = from.path_to(&found.scope, &type_ident(found.descriptor.name()));
                plain(quote!(#typed::Enum<#path>), path)
            }
            None => scalar("i32"),
        },
        Kind::String if row.has(FieldRow::UTF8) => Value {
            kind: quote!(#typed::Str),
            ty: Box::new(|lifetime| quote!(&#lifetime str)),
            borrows: true,
            edits: None,
        },
        Kind::String => Value {
            kind: quote!(#typed::UncheckedStr),
            ty: Box::new(|lifetime| quote!(::tollfree_processor::Text<#lifetime>)),
            borrows: true,
            edits: None,
        },
        Kind::Bytes => Value {
            kind: quote!(#typed::Bytes),
            ty: Box::new(|lifetime| quote!(&#lifetime [u8])),
            borrows: true,
            edits: None,
        },
        Kind::Message => message(types, descriptor, from),
        // Protobuf has no narrower ones.
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 | Kind::I8 | Kind::I16 => scalar("i32"),
    }
}

fn message(types: &Types<'_>, descriptor: &FieldDescriptorProto, from: &Scope) -> Value {
    let Some(found) = types.messages.get(field_type(descriptor)) else {
        unreachable!("the table has all types of the set, or would not have been compiled");
    };
    let path = |ident: &_| from.path_to(&found.scope, ident);
    let (view, edits) = (path(&found.view), path(&found.edit));
    let name = path(&type_ident(found.descriptor.name()));
    Value {
        kind: quote!(::tollfree_processor::typed::Msg<#name>),
        ty: Box::new(move |lifetime| quote!(#view<#lifetime>)),
        borrows: true,
        edits: Some(edits),
    }
}

/// How often the field occurs, with what it holds.
pub(super) enum Shape {
    One(Value),
    Many(Value),
    Pairs(Value, Value),
}

/// The shape of a field.
pub(super) fn shape(
    types: &Types<'_>,
    row: &FieldRow,
    descriptor: &FieldDescriptorProto,
    from: &Scope,
) -> Shape {
    match row.label {
        Label::List => Shape::Many(value(types, row, descriptor, from)),
        Label::Map => {
            let rows = types.table.fields_of(row.aux_idx);
            let fields = types.messages.get(field_type(descriptor)).map(|found| &found.descriptor.field);
            let of = |idx: usize| {
                let empty = FieldDescriptorProto::default();
                let number = rows[idx].number as i32;
                let found = fields.and_then(|fields| fields.iter().find(|field| field.number() == number));
                value(types, &rows[idx], found.unwrap_or(&empty), from)
            };
            Shape::Pairs(of(0), of(1))
        }
        _ => Shape::One(value(types, row, descriptor, from)),
    }
}
