//! Files that have each name in each place.

use std::collections::BTreeSet;

use heck::{ToSnakeCase, ToUpperCamelCase};
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto,
    FileDescriptorProto, MethodDescriptorProto, OneofDescriptorProto, ServiceDescriptorProto,
};

use super::identifiers::Names;

/// The names that may stand beside each other, with a number for each such group: those that are one in Rust may not.
fn groups(names: &[String], in_rust: impl Fn(&str) -> Vec<String>) -> Vec<Vec<&str>> {
    let mut groups: Vec<(BTreeSet<String>, Vec<&str>)> = Vec::new();
    for name in names {
        let keys = in_rust(name);
        let fits = |(taken, _): &(BTreeSet<String>, _)| keys.iter().all(|key| !taken.contains(key));
        let idx = groups.iter().position(fits).unwrap_or(groups.len());
        if idx == groups.len() {
            groups.push(Default::default());
        }
        groups[idx].0.extend(keys);
        groups[idx].1.push(name);
    }
    groups.into_iter().map(|(_, names)| names).collect()
}

fn as_types(name: &str) -> Vec<String> {
    vec![name.to_upper_camel_case(), name.to_snake_case()]
}

fn as_values(name: &str) -> Vec<String> {
    vec![name.to_upper_camel_case()]
}

/// Modules are named by capitals, and so are methods' streams.
fn as_services(name: &str) -> Vec<String> {
    let camel = name.to_upper_camel_case();
    let blocking = camel.strip_suffix("Blocking").unwrap_or(&camel).to_owned();
    vec![camel, blocking]
}

fn some<T: Into<String>>(text: T) -> Option<String> {
    Some(text.into())
}

fn file(name: &str, package: &str) -> FileDescriptorProto {
    FileDescriptorProto {
        name: some(format!("{name}.proto")),
        package: some(package),
        syntax: some("proto3"),
        ..Default::default()
    }
}

fn field(name: &str, number: usize, ty: Type, type_name: &str) -> FieldDescriptorProto {
    FieldDescriptorProto {
        name: some(name),
        number: Some(number as i32),
        label: Some(Label::Optional as i32),
        r#type: Some(ty as i32),
        type_name: (!type_name.is_empty()).then(|| type_name.to_owned()),
        ..Default::default()
    }
}

fn enumeration(name: &str, values: &[&str]) -> EnumDescriptorProto {
    let value = |(number, name): (usize, &&str)| EnumValueDescriptorProto {
        name: some(*name),
        number: Some(number as i32),
        ..Default::default()
    };
    EnumDescriptorProto {
        name: some(name),
        value: values.iter().enumerate().map(value).collect(),
        ..Default::default()
    }
}

/// A message with a oneof, by whose path code has to come to it.
fn message(name: &str, path: &str) -> DescriptorProto {
    let path = format!("{path}.{name}");
    let mut member = field("member", 2, Type::Message, &path);
    member.oneof_index = Some(0);
    DescriptorProto {
        name: some(name),
        field: vec![field("own", 1, Type::Message, &path), member],
        oneof_decl: vec![OneofDescriptorProto { name: some("choice"), options: None }],
        ..Default::default()
    }
}

/// How many names are one package.
const PARTS: usize = 12;

/// Names of packages, messages, enums, values, fields and oneofs.
pub(crate) fn types(names: &Names) -> Vec<FileDescriptorProto> {
    let (mut fields, mut values) = (file("fields", "fields"), file("values", "values"));
    let mut files = Vec::new();
    for (idx, group) in groups(&names.types, as_types).into_iter().enumerate() {
        let package = format!("messages.v{idx}");
        let mut messages = file(&package, &package);
        messages.message_type = group.iter().map(|name| message(name, &format!(".{package}"))).collect();
        files.push(messages);
        let package = format!("enums.v{idx}");
        let mut enums = file(&package, &package);
        enums.enum_type = group.iter().map(|name| enumeration(name, &[&format!("{name}_NONE")])).collect();
        let used = group
            .iter()
            .enumerate()
            .map(|(idx, name)| field(&format!("f{idx}"), idx + 1, Type::Enum, &format!(".{package}.{name}")));
        let all = DescriptorProto { name: some("AllOfThese"), field: used.collect(), ..Default::default() };
        enums.message_type.push(all);
        files.push(enums);
    }
    for (idx, group) in groups(&names.functions, as_types).into_iter().enumerate() {
        fields.message_type.extend(fields_of(idx, &group));
        for parts in group.chunks(PARTS) {
            let package = parts.join(".");
            let mut one = file(&package, &package);
            one.message_type.push(message("AllOfThese", &format!(".{package}")));
            files.push(one);
        }
    }
    for (idx, group) in groups(&names.all, as_values).into_iter().enumerate() {
        let name = format!("Values{idx}");
        let holder = DescriptorProto {
            name: some(name.clone()),
            field: vec![field("value", 1, Type::Enum, &format!(".values.{name}.AllOfThese"))],
            enum_type: vec![enumeration("AllOfThese", &group)],
            ..Default::default()
        };
        values.message_type.push(holder);
    }
    files.extend([fields, values]);
    files
}

/// Messages that have these names as fields that are messages or members of a oneof, and as oneofs.
fn fields_of(idx: usize, group: &[&str]) -> Vec<DescriptorProto> {
    let with = |name: &str, change: &dyn Fn(usize, FieldDescriptorProto) -> FieldDescriptorProto| {
        let fields = group.iter().enumerate();
        let fields = fields.map(|(at, name)| change(at, field(name, at + 1, Type::Int32, "")));
        DescriptorProto { name: some(format!("{name}{idx}")), field: fields.collect(), ..Default::default() }
    };
    let messages = with("Messages", &|_, mut field| {
        (field.r#type, field.type_name) = (Some(Type::Message as i32), some(".fields.Oneofs0"));
        field
    });
    let mut members = with("Members", &|_, mut field| {
        field.oneof_index = Some(0);
        field
    });
    members.oneof_decl = vec![OneofDescriptorProto { name: some("all_of_these"), options: None }];
    let mut oneofs = with("Oneofs", &|at, mut field| {
        (field.name, field.oneof_index) = (some(format!("f{at}_of")), Some(at as i32));
        field
    });
    oneofs.oneof_decl =
        group.iter().map(|name| OneofDescriptorProto { name: some(*name), options: None }).collect();
    vec![messages, members, oneofs]
}

fn method(name: &str, kind: usize) -> MethodDescriptorProto {
    MethodDescriptorProto {
        name: some(name),
        input_type: some(".messages.Some"),
        output_type: some(".messages.Some"),
        client_streaming: Some(kind & 1 != 0),
        server_streaming: Some(kind & 2 != 0),
        ..Default::default()
    }
}

/// Names of services, of each so manieth, and of methods. Their messages are in a file of their own.
pub(crate) fn services(names: &Names, step: usize) -> Vec<FileDescriptorProto> {
    let mut files = vec![file("messages", "messages")];
    files[0].message_type.push(message("Some", ".messages"));
    // Refused: a trait of this name would hide what `async_trait` writes.
    let services: Vec<String> = names
        .types
        .iter()
        .step_by(step)
        .filter(|name| name.to_upper_camel_case() != "Box")
        .cloned()
        .collect();
    for (idx, group) in groups(&services, as_services).into_iter().enumerate() {
        let package = format!("services.v{idx}");
        let mut one = file(&package, &package);
        let service = |(at, name): (usize, &&str)| ServiceDescriptorProto {
            name: some(*name),
            method: vec![method("Call", at % 4)],
            ..Default::default()
        };
        one.service = group.iter().enumerate().map(service).collect();
        files.push(one);
    }
    for (idx, group) in groups(&names.functions, as_types).into_iter().enumerate() {
        let package = format!("methods.v{idx}");
        let mut one = file(&package, &package);
        one.service.push(ServiceDescriptorProto {
            name: some("AllOfThese"),
            method: group.iter().enumerate().map(|(at, name)| method(name, at % 4)).collect(),
            ..Default::default()
        });
        files.push(one);
    }
    files
}
