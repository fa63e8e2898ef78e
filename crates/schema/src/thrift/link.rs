//! From parsed files to the description: names are resolved, containers in containers get boxes and entries.

use super::IdlFile;
use crate::SchemaError;
use crate::schema::{Enum, EnumValue, Field, Message, Role, Schema};
use pilota_thrift_parser as idl;
use std::collections::HashMap;
use tollfree_layout::table::{Kind, Label};

/// Typedefs of typedefs, and constants that name constants: beyond it they go round in a circle.
const LONGEST_CHAIN: usize = 64;

/// What a type is, behind all typedefs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shape {
    Scalar(Kind),
    Enum(usize),
    Struct(usize),
    List { elem: Box<Shape>, set: bool },
    Map { key: Box<Shape>, value: Box<Shape> },
}

/// Where in a file something stands: keyword and name of the definition, then names inside it.
#[derive(Clone, Copy)]
pub(super) struct Place<'p> {
    pub file_idx: usize,
    pub keyword: &'p str,
    pub name: &'p str,
    pub members: &'p [&'p str],
}

type Defined<'f, T> = HashMap<(usize, &'f str), T>;

pub(super) struct IdlLinker<'f> {
    pub files: &'f [IdlFile],
    pub schema: Schema,
    pub structs: Defined<'f, usize>,
    pub enums: Defined<'f, usize>,
    pub consts: Defined<'f, &'f idl::Constant>,
    pub services: Defined<'f, &'f idl::Service>,
    typedefs: Defined<'f, &'f idl::Type>,
    /// Boxes and entries, by name.
    containers: HashMap<String, usize>,
}

/// Brings the definitions of all files together; the first file's come first.
pub(crate) fn link(files: &[IdlFile]) -> Result<Schema, SchemaError> {
    let mut linker = IdlLinker {
        files,
        schema: Schema::default(),
        structs: HashMap::new(),
        enums: HashMap::new(),
        consts: HashMap::new(),
        services: HashMap::new(),
        typedefs: HashMap::new(),
        containers: HashMap::new(),
    };
    for (file_idx, file) in files.iter().enumerate() {
        for item in &file.items {
            linker.declare(file_idx, item)?;
        }
    }
    linker.no_name_twice()?;
    for (file_idx, file) in files.iter().enumerate() {
        for item in &file.items {
            if let Some((keyword, item, role)) = struct_like(item) {
                linker.fields_of(file_idx, keyword, item, role)?;
            }
        }
    }
    linker.all_services()?;
    linker.error_reply();
    Ok(linker.schema)
}

fn struct_like(item: &idl::Item) -> Option<(&'static str, &idl::StructLike, Role)> {
    Some(match item {
        idl::Item::Struct(item) => ("struct", item, Role::Plain),
        idl::Item::Union(item) => ("union", item, Role::Union),
        idl::Item::Exception(item) => ("exception", item, Role::Exception),
        _ => return None,
    })
}

impl<'f> IdlLinker<'f> {
    pub(super) fn error(&self, place: Place<'_>, problem: impl Into<String>) -> SchemaError {
        let file = &self.files[place.file_idx];
        let line = match place.keyword {
            "typedef" | "const" => file.words.alias_line(place.keyword, place.name),
            _ => file.words.line(place.keyword, place.name, place.members),
        };
        file.error(line, problem)
    }

    fn declare(&mut self, file_idx: usize, item: &'f idl::Item) -> Result<(), SchemaError> {
        let stem = &self.files[file_idx].stem;
        let (keyword, name, twice) = match item {
            idl::Item::Typedef(item) => {
                let name = item.alias.as_str();
                ("typedef", name, self.typedefs.insert((file_idx, name), &item.r#type).is_some())
            }
            idl::Item::Constant(item) => {
                let name = item.name.as_str();
                ("const", name, self.consts.insert((file_idx, name), item).is_some())
            }
            idl::Item::Service(item) => {
                let name = item.name.as_str();
                ("service", name, self.services.insert((file_idx, name), item).is_some())
            }
            idl::Item::Enum(item) => {
                let name = item.name.as_str();
                let values = self.enum_values(file_idx, item)?;
                let idx = self.schema.enums.len();
                self.schema.enums.push(Enum { name: format!("{stem}.{name}"), closed: false, values });
                ("enum", name, self.enums.insert((file_idx, name), idx).is_some())
            }
            _ => {
                let Some((keyword, item, role)) = struct_like(item) else { return Ok(()) };
                let name = item.name.as_str();
                let idx = self.schema.messages.len();
                let message = Message { name: format!("{stem}.{name}"), role, ..Message::default() };
                self.schema.messages.push(message);
                (keyword, name, self.structs.insert((file_idx, name), idx).is_some())
            }
        };
        let types = [
            self.typedefs.contains_key(&(file_idx, name)),
            self.enums.contains_key(&(file_idx, name)),
            self.structs.contains_key(&(file_idx, name)),
        ];
        if twice || types.into_iter().filter(|there| *there).count() > 1 {
            let place = Place { file_idx, keyword, name, members: &[] };
            return Err(self.error(place, format!("{name} is defined twice in this file")));
        }
        Ok(())
    }

    /// Files of one name in different directories may not define the same type.
    fn no_name_twice(&self) -> Result<(), SchemaError> {
        let mut seen = std::collections::HashSet::new();
        let messages = self.schema.messages.iter().map(|message| &message.name);
        for name in messages.chain(self.schema.enums.iter().map(|item| &item.name)) {
            if !seen.insert(name) {
                return Err(SchemaError::Duplicate { name: name.clone() });
            }
        }
        Ok(())
    }

    fn enum_values(&self, file_idx: usize, item: &idl::Enum) -> Result<Vec<EnumValue>, SchemaError> {
        let mut values: Vec<EnumValue> = Vec::with_capacity(item.values.len());
        let mut next = 0i64;
        for value in &item.values {
            let number = value.value.map_or(next, |number| number.0);
            let place = Place {
                file_idx,
                keyword: "enum",
                name: item.name.as_str(),
                members: &[value.name.as_str()],
            };
            let Ok(narrow) = i32::try_from(number) else {
                return Err(self.error(place, format!("{number} does not fit into 32 bits")));
            };
            if values.iter().any(|other| other.name == value.name.as_str()) {
                return Err(self.error(place, format!("{} is defined twice", value.name.as_str())));
            }
            values.push(EnumValue { name: value.name.to_string(), number: narrow });
            next = number + 1;
        }
        Ok(values)
    }

    fn fields_of(
        &mut self,
        file_idx: usize,
        keyword: &str,
        item: &idl::StructLike,
        role: Role,
    ) -> Result<(), SchemaError> {
        let place = Place { file_idx, keyword, name: item.name.as_str(), members: &[] };
        let fields = self.fields(place, &item.fields, role != Role::Union)?;
        let idx = self.structs[&(file_idx, item.name.as_str())];
        self.schema.messages[idx].fields = fields;
        Ok(())
    }

    /// Describes fields; `requiredness` counts unless they are a union's or a function's.
    pub(super) fn fields(
        &mut self,
        place: Place<'_>,
        fields: &[idl::Field],
        requiredness: bool,
    ) -> Result<Vec<Field>, SchemaError> {
        let mut out: Vec<Field> = Vec::with_capacity(fields.len());
        for item in fields {
            let name = item.name.as_str();
            let members: Vec<&str> = place.members.iter().copied().chain([name]).collect();
            let here = Place { members: &members, ..place };
            let number = u32::try_from(item.id).ok().filter(|id| *id > 0).ok_or_else(|| {
                self.error(
                    here,
                    format!("field {name} has the id {}; only ids from 1 are supported", item.id),
                )
            })?;
            if let Some(other) = out.iter().find(|other| other.number == number || other.name == name) {
                let problem = format!("{name} and {} have the same id or name", other.name);
                return Err(self.error(here, problem));
            }
            let shape = self.shape(here, &item.ty, 0)?;
            let mut field = Field::new(number, name, Kind::Bool, Label::Explicit);
            self.describe(&mut field, &shape);
            if requiredness && item.attribute == idl::Attribute::Required {
                match field.label {
                    Label::List | Label::Map => field.sent = true,
                    _ => field.label = Label::Required,
                }
            }
            if let Some(value) = &item.default {
                field.default = self.default(here, value, &shape)?;
            }
            out.push(field);
        }
        Ok(out)
    }

    /// File and name that a path leads to: `Name`, or `file.Name`.
    pub(super) fn split<'p>(&self, file_idx: usize, path: &'p [idl::Ident]) -> Option<(usize, &'p str)> {
        match path {
            [name] => Some((file_idx, name.as_str())),
            [file, name] => {
                let included = *self.files[file_idx].includes.get(file.as_str())?;
                Some((included, name.as_str()))
            }
            _ => None,
        }
    }

    /// What `ty` is, behind all typedefs.
    pub(super) fn shape(&self, place: Place<'_>, ty: &idl::Type, chain: usize) -> Result<Shape, SchemaError> {
        let inner = |ty: &idl::Type| self.shape(place, ty, chain).map(Box::new);
        Ok(match &ty.0 {
            idl::Ty::Bool => Shape::Scalar(Kind::Bool),
            idl::Ty::Byte | idl::Ty::I8 => Shape::Scalar(Kind::I8),
            idl::Ty::I16 => Shape::Scalar(Kind::I16),
            idl::Ty::I32 => Shape::Scalar(Kind::Int32),
            idl::Ty::I64 => Shape::Scalar(Kind::Int64),
            idl::Ty::Double => Shape::Scalar(Kind::Double),
            idl::Ty::String => Shape::Scalar(Kind::String),
            idl::Ty::Binary => Shape::Scalar(Kind::Bytes),
            idl::Ty::Uuid => return Err(self.error(place, "fields of type uuid are not supported")),
            idl::Ty::Void => return Err(self.error(place, "void is no type of a field")),
            idl::Ty::List { value, .. } => Shape::List { elem: inner(value)?, set: false },
            idl::Ty::Set { value, .. } => Shape::List { elem: inner(value)?, set: true },
            idl::Ty::Map { key, value, .. } => Shape::Map { key: inner(key)?, value: inner(value)? },
            idl::Ty::Path(path) => {
                let spelled = path.segments.iter().map(|part| part.as_str()).collect::<Vec<_>>().join(".");
                let Some(found) = self.split(place.file_idx, &path.segments) else {
                    return Err(self.error(place, format!("{spelled} is in no included file")));
                };
                if let Some(idx) = self.structs.get(&found) {
                    Shape::Struct(*idx)
                } else if let Some(idx) = self.enums.get(&found) {
                    Shape::Enum(*idx)
                } else if let Some(target) = self.typedefs.get(&found) {
                    let there = Place { file_idx: found.0, keyword: "typedef", name: found.1, members: &[] };
                    if chain == LONGEST_CHAIN {
                        return Err(self.error(there, format!("typedef {spelled} leads back to itself")));
                    }
                    self.shape(there, target, chain + 1)?
                } else {
                    return Err(self.error(place, format!("type {spelled} is not defined")));
                }
            }
        })
    }

    /// Writes a shape into a field.
    pub(super) fn describe(&mut self, field: &mut Field, shape: &Shape) {
        match shape {
            Shape::Scalar(kind) => {
                field.kind = *kind;
                field.utf8 = *kind == Kind::String;
            }
            Shape::Enum(idx) => (field.kind, field.target_idx) = (Kind::Enum, Some(*idx)),
            Shape::Struct(idx) => (field.kind, field.target_idx) = (Kind::Message, Some(*idx)),
            Shape::List { elem, set } => {
                match **elem {
                    Shape::List { .. } | Shape::Map { .. } => {
                        field.kind = Kind::Message;
                        field.target_idx = Some(self.container(elem, Role::Box, &[("elements", elem)]));
                    }
                    _ => self.describe(field, elem),
                }
                (field.label, field.set) = (Label::List, *set);
            }
            Shape::Map { key, value } => {
                field.kind = Kind::Message;
                let parts: [(&str, &Shape); 2] = [("key", key), ("value", value)];
                field.target_idx = Some(self.container(shape, Role::MapEntry, &parts));
                field.label = Label::Map;
            }
        }
    }

    /// The box around a container, or the entry of a map; one for each container's type.
    fn container(&mut self, shape: &Shape, role: Role, parts: &[(&str, &Shape)]) -> usize {
        let name = match role {
            Role::Box => format!("box<{}>", self.spell(shape)),
            _ => self.spell(shape),
        };
        if let Some(idx) = self.containers.get(&name) {
            return *idx;
        }
        let idx = self.schema.messages.len();
        self.containers.insert(name.clone(), idx);
        self.schema.messages.push(Message { name, role, ..Message::default() });
        let mut fields = Vec::with_capacity(parts.len());
        for (number, (name, shape)) in (1..).zip(parts) {
            let mut field = Field::new(number, name, Kind::Bool, Label::Explicit);
            self.describe(&mut field, shape);
            fields.push(field);
        }
        self.schema.messages[idx].fields = fields;
        idx
    }

    /// A shape as it is written in IDL, with full names.
    fn spell(&self, shape: &Shape) -> String {
        match shape {
            Shape::Scalar(kind) => match kind {
                Kind::Bool => "bool",
                Kind::I8 => "i8",
                Kind::I16 => "i16",
                Kind::Int32 => "i32",
                Kind::Int64 => "i64",
                Kind::Double => "double",
                Kind::Bytes => "binary",
                _ => "string",
            }
            .to_owned(),
            Shape::Enum(idx) => self.schema.enums[*idx].name.clone(),
            Shape::Struct(idx) => self.schema.messages[*idx].name.clone(),
            Shape::List { elem, set: false } => format!("list<{}>", self.spell(elem)),
            Shape::List { elem, set: true } => format!("set<{}>", self.spell(elem)),
            Shape::Map { key, value } => format!("map<{},{}>", self.spell(key), self.spell(value)),
        }
    }
}
