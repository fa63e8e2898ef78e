//! Defaults that are enum values of several names: prost has a variant for the first name alone.

use std::collections::HashMap;

use prost_types::field_descriptor_proto::Type;
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorProto};

/// The first name of each value that has another, by the enum's full name.
type FirstNames = HashMap<String, HashMap<String, String>>;

/// Has every default name its value by the first name that the value has.
pub(crate) fn rename(files: &mut [FileDescriptorProto]) {
    let mut first = FirstNames::new();
    for file in files.iter() {
        let within = if file.package().is_empty() { String::new() } else { format!(".{}", file.package()) };
        enums(&within, &file.enum_type, &mut first);
        messages(&within, &file.message_type, &mut first);
    }
    first.retain(|_, names| !names.is_empty());
    if !first.is_empty() {
        files.iter_mut().flat_map(|file| &mut file.message_type).for_each(|message| fields(message, &first));
    }
}

fn messages(within: &str, messages: &[DescriptorProto], first: &mut FirstNames) {
    for message in messages {
        let name = format!("{within}.{}", message.name());
        enums(&name, &message.enum_type, first);
        self::messages(&name, &message.nested_type, first);
    }
}

fn enums(within: &str, enums: &[EnumDescriptorProto], first: &mut FirstNames) {
    for found in enums {
        let mut by_number = HashMap::new();
        let names = found.value.iter().filter_map(|value| {
            let known = *by_number.entry(value.number()).or_insert(value.name());
            (known != value.name()).then(|| (value.name().to_owned(), known.to_owned()))
        });
        first.insert(format!("{within}.{}", found.name()), names.collect());
    }
}

fn fields(message: &mut DescriptorProto, first: &FirstNames) {
    for field in message.field.iter_mut().filter(|field| field.r#type() == Type::Enum) {
        let names = first.get(field.type_name());
        let renamed = names.zip(field.default_value.as_ref()).and_then(|(names, name)| names.get(name));
        if let Some(name) = renamed {
            field.default_value = Some(name.clone());
        }
    }
    message.nested_type.iter_mut().for_each(|nested| fields(nested, first));
}
