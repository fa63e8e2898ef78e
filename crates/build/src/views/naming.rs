//! Names that views add to those of a proto: of views, of what changes messages, of functions about fields. A name of the proto
//! itself is always had; what is added yields to it by an underscore at its end.

use std::collections::{HashMap, HashSet};

use heck::ToSnakeCase;
use proc_macro2::Ident;
use prost_types::DescriptorProto;
use tollfree_schema::{FieldRow, Kind, Label};

use super::fields::Shape;
use super::message::ViewField;
use super::tree::{Scope, field_ident, ident, type_ident};

/// Names that are taken in one place.
#[derive(Debug, Default)]
pub(super) struct Taken(HashSet<String>);

impl Taken {
    /// Takes a name of the proto.
    pub(super) fn take(&mut self, name: &Ident) {
        self.0.insert(name.to_string());
    }

    /// Takes the wanted name, with as many underscores behind it as make it free.
    pub(super) fn yielding(&mut self, wanted: &str) -> Ident {
        let mut name = wanted.to_owned();
        while !self.0.insert(ident(&name).to_string()) {
            name.push('_');
        }
        ident(&name)
    }
}

/// Names of types that are taken, by module.
#[derive(Debug, Default)]
pub(super) struct TakenTypes(HashMap<Scope, Taken>);

impl TakenTypes {
    pub(super) fn of(&mut self, scope: &Scope) -> &mut Taken {
        self.0.entry(scope.clone()).or_default()
    }
}

/// The type of a oneof, as prost names it: another than that of a type beside it.
pub(super) fn oneof_ident(message: &DescriptorProto, oneof: &str) -> Ident {
    let name = type_ident(oneof);
    let messages = message.nested_type.iter().map(|nested| nested.name());
    let mut nested = messages.chain(message.enum_type.iter().map(|nested| nested.name()));
    let is_taken = nested.any(|nested| type_ident(nested) == name);
    if is_taken { quote::format_ident!("{name}OneOf") } else { name }
}

/// Names of the functions about one field; `None` for a function that the field does not have.
#[derive(Debug, Default)]
pub(super) struct FieldNames {
    pub(super) has: Option<Ident>,
    pub(super) opt: Option<Ident>,
    pub(super) set: Option<Ident>,
    pub(super) change: Option<Ident>,
    pub(super) clear: Option<Ident>,
}

/// Names all functions about the fields of a message, whose oneofs have these names.
pub(super) fn name_functions<'n>(fields: &mut [ViewField<'_>], oneofs: impl Iterator<Item = &'n str>) {
    let (mut view, mut edit) = (Taken::default(), Taken::default());
    oneofs.for_each(|oneof| view.take(&field_ident(oneof)));
    fields.iter().for_each(|field| view.take(&field.getter));
    let is_one = |field: &ViewField<'_>| matches!(field.shape, Shape::One(_));
    let is_message = |row: &FieldRow| row.kind == Kind::Message;
    let has_presence = |field: &ViewField<'_>| is_one(field) && field.row.label != Label::Implicit;
    let snake = |field: &ViewField<'_>| field.descriptor.name().to_snake_case();
    for field in fields.iter_mut().filter(|field| has_presence(field)) {
        field.names.has = Some(view.yielding(&format!("has_{}", snake(field))));
    }
    for field in fields.iter_mut().filter(|field| has_presence(field) && !is_message(field.row)) {
        field.names.opt = Some(view.yielding(&format!("{}_opt", snake(field))));
    }
    for field in fields.iter_mut().filter(|field| is_one(field)) {
        field.names.set = Some(edit.yielding(&format!("set_{}", snake(field))));
    }
    for field in fields.iter_mut() {
        field.names.clear = Some(edit.yielding(&format!("clear_{}", snake(field))));
    }
    for field in fields.iter_mut().filter(|field| !is_one(field) || is_message(field.row)) {
        field.names.change = Some(edit.yielding(&format!("{}_mut", snake(field))));
    }
}
