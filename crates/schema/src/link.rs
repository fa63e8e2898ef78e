//! From parsed descriptors to a [`Schema`]: names resolved to indices, features to what they mean.

use crate::descriptor::{EnumType, FieldType, File, MessageType, ServiceType};
use crate::features::{Features, Presence};
use crate::schema::{Enum, EnumValue, Field, Message, Method, Role, Schema, Service};
use crate::{SchemaError, literal};
use std::collections::HashMap;
use tollfree_layout::table::{Kind, Label, MAX_NUMBER};

/// Field types and labels, as descriptor.proto numbers them.
const TYPE_GROUP: u64 = 10;
const TYPE_MESSAGE: u64 = 11;
const TYPE_ENUM: u64 = 14;
const LABEL_REQUIRED: u64 = 2;
const LABEL_REPEATED: u64 = 3;

#[derive(Clone, Copy)]
enum Target {
    Message(usize),
    Enum(usize),
}

struct Linker<'a> {
    schema: Schema,
    names: HashMap<String, Target>,
    /// Each message with the features that hold in it, by index.
    pending: Vec<(&'a MessageType, Features)>,
}

pub(crate) fn link(files: &[File]) -> Result<Schema, SchemaError> {
    let mut linker = Linker { schema: Schema::default(), names: HashMap::new(), pending: Vec::new() };
    for file in files {
        let features = Features::of_file(file)?;
        for message in &file.messages {
            linker.declare_message(&file.package, message, features)?;
        }
        for item in &file.enums {
            linker.declare_enum(&file.package, item, features)?;
        }
    }
    for idx in 0..linker.pending.len() {
        linker.define_message(idx)?;
    }
    for file in files {
        for service in &file.services {
            linker.define_service(&file.package, service)?;
        }
    }
    Ok(linker.schema)
}

fn join(scope: &str, name: &str) -> String {
    if scope.is_empty() { name.to_owned() } else { format!("{scope}.{name}") }
}

impl<'a> Linker<'a> {
    fn declare(&mut self, name: &str, target: Target) -> Result<(), SchemaError> {
        match self.names.insert(name.to_owned(), target) {
            None => Ok(()),
            Some(_) => Err(SchemaError::Duplicate { name: name.to_owned() }),
        }
    }

    fn declare_message(
        &mut self,
        scope: &str,
        message: &'a MessageType,
        outer: Features,
    ) -> Result<(), SchemaError> {
        let name = join(scope, &message.name);
        let features = outer.with(&message.features);
        self.declare(&name, Target::Message(self.schema.messages.len()))?;
        let role = if message.map_entry { Role::MapEntry } else { Role::Plain };
        self.schema.messages.push(Message { name: name.clone(), role, ..Message::default() });
        self.pending.push((message, features));
        for nested in &message.nested {
            self.declare_message(&name, nested, features)?;
        }
        for item in &message.enums {
            self.declare_enum(&name, item, features)?;
        }
        Ok(())
    }

    fn declare_enum(&mut self, scope: &str, item: &EnumType, outer: Features) -> Result<(), SchemaError> {
        let name = join(scope, &item.name);
        self.declare(&name, Target::Enum(self.schema.enums.len()))?;
        let values = item
            .values
            .iter()
            .map(|(name, number)| EnumValue { name: name.clone(), number: *number })
            .collect();
        self.schema.enums.push(Enum { name, closed: outer.with(&item.features).closed, values });
        Ok(())
    }

    fn define_message(&mut self, idx: usize) -> Result<(), SchemaError> {
        let (message, features) = self.pending[idx];
        let name = self.schema.messages[idx].name.clone();
        // A oneof that only carries a proto3 `optional` field is spelling, not structure.
        let mut is_real = vec![false; message.oneofs.len()];
        for at in message.fields.iter().filter(|f| !f.proto3_optional).filter_map(|f| f.oneof_index) {
            is_real.get_mut(at).into_iter().for_each(|real| *real = true);
        }
        let real_oneofs: Vec<usize> = (0..is_real.len()).filter(|at| is_real[*at]).collect();
        let mut fields = Vec::with_capacity(message.fields.len());
        for field in &message.fields {
            let mut around = features;
            let mut oneof_idx = None;
            if let Some(at) = field.oneof_index {
                let oneof = message.oneofs.get(at).ok_or_else(|| SchemaError::Invalid {
                    name: join(&name, &field.name),
                    problem: format!("oneof {at} does not exist"),
                })?;
                around = around.with(&oneof.features);
                // In ascending order.
                oneof_idx = real_oneofs.binary_search(&at).ok();
            }
            fields.push(self.field(&name, field, around, message.map_entry, oneof_idx)?);
        }
        let out = &mut self.schema.messages[idx];
        out.fields = fields;
        out.oneofs = real_oneofs.iter().map(|at| message.oneofs[*at].name.clone()).collect();
        Ok(())
    }

    fn field(
        &self,
        scope: &str,
        field: &FieldType,
        around: Features,
        in_entry: bool,
        oneof_idx: Option<usize>,
    ) -> Result<Field, SchemaError> {
        let name = join(scope, &field.name);
        let invalid =
            |problem: &str| SchemaError::Invalid { name: name.clone(), problem: problem.to_owned() };
        let features = around.with(&field.features);
        let number = u32::try_from(field.number).ok().filter(|number| (1..=MAX_NUMBER).contains(number));
        let number = number.ok_or_else(|| invalid("its number is not between 1 and 2^29 - 1"))?;
        let (kind, target_idx) = self.kind(&name, field)?;
        let is_map = target_idx
            .filter(|_| kind == Kind::Message)
            .is_some_and(|idx| self.schema.messages[idx].role == Role::MapEntry);
        let label = match field.label {
            LABEL_REPEATED if is_map => Label::Map,
            LABEL_REPEATED => Label::List,
            _ if is_map => return Err(invalid("a map entry is repeated")),
            LABEL_REQUIRED => Label::Required,
            _ if in_entry || oneof_idx.is_some() || field.proto3_optional => Label::Explicit,
            _ => match features.presence {
                Presence::Required => Label::Required,
                Presence::Implicit if kind != Kind::Message => Label::Implicit,
                _ => Label::Explicit,
            },
        };
        let default = match &field.default_value {
            None => None,
            Some(text) => Some(self.default(kind, target_idx, text).ok_or_else(|| {
                invalid(&format!("its default \"{}\" does not fit its type", text.escape_ascii()))
            })?),
        };
        Ok(Field {
            number,
            json_name: field.json_name.clone().unwrap_or_else(|| json_name(&field.name)),
            name: field.name.clone(),
            kind,
            label,
            target_idx,
            oneof_idx,
            packed: label == Label::List && kind.is_scalar() && field.packed.unwrap_or(features.packed),
            delimited: field.kind == TYPE_GROUP
                || kind == Kind::Message && features.delimited && !is_map && !in_entry,
            utf8: kind == Kind::String && features.utf8,
            set: false,
            sent: false,
            function: false,
            default,
        })
    }

    fn kind(&self, name: &str, field: &FieldType) -> Result<(Kind, Option<usize>), SchemaError> {
        if !matches!(field.kind, 0 | TYPE_GROUP | TYPE_MESSAGE | TYPE_ENUM) {
            let kind = u8::try_from(field.kind).ok().filter(|number| *number <= 18);
            let kind = kind.and_then(Kind::from_number).ok_or_else(|| SchemaError::Invalid {
                name: name.to_owned(),
                problem: format!("field type {} is not known", field.kind),
            })?;
            return Ok((kind, None));
        }
        match self.resolve(name, &field.type_name)? {
            Target::Message(idx) if field.kind != TYPE_ENUM => Ok((Kind::Message, Some(idx))),
            Target::Enum(idx) if matches!(field.kind, 0 | TYPE_ENUM) => Ok((Kind::Enum, Some(idx))),
            _ => Err(SchemaError::Invalid {
                name: name.to_owned(),
                problem: format!("{} is not of the kind that the field says", field.type_name),
            }),
        }
    }

    /// Compilers write full names with a leading dot; nothing else is looked for.
    fn resolve(&self, user: &str, type_name: &str) -> Result<Target, SchemaError> {
        let full = type_name.strip_prefix('.').unwrap_or(type_name);
        self.names.get(full).copied().ok_or_else(|| SchemaError::UnknownType {
            field: user.to_owned(),
            type_name: type_name.to_owned(),
        })
    }

    fn default(&self, kind: Kind, target_idx: Option<usize>, text: &[u8]) -> Option<Vec<u8>> {
        literal::parse(kind, text, |value_name| {
            let item = self.schema.enums.get(target_idx?)?;
            item.values.iter().find(|value| value.name == value_name).map(|value| value.number)
        })
    }

    fn define_service(&mut self, package: &str, service: &ServiceType) -> Result<(), SchemaError> {
        let name = join(package, &service.name);
        let message = |type_name: &str| match self.resolve(&name, type_name)? {
            Target::Message(idx) => Ok(idx),
            Target::Enum(_) => Err(SchemaError::Invalid {
                name: name.clone(),
                problem: format!("{type_name} is not a message"),
            }),
        };
        let mut methods = Vec::with_capacity(service.methods.len());
        for method in &service.methods {
            methods.push(Method {
                name: method.name.clone(),
                input_idx: message(&method.input)?,
                output_idx: message(&method.output)?,
                client_streaming: method.client_streaming,
                server_streaming: method.server_streaming,
                oneway: false,
            });
        }
        self.schema.services.push(Service { name, methods });
        Ok(())
    }
}

/// protobuf's JSON name: underscores go, the letter after each becomes upper case.
fn json_name(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut upper = false;
    for letter in name.chars() {
        if letter == '_' {
            upper = true;
        } else {
            out.push(if upper { letter.to_ascii_uppercase() } else { letter });
            upper = false;
        }
    }
    out
}
