//! What can't be generated is refused before any code is, with the place in the proto.

use std::collections::HashMap;

use heck::{ToSnakeCase, ToUpperCamelCase};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, ServiceDescriptorProto,
};

/// Functions that every generated client has.
const CLIENT_FUNCTIONS: [&str; 7] = [
    "new",
    "with_origin",
    "with_interceptor",
    "send_compressed",
    "accept_compressed",
    "max_decoding_message_size",
    "max_encoding_message_size",
];

/// Numbers of fields in descriptor.proto, of which paths to places in a file are made.
pub(crate) mod number {
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
    /// Clients' function of that name.
    pub(crate) connect: bool,
    /// Clients that block.
    pub(crate) blocking: bool,
    /// Servers.
    pub(crate) servers: bool,
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

/// What of a file can't be generated, in words.
pub(crate) fn complaints(file: &FileDescriptorProto, generated: Generated) -> Vec<String> {
    let mut complaints = Complaints::new(file);
    services(&mut complaints, generated);
    modules(&mut complaints, generated);
    types(&mut complaints, &[], &file.message_type, &file.enum_type);
    complaints.list
}

fn services(complaints: &mut Complaints<'_>, generated: Generated) {
    let mut known: HashMap<String, &str> = HashMap::new();
    for (idx, service) in complaints.file.service.iter().enumerate() {
        let path = [number::FILE_SERVICE, idx as i32];
        if let Some(other) = known.insert(service.name().to_upper_camel_case(), service.name()) {
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

/// Modules of a file: those of services, and those of messages that have types of their own.
fn modules(complaints: &mut Complaints<'_>, generated: Generated) {
    let file = complaints.file;
    let has_module = |message: &DescriptorProto| {
        !message.nested_type.is_empty() || !message.enum_type.is_empty() || !message.oneof_decl.is_empty()
    };
    // By module: what makes it, and the name in Rust if it is a service.
    let mut known: HashMap<String, (String, Option<String>)> = HashMap::new();
    for message in file.message_type.iter().filter(|message| has_module(message)) {
        known.insert(message.name().to_snake_case(), (format!("message {}", message.name()), None));
    }
    let ends = [
        (generated.clients, "client"),
        (generated.clients && generated.blocking, "blocking_client"),
        (generated.servers, "server"),
    ];
    for (idx, service) in file.service.iter().enumerate() {
        // As prost-build names it; the module is made of that.
        let rust_name = service.name().to_upper_camel_case();
        let name = service.name();
        for (_, end) in ends.iter().filter(|(wanted, _)| *wanted) {
            let module = crate::names::module(&rust_name, end);
            let own = (format!("service {name}"), Some(rust_name.clone()));
            match known.insert(module.clone(), own) {
                // Services of the same name have been complained about.
                Some((other, other_name)) if other_name.as_ref() != Some(&rust_name) => {
                    let text = format!(
                        "{other} and service {name} would have the same module {module} in Rust; rename one"
                    );
                    complaints.push(&[number::FILE_SERVICE, idx as i32], text);
                }
                _ => {}
            }
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
        let (name, rust_name) = (method.name(), method.name().to_snake_case());
        complaints.unless_named(&path, "method", name);
        let is_taken =
            CLIENT_FUNCTIONS.contains(&rust_name.as_str()) || generated.blocking && rust_name == "configure";
        if generated.clients && is_taken {
            let text = format!("method {name} would hide the client's own function {rust_name}; rename it");
            complaints.push(&path, text);
        } else if matches!(&*rust_name, "connect" | "connect_lazy") && generated.connect {
            let text = format!(
                "method {name} would hide the client's own function {rust_name}; rename it, or leave that function out \
                 with build_transport(false) (as a plugin: no_transport)"
            );
            complaints.push(&path, text);
        }
        if let Some(other) = known.insert(rust_name, name) {
            let text = format!("methods {other} and {name} would have the same name in Rust; rename one");
            complaints.push(&path, text);
        }
    }
}

/// Types of one scope: prost names messages and enums alike.
fn types(
    complaints: &mut Complaints<'_>,
    scope: &[i32],
    messages: &[DescriptorProto],
    enums: &[EnumDescriptorProto],
) {
    let (message_number, enum_number) = match scope {
        [] => (number::FILE_MESSAGE, number::FILE_ENUM),
        _ => (number::MESSAGE_NESTED, number::MESSAGE_ENUM),
    };
    let place = |number, idx: usize| [scope, &[number, idx as i32]].concat();
    let mut known: HashMap<String, &str> = HashMap::new();
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
        fields(complaints, &place(message_number, idx), message);
        types(complaints, &place(message_number, idx), &message.nested_type, &message.enum_type);
    }
}

/// Fields of a message's type, among them its oneofs, and the variants of each oneof.
fn fields(complaints: &mut Complaints<'_>, message_path: &[i32], message: &DescriptorProto) {
    let place = |number, idx: usize| [message_path, &[number, idx as i32]].concat();
    // proto3's `optional` has a oneof of its own, which nobody sees.
    let oneof_of = |field: &FieldDescriptorProto| {
        field.oneof_index.filter(|_| !field.proto3_optional()).and_then(|idx| usize::try_from(idx).ok())
    };
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
