//! The parts of `google/protobuf/descriptor.proto` that matter to a table, read from their bytes.
//!
//! Field numbers are descriptor.proto's; what is not listed (source info, custom options) is skipped.

use crate::SchemaError;
use crate::features::FeatureSet;
use crate::wire::{Fields, Value};

#[derive(Debug, Default)]
pub(crate) struct File {
    pub name: String,
    pub package: String,
    pub syntax: String,
    pub edition: u64,
    pub features: FeatureSet,
    pub messages: Vec<MessageType>,
    pub enums: Vec<EnumType>,
    pub services: Vec<ServiceType>,
}

#[derive(Debug, Default)]
pub(crate) struct MessageType {
    pub name: String,
    pub fields: Vec<FieldType>,
    pub nested: Vec<MessageType>,
    pub enums: Vec<EnumType>,
    pub oneofs: Vec<OneofType>,
    pub map_entry: bool,
    pub features: FeatureSet,
}

#[derive(Debug, Default)]
pub(crate) struct FieldType {
    pub name: String,
    pub number: i32,
    pub label: u64,
    pub kind: u64,
    pub type_name: String,
    pub default_value: Option<Vec<u8>>,
    pub oneof_index: Option<usize>,
    pub json_name: Option<String>,
    pub proto3_optional: bool,
    pub packed: Option<bool>,
    pub features: FeatureSet,
}

#[derive(Debug, Default)]
pub(crate) struct OneofType {
    pub name: String,
    pub features: FeatureSet,
}

#[derive(Debug, Default)]
pub(crate) struct EnumType {
    pub name: String,
    pub values: Vec<(String, i32)>,
    pub features: FeatureSet,
}

#[derive(Debug, Default)]
pub(crate) struct ServiceType {
    pub name: String,
    pub methods: Vec<MethodType>,
}

#[derive(Debug, Default)]
pub(crate) struct MethodType {
    pub name: String,
    pub input: String,
    pub output: String,
    pub client_streaming: bool,
    pub server_streaming: bool,
}

type Read<T> = Result<T, SchemaError>;

fn text(value: Value<'_>, place: &'static str) -> Read<String> {
    match value {
        Value::Bytes(bytes) => {
            String::from_utf8(bytes.to_vec()).map_err(|_| SchemaError::Malformed { place, offset: 0 })
        }
        _ => Err(SchemaError::Malformed { place, offset: 0 }),
    }
}

fn bytes<'a>(value: Value<'a>, place: &'static str) -> Read<&'a [u8]> {
    match value {
        Value::Bytes(bytes) => Ok(bytes),
        _ => Err(SchemaError::Malformed { place, offset: 0 }),
    }
}

fn number(value: Value<'_>, place: &'static str) -> Read<u64> {
    match value {
        Value::Varint(number) => Ok(number),
        _ => Err(SchemaError::Malformed { place, offset: 0 }),
    }
}

/// Descends at most this deep into nested messages; protoc itself stops at 32.
const MAX_NESTING: u32 = 64;

pub(crate) fn read_set(set: &[u8]) -> Read<Vec<File>> {
    let mut files = Vec::new();
    let mut fields = Fields::new(set, "FileDescriptorSet");
    while let Some((field, value)) = fields.next()? {
        if field == 1 {
            files.push(file(bytes(value, "FileDescriptorSet")?)?);
        }
    }
    Ok(files)
}

fn file(input: &[u8]) -> Read<File> {
    const PLACE: &str = "FileDescriptorProto";
    let mut out = File::default();
    let mut fields = Fields::new(input, PLACE);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => out.name = text(value, PLACE)?,
            2 => out.package = text(value, PLACE)?,
            4 => out.messages.push(message(bytes(value, PLACE)?, 0)?),
            5 => out.enums.push(enumeration(bytes(value, PLACE)?)?),
            6 => out.services.push(service(bytes(value, PLACE)?)?),
            8 => options(bytes(value, PLACE)?, 50, &mut out.features, |_, _| Ok(()))?,
            12 => out.syntax = text(value, PLACE)?,
            14 => out.edition = number(value, PLACE)?,
            _ => {}
        }
    }
    Ok(out)
}

/// Reads an options message: the features field, and what `other` picks from the rest.
fn options(
    input: &[u8],
    features_field: u32,
    features: &mut FeatureSet,
    mut other: impl FnMut(u32, Value<'_>) -> Read<()>,
) -> Read<()> {
    const PLACE: &str = "options";
    let mut fields = Fields::new(input, PLACE);
    while let Some((field, value)) = fields.next()? {
        if field == features_field {
            feature_set(bytes(value, PLACE)?, features)?;
        } else {
            other(field, value)?;
        }
    }
    Ok(())
}

fn feature_set(input: &[u8], out: &mut FeatureSet) -> Read<()> {
    let mut fields = Fields::new(input, "FeatureSet");
    while let Some((field, value)) = fields.next()? {
        if let Value::Varint(number) = value {
            out.set(field, number);
        }
    }
    Ok(())
}

fn message(input: &[u8], depth: u32) -> Read<MessageType> {
    const PLACE: &str = "DescriptorProto";
    if depth > MAX_NESTING {
        return Err(SchemaError::Malformed { place: PLACE, offset: 0 });
    }
    let mut out = MessageType::default();
    let mut fields = Fields::new(input, PLACE);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => out.name = text(value, PLACE)?,
            2 => out.fields.push(message_field(bytes(value, PLACE)?)?),
            3 => out.nested.push(message(bytes(value, PLACE)?, depth + 1)?),
            4 => out.enums.push(enumeration(bytes(value, PLACE)?)?),
            7 => {
                let map_entry = &mut out.map_entry;
                options(bytes(value, PLACE)?, 12, &mut out.features, |field, value| {
                    if field == 7 {
                        *map_entry = number(value, PLACE)? != 0;
                    }
                    Ok(())
                })?;
            }
            8 => out.oneofs.push(oneof(bytes(value, PLACE)?)?),
            _ => {}
        }
    }
    Ok(out)
}

fn message_field(input: &[u8]) -> Read<FieldType> {
    const PLACE: &str = "FieldDescriptorProto";
    let mut out = FieldType::default();
    let mut fields = Fields::new(input, PLACE);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => out.name = text(value, PLACE)?,
            3 => out.number = number(value, PLACE)? as i32,
            4 => out.label = number(value, PLACE)?,
            5 => out.kind = number(value, PLACE)?,
            6 => out.type_name = text(value, PLACE)?,
            7 => out.default_value = Some(bytes(value, PLACE)?.to_vec()),
            8 => {
                let packed = &mut out.packed;
                options(bytes(value, PLACE)?, 21, &mut out.features, |field, value| {
                    if field == 2 {
                        *packed = Some(number(value, PLACE)? != 0);
                    }
                    Ok(())
                })?;
            }
            9 => out.oneof_index = Some(number(value, PLACE)? as usize),
            10 => out.json_name = Some(text(value, PLACE)?),
            17 => out.proto3_optional = number(value, PLACE)? != 0,
            _ => {}
        }
    }
    Ok(out)
}

fn oneof(input: &[u8]) -> Read<OneofType> {
    const PLACE: &str = "OneofDescriptorProto";
    let mut out = OneofType::default();
    let mut fields = Fields::new(input, PLACE);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => out.name = text(value, PLACE)?,
            2 => options(bytes(value, PLACE)?, 1, &mut out.features, |_, _| Ok(()))?,
            _ => {}
        }
    }
    Ok(out)
}

fn enumeration(input: &[u8]) -> Read<EnumType> {
    const PLACE: &str = "EnumDescriptorProto";
    let mut out = EnumType::default();
    let mut fields = Fields::new(input, PLACE);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => out.name = text(value, PLACE)?,
            2 => out.values.push(enum_value(bytes(value, PLACE)?)?),
            3 => options(bytes(value, PLACE)?, 7, &mut out.features, |_, _| Ok(()))?,
            _ => {}
        }
    }
    Ok(out)
}

fn enum_value(input: &[u8]) -> Read<(String, i32)> {
    const PLACE: &str = "EnumValueDescriptorProto";
    let mut out = (String::new(), 0);
    let mut fields = Fields::new(input, PLACE);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => out.0 = text(value, PLACE)?,
            2 => out.1 = number(value, PLACE)? as i32,
            _ => {}
        }
    }
    Ok(out)
}

fn service(input: &[u8]) -> Read<ServiceType> {
    const PLACE: &str = "ServiceDescriptorProto";
    let mut out = ServiceType::default();
    let mut fields = Fields::new(input, PLACE);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => out.name = text(value, PLACE)?,
            2 => out.methods.push(method(bytes(value, PLACE)?)?),
            _ => {}
        }
    }
    Ok(out)
}

fn method(input: &[u8]) -> Read<MethodType> {
    const PLACE: &str = "MethodDescriptorProto";
    let mut out = MethodType::default();
    let mut fields = Fields::new(input, PLACE);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => out.name = text(value, PLACE)?,
            2 => out.input = text(value, PLACE)?,
            3 => out.output = text(value, PLACE)?,
            5 => out.client_streaming = number(value, PLACE)? != 0,
            6 => out.server_streaming = number(value, PLACE)? != 0,
            _ => {}
        }
    }
    Ok(out)
}
