//! What can't be generated is refused before any code is, with the place in the proto.

use std::collections::{HashMap, HashSet};

use heck::{ToSnakeCase, ToUpperCamelCase};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, OneofDescriptorProto,
    ServiceDescriptorProto,
};

/// Numbers of fields in descriptor.proto, of which paths to places in a file are made.
pub(crate) mod number {
    pub(crate) const FILE_PACKAGE: i32 = 2;
    pub(crate) const FILE_MESSAGE: i32 = 4;
    pub(crate) const FILE_ENUM: i32 = 5;
    pub(crate) const FILE_SERVICE: i32 = 6;
    pub(crate) const MESSAGE_FIELD: i32 = 2;
    pub(crate) const MESSAGE_ONEOF: i32 = 8;
    pub(crate) const MESSAGE_NESTED: i32 = 3;
    pub(crate) const MESSAGE_ENUM: i32 = 4;
    pub(crate) const ENUM_VALUE: i32 = 2;
    pub(crate) const SERVICE_METHOD: i32 = 2;
}

/// Which code is generated beside messages and traits, for names in it that may be taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Generated {
    /// Clients.
    pub(crate) clients: bool,
    /// Clients that block.
    pub(crate) blocking: bool,
    /// Servers.
    pub(crate) servers: bool,
    /// Types of google.protobuf are taken from prost-types.
    pub(crate) bundled: bool,
}

/// Complaints about one file, each with its place.
pub(crate) struct Complaints<'a> {
    file: &'a FileDescriptorProto,
    pub(crate) list: Vec<String>,
}

impl<'a> Complaints<'a> {
    pub(crate) fn new(file: &'a FileDescriptorProto) -> Complaints<'a> {
        Complaints { file, list: Vec::new() }
    }

    /// Adds what is wrong at the place of this path.
    pub(crate) fn push(&mut self, path: &[i32], text: String) {
        let locations = self.file.source_code_info.iter().flat_map(|info| &info.location);
        let line = locations.filter(|at| at.path == path).find_map(|at| at.span.first());
        let place = match line {
            Some(line) => format!("{}:{}", self.file.name(), line + 1),
            None => self.file.name().to_owned(),
        };
        self.list.push(format!("{place}: {text}"));
    }

    /// Complains about a type that is to be taken from prost-types, and isn't there.
    fn unless_there(&mut self, path: &[i32], what: &str, used: &str, generated: Generated) {
        let bundled = used.strip_prefix(".google.protobuf.").filter(|_| generated.bundled);
        if let Some(name) = bundled.filter(|name| !crate::views::has_type(name)) {
            let text = format!(
                "{what} is of type google.protobuf.{name}, which prost-types doesn't have; generate it with \
                 compile_well_known_types(true)"
            );
            self.push(path, text);
        }
    }

    /// Complains about a name of which nothing is left in Rust.
    fn unless_named(&mut self, path: &[i32], what: &str, name: &str) {
        if name.to_snake_case().is_empty() {
            self.push(
                path,
                format!("{what} {name} has neither letters nor digits for a name in Rust; rename it"),
            );
        }
    }
}

/// What makes a module, and its name in Rust if it is a service.
type Maker = (String, Option<String>);

/// What is known of one package, from all files that it has.
#[derive(Default)]
struct Package<'a> {
    /// By name in Rust: the name in the proto.
    types: HashMap<String, &'a str>,
    services: HashMap<String, &'a str>,
    /// By name of the module.
    modules: HashMap<String, Maker>,
}

/// What of the files can't be generated, in words. Files of one package are one module in Rust.
pub(crate) fn complaints<'a>(
    files: impl Iterator<Item = &'a FileDescriptorProto> + Clone,
    generated: Generated,
) -> Vec<String> {
    let mut packages: HashMap<Vec<String>, Package<'_>> = HashMap::new();
    let mut list = Vec::new();
    for file in files.clone() {
        let mut complaints = Complaints::new(file);
        let package = packages.entry(parts(file)).or_default();
        services(&mut complaints, package, generated);
        modules(&mut complaints, package, generated);
        let known = &mut package.types;
        types(&mut complaints, known, &[], &file.message_type, &file.enum_type);
        for (idx, message) in file.message_type.iter().enumerate() {
            field_types(&mut complaints, &[number::FILE_MESSAGE, idx as i32], message, generated);
        }
        list.append(&mut complaints.list);
    }
    for file in files {
        let mut complaints = Complaints::new(file);
        package(&mut complaints, &packages);
        list.append(&mut complaints.list);
    }
    list
}

/// The modules that a file's package is.
fn parts(file: &FileDescriptorProto) -> Vec<String> {
    file.package().split('.').filter(|part| !part.is_empty()).map(|part| part.to_snake_case()).collect()
}

/// A package's own modules: each stands beside those of messages and services.
fn package(complaints: &mut Complaints<'_>, packages: &HashMap<Vec<String>, Package<'_>>) {
    let file = complaints.file;
    let (path, parts) = ([number::FILE_PACKAGE], parts(file));
    if parts.iter().any(String::is_empty) {
        let text = format!(
            "package {} has a part with neither letters nor digits for a name in Rust; rename it",
            file.package()
        );
        complaints.push(&path, text);
    }
    if file.message_type.is_empty() && file.enum_type.is_empty() && file.service.is_empty() {
        return;
    }
    for (idx, part) in parts.iter().enumerate() {
        let beside = packages.get(&parts[..idx]).and_then(|around| around.modules.get(part));
        let Some((other, _)) = beside else { continue };
        let (package, around) = (file.package(), &file.package().split('.').collect::<Vec<_>>()[..idx]);
        let around = if around.is_empty() { "no package".to_owned() } else { around.join(".") };
        let text = format!(
            "{other} of {around} and package {package} would have the same module {part} in Rust; rename one, or \
             generate the two in crates of their own, with extern_path"
        );
        complaints.push(&path, text);
    }
}

fn services<'a>(complaints: &mut Complaints<'a>, package: &mut Package<'a>, generated: Generated) {
    for (idx, service) in complaints.file.service.iter().enumerate() {
        let path = [number::FILE_SERVICE, idx as i32];
        if let Some(other) = package.services.insert(service.name().to_upper_camel_case(), service.name()) {
            let name = service.name();
            let text = format!("services {other} and {name} would have the same name in Rust; rename one");
            complaints.push(&path, text);
        }
        complaints.unless_named(&path, "service", service.name());
        // `async_trait` writes it without a path.
        if generated.servers && service.name().to_upper_camel_case() == "Box" {
            let text = format!("service {} would hide Box, which its trait needs; rename it", service.name());
            complaints.push(&path, text);
        }
        methods(complaints, &path, service, generated);
    }
}

/// Whether the field is one of several in a oneof. proto3's `optional` has a oneof of its own, which nobody sees.
fn oneof_of(field: &FieldDescriptorProto) -> Option<usize> {
    field.oneof_index.filter(|_| !field.proto3_optional()).and_then(|idx| usize::try_from(idx).ok())
}

/// The oneofs of a message that its proto has.
pub(crate) fn real_oneofs(message: &DescriptorProto) -> impl Iterator<Item = &OneofDescriptorProto> {
    let members = |idx| message.field.iter().any(move |field| oneof_of(field) == Some(idx));
    message.oneof_decl.iter().enumerate().filter(move |(idx, _)| members(*idx)).map(|(_, oneof)| oneof)
}

/// Whether something is nested in a message, in a module that has the message's name.
fn has_module(message: &DescriptorProto) -> bool {
    let is_entry =
        |nested: &DescriptorProto| nested.options.as_ref().is_some_and(|options| options.map_entry());
    !message.nested_type.iter().all(is_entry)
        || !message.enum_type.is_empty()
        || real_oneofs(message).next().is_some()
}

/// Modules of a package: those of services, and those of messages that have types of their own.
fn modules<'a>(complaints: &mut Complaints<'a>, package: &mut Package<'a>, generated: Generated) {
    let file = complaints.file;
    let ends = [
        (generated.clients, "client"),
        (generated.clients && generated.blocking, "blocking_client"),
        (generated.servers, "server"),
    ];
    let mut made: Vec<(String, Maker, [i32; 2])> = Vec::new();
    for (idx, message) in file.message_type.iter().enumerate().filter(|(_, message)| has_module(message)) {
        let what = format!("message {}", message.name());
        made.push((message.name().to_snake_case(), (what, None), [number::FILE_MESSAGE, idx as i32]));
    }
    for (idx, service) in file.service.iter().enumerate() {
        // As prost-build names it; the module is made of that.
        let rust_name = service.name().to_upper_camel_case();
        for (_, end) in ends.iter().filter(|(wanted, _)| *wanted) {
            let what = format!("service {}", service.name());
            let module = crate::names::module(&rust_name, end);
            made.push((module, (what, Some(rust_name.clone())), [number::FILE_SERVICE, idx as i32]));
        }
    }
    for (module, (what, rust_name), path) in made {
        match package.modules.insert(module.clone(), (what.clone(), rust_name.clone())) {
            // Types and services of the same name have been complained about.
            Some((other, other_name)) if other_name != rust_name => {
                let text =
                    format!("{other} and {what} would have the same module {module} in Rust; rename one");
                complaints.push(&path, text);
            }
            _ => {}
        }
    }
}

fn methods(
    complaints: &mut Complaints<'_>,
    service_path: &[i32; 2],
    service: &ServiceDescriptorProto,
    generated: Generated,
) {
    let mut known: HashMap<String, &str> = HashMap::new();
    for (idx, method) in service.method.iter().enumerate() {
        let path = [service_path[0], service_path[1], number::SERVICE_METHOD, idx as i32];
        let name = method.name();
        complaints.unless_named(&path, "method", name);
        for used in [method.input_type(), method.output_type()] {
            complaints.unless_there(&path, &format!("method {name}"), used, generated);
        }
        if let Some(other) = known.insert(name.to_snake_case(), name) {
            let text = format!("methods {other} and {name} would have the same name in Rust; rename one");
            complaints.push(&path, text);
        }
    }
}

/// Types of one scope, of which some are known: prost names messages and enums alike.
fn types<'a>(
    complaints: &mut Complaints<'a>,
    known: &mut HashMap<String, &'a str>,
    scope: &[i32],
    messages: &'a [DescriptorProto],
    enums: &'a [EnumDescriptorProto],
) {
    let (message_number, enum_number) = match scope {
        [] => (number::FILE_MESSAGE, number::FILE_ENUM),
        _ => (number::MESSAGE_NESTED, number::MESSAGE_ENUM),
    };
    let place = |number, idx: usize| [scope, &[number, idx as i32]].concat();
    let named = messages.iter().enumerate().map(|(idx, found)| (found.name(), place(message_number, idx)));
    let named =
        named.chain(enums.iter().enumerate().map(|(idx, found)| (found.name(), place(enum_number, idx))));
    for (name, path) in named {
        complaints.unless_named(&path, "type", name);
        if let Some(other) = known.insert(name.to_upper_camel_case(), name) {
            complaints.push(
                &path,
                format!("types {other} and {name} would have the same name in Rust; rename one"),
            );
        }
    }
    for (idx, found) in enums.iter().enumerate() {
        values(complaints, &place(enum_number, idx), found);
    }
    for (idx, message) in messages.iter().enumerate() {
        let path = place(message_number, idx);
        fields(complaints, &path, message);
        let mut inner = HashMap::new();
        types(complaints, &mut inner, &path, &message.nested_type, &message.enum_type);
        oneofs(complaints, &mut inner, &path, message);
    }
}

/// Types of the fields of a message, and of those nested in it.
fn field_types(
    complaints: &mut Complaints<'_>,
    message_path: &[i32],
    message: &DescriptorProto,
    generated: Generated,
) {
    for (idx, field) in message.field.iter().enumerate() {
        let path = [message_path, &[number::MESSAGE_FIELD, idx as i32]].concat();
        complaints.unless_there(&path, &format!("field {}", field.name()), field.type_name(), generated);
    }
    for (idx, nested) in message.nested_type.iter().enumerate() {
        let path = [message_path, &[number::MESSAGE_NESTED, idx as i32]].concat();
        field_types(complaints, &path, nested, generated);
    }
}

/// Types of a message's oneofs. Their module is also that of the types nested in the message.
fn oneofs<'a>(
    complaints: &mut Complaints<'a>,
    known: &mut HashMap<String, &'a str>,
    message_path: &[i32],
    message: &'a DescriptorProto,
) {
    let real: HashSet<&str> = real_oneofs(message).map(|oneof| oneof.name()).collect();
    let nested: HashSet<String> = known.keys().cloned().collect();
    for (idx, oneof) in message.oneof_decl.iter().enumerate().filter(|(_, oneof)| real.contains(oneof.name()))
    {
        let mut name = oneof.name().to_upper_camel_case();
        if nested.contains(&name) {
            name += "OneOf";
        }
        // Oneofs that would be one field have been complained about.
        let is_new = |other: &&str| other.to_snake_case() != oneof.name().to_snake_case();
        if let Some(other) = known.insert(name.clone(), oneof.name()).filter(is_new) {
            let text = format!(
                "{other} and oneof {} would have the same type {name} in Rust; rename one",
                oneof.name()
            );
            complaints.push(&[message_path, &[number::MESSAGE_ONEOF, idx as i32]].concat(), text);
        }
    }
}

/// Fields of a message's type, among them its oneofs, and the variants of each oneof.
fn fields(complaints: &mut Complaints<'_>, message_path: &[i32], message: &DescriptorProto) {
    let place = |number, idx: usize| [message_path, &[number, idx as i32]].concat();
    let fields = || message.field.iter().enumerate();
    let mut members: Vec<(Option<usize>, String, &str, Vec<i32>)> = fields()
        .map(|(idx, field)| match oneof_of(field) {
            None => (None, field.name().to_snake_case(), field.name(), place(number::MESSAGE_FIELD, idx)),
            oneof => {
                (oneof, field.name().to_upper_camel_case(), field.name(), place(number::MESSAGE_FIELD, idx))
            }
        })
        .collect();
    let is_real = |oneof: usize| fields().any(|(_, field)| oneof_of(field) == Some(oneof));
    let oneofs = message.oneof_decl.iter().enumerate().filter(|(idx, _)| is_real(*idx));
    members.extend(oneofs.map(|(idx, oneof)| {
        (None, oneof.name().to_snake_case(), oneof.name(), place(number::MESSAGE_ONEOF, idx))
    }));
    let mut known: HashMap<(Option<usize>, String), &str> = HashMap::new();
    for (scope, rust_name, name, path) in members {
        complaints.unless_named(&path, "field", name);
        if let Some(other) = known.insert((scope, rust_name), name) {
            let text = format!("fields {other} and {name} would have the same name in Rust; rename one");
            complaints.push(&path, text);
        }
    }
}

fn values(complaints: &mut Complaints<'_>, enum_path: &[i32], found: &EnumDescriptorProto) {
    let enum_name = found.name().to_upper_camel_case();
    let mut known: HashMap<String, (&str, i32)> = HashMap::new();
    for (idx, value) in found.value.iter().enumerate() {
        let whole = value.name().to_upper_camel_case();
        complaints.unless_named(
            &[enum_path, &[number::ENUM_VALUE, idx as i32]].concat(),
            "value",
            value.name(),
        );
        // prost leaves the enum's name out where it stands before a value's.
        let short = whole.strip_prefix(&enum_name).filter(|rest| rest.starts_with(char::is_uppercase));
        let rust_name = short.unwrap_or(&whole).to_owned();
        match known.insert(rust_name, (value.name(), value.number())) {
            // An alias is left out.
            Some((other, number)) if number != value.number() => {
                let path = [enum_path, &[number::ENUM_VALUE, idx as i32]].concat();
                let name = value.name();
                let text = format!("values {other} and {name} would have the same name in Rust; rename one");
                complaints.push(&path, text);
            }
            _ => {}
        }
    }
}
