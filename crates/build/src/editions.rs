//! Files of editions, told to prost-build in terms of proto3, which it knows.
//!
//! prost-build and prost-types know no editions: they drop what makes them. So the features are read here from the
//! request's own bytes, and each field is made to say what its features mean: `optional` for a field that knows whether
//! it is set, `required`, packed or not, a group for a message between delimiters. Enums are open and strings are checked
//! in all that prost generates, as in proto2.

use std::path::Path;

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FieldOptions, FileDescriptorProto};

/// Editions that are understood, as descriptor.proto numbers them.
pub(crate) const EDITIONS: std::ops::RangeInclusive<i32> = 1000..=1001;

/// What to do with files that say their edition, where a build script reads files.
pub(crate) const ADVICE: &str = "\n\nFiles that say `edition` are read by protoc and buf, not yet by a build script. Give what \
    `protoc --include_imports --include_source_info --descriptor_set_out=FILE` or `buf build -o FILE` writes to \
    Builder::compile_descriptor_set.";

/// Whether a file says its edition before anything else.
pub(crate) fn is_of_edition(path: &Path) -> bool {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut rest = text.trim_start();
    loop {
        let comment = match (rest.strip_prefix("//"), rest.strip_prefix("/*")) {
            (Some(line), _) => line.split_once('\n'),
            (None, Some(block)) => block.split_once("*/"),
            (None, None) => {
                return rest.strip_prefix("edition").is_some_and(|rest| rest.trim_start().starts_with('='));
            }
        };
        let Some((_, after)) = comment else { return false };
        rest = after.trim_start();
    }
}

/// A descriptor set, with what prost-types drops of it.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Set {
    #[prost(message, repeated, tag = "1")]
    pub(crate) files: Vec<RawFile>,
}

/// The parts of a file's descriptor that prost-types doesn't have.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RawFile {
    #[prost(message, repeated, tag = "4")]
    messages: Vec<Message>,
    #[prost(message, optional, tag = "8")]
    options: Option<FileFeatures>,
    #[prost(int32, tag = "14")]
    edition: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Message {
    #[prost(message, repeated, tag = "2")]
    fields: Vec<Field>,
    #[prost(message, repeated, tag = "3")]
    nested: Vec<Message>,
    #[prost(message, optional, tag = "7")]
    options: Option<MessageFeatures>,
    #[prost(message, repeated, tag = "8")]
    oneofs: Vec<Oneof>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Field {
    #[prost(message, optional, tag = "8")]
    options: Option<FieldFeatures>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Oneof {
    #[prost(message, optional, tag = "2")]
    options: Option<OneofFeatures>,
}

/// Options of one kind, of which only the features count.
macro_rules! with_features {
    ($($name:ident = $tag:literal,)+) => {$(
        #[derive(Clone, Copy, PartialEq, prost::Message)]
        struct $name {
            #[prost(message, optional, tag = $tag)]
            features: Option<Features>,
        }
    )+};
}

with_features! {
    FileFeatures = "50",
    MessageFeatures = "12",
    FieldFeatures = "21",
    OneofFeatures = "1",
}

/// What one place states; 0 is inherited.
#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Features {
    /// 1: explicit, 2: implicit, 3: required.
    #[prost(int32, tag = "1")]
    presence: i32,
    /// 1: packed, 2: expanded.
    #[prost(int32, tag = "3")]
    repeated: i32,
    /// 1: length-prefixed, 2: delimited.
    #[prost(int32, tag = "5")]
    encoding: i32,
}

const EXPLICIT: i32 = 1;
const REQUIRED: i32 = 3;
const PACKED: i32 = 1;
const LENGTH_PREFIXED: i32 = 1;
const DELIMITED: i32 = 2;

impl Features {
    fn with(self, own: Option<Features>) -> Features {
        let Some(own) = own else { return self };
        let or = |own: i32, inherited: i32| if own == 0 { inherited } else { own };
        Features {
            presence: or(own.presence, self.presence),
            repeated: or(own.repeated, self.repeated),
            encoding: or(own.encoding, self.encoding),
        }
    }
}

/// Tells a file in terms of proto3, if it is one of an edition.
///
/// # Errors
/// In words, for an edition that isn't known.
pub(crate) fn lower(file: &mut FileDescriptorProto, raw: &RawFile) -> Result<(), String> {
    if raw.edition == 0 && file.syntax() != "editions" {
        return Ok(());
    }
    if !EDITIONS.contains(&raw.edition) {
        return Err(format!("{}: edition number {} is not one of 2023 and 2024", file.name(), raw.edition));
    }
    let defaults = Features { presence: EXPLICIT, repeated: PACKED, encoding: LENGTH_PREFIXED };
    let features = defaults.with(raw.options.and_then(|options| options.features));
    file.syntax = Some("proto3".to_owned());
    for (message, raw) in file.message_type.iter_mut().zip(&raw.messages) {
        lower_message(message, raw, features);
    }
    Ok(())
}

fn lower_message(message: &mut DescriptorProto, raw: &Message, inherited: Features) {
    let features = inherited.with(raw.options.and_then(|options| options.features));
    let is_entry =
        |entry: &&DescriptorProto| entry.options.as_ref().is_some_and(|options| options.map_entry());
    let maps: Vec<String> =
        message.nested_type.iter().filter(is_entry).map(|entry| format!(".{}", entry.name())).collect();
    for (field, raw_field) in message.field.iter_mut().zip(&raw.fields) {
        let oneof = field.oneof_index.and_then(|idx| raw.oneofs.get(usize::try_from(idx).ok()?));
        let inherited = features.with(oneof.and_then(|oneof| oneof.options?.features));
        let own = raw_field.options.and_then(|options| options.features);
        let is_map = maps.iter().any(|entry| field.type_name().ends_with(entry));
        lower_field(field, inherited.with(own), is_map);
    }
    for (nested, raw) in message.nested_type.iter_mut().zip(&raw.nested) {
        lower_message(nested, raw, features);
    }
}

fn lower_field(field: &mut FieldDescriptorProto, features: Features, is_map: bool) {
    let is_message = field.r#type() == Type::Message;
    let is_group = is_message && features.encoding == DELIMITED && !is_map;
    if is_group {
        field.r#type = Some(Type::Group.into());
    }
    match field.label() {
        Label::Repeated => {
            let options = field.options.get_or_insert_with(FieldOptions::default);
            options.packed = Some(features.repeated == PACKED);
        }
        _ if features.presence == REQUIRED => field.label = Some(Label::Required.into()),
        // A message always knows whether it is set, and so does a member of a oneof. prost-build asks for the word where
        // the message is a group.
        _ if field.oneof_index.is_some() || is_message && !is_group => {}
        _ => field.proto3_optional = (is_group || features.presence == EXPLICIT).then_some(true),
    }
}
