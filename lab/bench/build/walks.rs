//! Writes the code that reads every field of a message, in prost's structs and in views, and builds a message with the same fields.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;

use heck::{ToSnakeCase, ToUpperCamelCase};
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet};

/// Where views are, seen from the crate.
const VIEWS: &str = "crate::objects::views";

/// The code for these messages, and for all that they reach.
pub(crate) fn text(set: &FileDescriptorSet, roots: &[&str]) -> String {
    let types = Types::of(set);
    let mut walks = String::new();
    let (mut waiting, mut seen) =
        (roots.iter().map(ToString::to_string).collect::<Vec<_>>(), BTreeSet::new());
    while let Some(name) = waiting.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        match (types.messages.get(&name), types.enums.contains_key(&name)) {
            (Some(message), _) => {
                types.message(&name, message, &mut walks);
                let fields = message.descriptor.field.iter();
                waiting.extend(fields.flat_map(|field| types.reaches(field)));
            }
            (None, true) => {
                let path = views(&name, "");
                let _ = writeln!(
                    walks,
                    "impl Read for {path} {{ #[inline] fn read(&self) -> u64 {{ self.0.read() }} }}"
                );
            }
            (None, false) => panic!("{name} is in no file"),
        }
    }
    walks
}

/// A message, and whether its fields have presence unless they say otherwise.
struct Found<'s> {
    descriptor: &'s DescriptorProto,
    proto2: bool,
}

struct Types<'s> {
    messages: HashMap<String, Found<'s>>,
    enums: HashMap<String, &'s EnumDescriptorProto>,
}

/// What a field holds.
enum Shape<'f> {
    /// A value that is always there.
    Plain,
    /// A value that may be absent.
    Optional,
    Message(&'f str),
    List,
    Messages(&'f str),
    /// A map; the type of its values if they are messages.
    Map(Option<&'f str>),
}

impl<'s> Types<'s> {
    fn of(set: &'s FileDescriptorSet) -> Types<'s> {
        let mut types = Types { messages: HashMap::new(), enums: HashMap::new() };
        for file in &set.file {
            let package = format!(".{}", file.package());
            types.enums.extend(file.enum_type.iter().map(|it| (format!("{package}.{}", it.name()), it)));
            for message in &file.message_type {
                types.add(&package, message, matches!(file.syntax(), "" | "proto2"));
            }
        }
        types
    }

    fn add(&mut self, around: &str, descriptor: &'s DescriptorProto, proto2: bool) {
        let name = format!("{around}.{}", descriptor.name());
        self.enums.extend(descriptor.enum_type.iter().map(|it| (format!("{name}.{}", it.name()), it)));
        for nested in &descriptor.nested_type {
            self.add(&name, nested, proto2);
        }
        self.messages.insert(name, Found { descriptor, proto2 });
    }

    /// The entries of the map that a field is, if it is one.
    fn entry(&self, field: &FieldDescriptorProto) -> Option<&'s DescriptorProto> {
        let found = self.messages.get(field.type_name())?;
        found
            .descriptor
            .options
            .as_ref()
            .is_some_and(|options| options.map_entry())
            .then_some(found.descriptor)
    }

    /// Messages and enums that a field's values are of.
    fn reaches(&self, field: &FieldDescriptorProto) -> Vec<String> {
        let of = |field: &FieldDescriptorProto| {
            matches!(field.r#type(), Type::Message | Type::Enum).then(|| field.type_name().to_owned())
        };
        match self.entry(field) {
            Some(entry) => entry.field.iter().filter_map(of).collect(),
            None => of(field).into_iter().collect(),
        }
    }

    fn shape<'f>(&self, field: &'f FieldDescriptorProto, proto2: bool) -> Shape<'f>
    where
        's: 'f,
    {
        let is_message = field.r#type() == Type::Message;
        match (self.entry(field), field.label()) {
            (Some(entry), _) => {
                let value = &entry.field[1];
                Shape::Map((value.r#type() == Type::Message).then(|| value.type_name()))
            }
            (None, Label::Repeated) if is_message => Shape::Messages(field.type_name()),
            (None, Label::Repeated) => Shape::List,
            _ if is_message => Shape::Message(field.type_name()),
            _ if proto2 || field.oneof_index.is_some() => Shape::Optional,
            _ => Shape::Plain,
        }
    }

    fn message(&self, name: &str, found: &Found<'_>, to: &mut String) {
        let (mut structs, mut views_read, mut build) = (String::new(), String::new(), String::new());
        for field in &found.descriptor.field {
            let (snake, getter) = (field.name().to_snake_case(), escaped(&field.name().to_snake_case()));
            let shape = self.shape(field, found.proto2);
            if field.oneof_index.is_none() || field.proto3_optional() {
                let _ = writeln!(structs, "sum = sum.wrapping_add(self.{getter}.read());");
            }
            let end = if matches!(shape, Shape::Optional) { "_opt" } else { "" };
            let read = if end.is_empty() { getter.clone() } else { format!("{snake}{end}") };
            let _ = writeln!(views_read, "sum = sum.wrapping_add(self.{read}().read());");
            let _ = writeln!(build, "{}", built(&snake, &read, &shape));
        }
        for (idx, oneof) in found.descriptor.oneof_decl.iter().enumerate() {
            structs.push_str(&oneof_read(name, found.descriptor, idx as i32, oneof.name()));
        }
        let (theirs, view, edit) = (theirs(name), views(name, "View"), views(name, "Mut"));
        let function = function(name);
        let body = "-> u64 { let mut sum = 0_u64;";
        let _ = write!(
            to,
            "impl Read for {theirs} {{ fn read(&self) {body}\n{structs}sum }} }}\n\
             impl Read for {view}<'_> {{ fn read(&self) {body}\n{views_read}sum }} }}\n\
             pub(crate) fn {function}(from: {view}<'_>, mut to: {edit}<'_>) -> Result<(), BuildError> {{\n{build}Ok(()) }}\n"
        );
    }
}

/// Takes one field over.
fn built(snake: &str, read: &str, shape: &Shape<'_>) -> String {
    match shape {
        Shape::Plain => format!("to.set_{snake}(from.{read}())?;"),
        Shape::Optional => format!("if let Some(value) = from.{read}() {{ to.set_{snake}(value)?; }}"),
        Shape::Message(ty) => {
            let build = function(ty);
            format!("if let Some(value) = from.{read}() {{ {build}(value, to.{snake}_mut()?)?; }}")
        }
        Shape::List => filled(snake, read, "to.extend(list)?;"),
        Shape::Messages(ty) => {
            filled(snake, read, &format!("for value in list {{ {}(value, to.push_new()?)?; }}", function(ty)))
        }
        Shape::Map(None) => filled(snake, read, "for (key, value) in list { to.insert(key, value)?; }"),
        Shape::Map(Some(ty)) => {
            let build = function(ty);
            let each = format!("for (key, value) in list {{ {build}(value, to.insert_new(key)?)?; }}");
            filled(snake, read, &each)
        }
    }
}

fn filled(snake: &str, read: &str, fill: &str) -> String {
    format!(
        "let list = from.{read}(); if !list.is_empty() {{ let mut to = to.{snake}_mut()?; to.reserve(list.len())?; {fill} }}"
    )
}

/// Reads a oneof of prost's.
fn oneof_read(name: &str, message: &DescriptorProto, idx: i32, oneof: &str) -> String {
    let members = message.field.iter().filter(|it| it.oneof_index == Some(idx) && !it.proto3_optional());
    let path = theirs(&format!("{name}.{oneof}"));
    let arms: String = members
        .map(|it| format!("Some({path}::{}(value)) => value.read(),", it.name().to_upper_camel_case()))
        .collect();
    if arms.is_empty() {
        return arms;
    }
    let field = escaped(&oneof.to_snake_case());
    format!("sum = sum.wrapping_add(match &self.{field} {{ {arms} None => 0 }});\n")
}

/// Modules and name of a type, as prost and views have them.
fn path(name: &str, end: &str) -> String {
    let (around, name) = name.rsplit_once('.').unwrap_or(("", name));
    let modules: String =
        around.split('.').skip(1).map(|part| format!("{}::", part.to_snake_case())).collect();
    format!("{modules}{}{end}", name.to_upper_camel_case())
}

fn theirs(name: &str) -> String {
    format!("crate::{}", path(name, ""))
}

fn views(name: &str, end: &str) -> String {
    format!("{VIEWS}::{}", path(name, end))
}

/// What builds such a message.
fn function(name: &str) -> String {
    format!("build{}", name.to_lowercase().replace('.', "_"))
}

/// A field's name: those that the language has itself are escaped.
fn escaped(name: &str) -> String {
    let taken = ["enum", "extern", "in", "match", "mod", "move", "ref", "struct", "type", "use"];
    if taken.contains(&name) { format!("r#{name}") } else { name.to_owned() }
}
