//! What can't be generated is refused before any code is, with the place in the proto.

use std::collections::HashMap;

use heck::{ToSnakeCase, ToUpperCamelCase};
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorProto, ServiceDescriptorProto};

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
mod number {
    pub(super) const FILE_MESSAGE: i32 = 4;
    pub(super) const FILE_ENUM: i32 = 5;
    pub(super) const FILE_SERVICE: i32 = 6;
    pub(super) const MESSAGE_NESTED: i32 = 3;
    pub(super) const MESSAGE_ENUM: i32 = 4;
    pub(super) const ENUM_VALUE: i32 = 2;
    pub(super) const SERVICE_METHOD: i32 = 2;
}

/// Complaints about one file, each with its place.
struct Complaints<'a> {
    file: &'a FileDescriptorProto,
    list: Vec<String>,
}

impl Complaints<'_> {
    fn push(&mut self, path: &[i32], text: String) {
        let locations = self.file.source_code_info.iter().flat_map(|info| &info.location);
        let line = locations.filter(|at| at.path == path).find_map(|at| at.span.first());
        let place = match line {
            Some(line) => format!("{}:{}", self.file.name(), line + 1),
            None => self.file.name().to_owned(),
        };
        self.list.push(format!("{place}: {text}"));
    }
}

/// What of a file can't be generated, in words; `connect` says whether clients get a function of that name.
pub(crate) fn complaints(file: &FileDescriptorProto, connect: bool) -> Vec<String> {
    let mut complaints = Complaints { file, list: Vec::new() };
    services(&mut complaints, connect);
    types(&mut complaints, &[], &file.message_type, &file.enum_type);
    complaints.list
}

fn services(complaints: &mut Complaints<'_>, connect: bool) {
    let mut known: HashMap<String, &str> = HashMap::new();
    for (idx, service) in complaints.file.service.iter().enumerate() {
        let path = [number::FILE_SERVICE, idx as i32];
        if let Some(other) = known.insert(service.name().to_upper_camel_case(), service.name()) {
            let name = service.name();
            let text = format!("services {other} and {name} would have the same name in Rust; rename one");
            complaints.push(&path, text);
        }
        methods(complaints, &path, service, connect);
    }
}

fn methods(
    complaints: &mut Complaints<'_>,
    service_path: &[i32; 2],
    service: &ServiceDescriptorProto,
    connect: bool,
) {
    let mut known: HashMap<String, &str> = HashMap::new();
    for (idx, method) in service.method.iter().enumerate() {
        let path = [service_path[0], service_path[1], number::SERVICE_METHOD, idx as i32];
        let (name, rust_name) = (method.name(), method.name().to_snake_case());
        if CLIENT_FUNCTIONS.contains(&rust_name.as_str()) {
            let text = format!("method {name} would hide the client's own function {rust_name}; rename it");
            complaints.push(&path, text);
        } else if rust_name == "connect" && connect {
            let text = format!(
                "method {name} would hide the client's own function connect; rename it, or leave that function out \
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
        types(complaints, &place(message_number, idx), &message.nested_type, &message.enum_type);
    }
}

fn values(complaints: &mut Complaints<'_>, enum_path: &[i32], found: &EnumDescriptorProto) {
    let enum_name = found.name().to_upper_camel_case();
    let mut known: HashMap<String, (&str, i32)> = HashMap::new();
    for (idx, value) in found.value.iter().enumerate() {
        let whole = value.name().to_upper_camel_case();
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
