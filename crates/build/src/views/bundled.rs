//! What prost-types has of google.protobuf's messages. It was generated from files that are older than those of protoc, so some
//! messages and fields that a descriptor names are not there.

use prost::Message;
use prost_types as here;
use prost_types::compiler;
use tollfree_schema::Kind;

use super::prost::PLAIN;

/// Whether a message of prost-types keeps what these bytes hold.
type Keeps = fn(&[u8]) -> bool;

fn keeps<M: Message + Default>(bytes: &[u8]) -> bool {
    M::decode(bytes).is_ok_and(|message| message.encoded_len() > 0)
}

/// The messages by their names below google.protobuf.
macro_rules! messages {
    ($($name:literal = $type:path,)+) => {
        const MESSAGES: &[(&str, Keeps)] = &[$(($name, keeps::<$type>)),+];
    };
}

messages! {
    "Any" = here::Any,
    "Api" = here::Api,
    "DescriptorProto" = here::DescriptorProto,
    "DescriptorProto.ExtensionRange" = here::descriptor_proto::ExtensionRange,
    "DescriptorProto.ReservedRange" = here::descriptor_proto::ReservedRange,
    "Duration" = here::Duration,
    "Enum" = here::Enum,
    "EnumDescriptorProto" = here::EnumDescriptorProto,
    "EnumDescriptorProto.EnumReservedRange" = here::enum_descriptor_proto::EnumReservedRange,
    "EnumOptions" = here::EnumOptions,
    "EnumValue" = here::EnumValue,
    "EnumValueDescriptorProto" = here::EnumValueDescriptorProto,
    "EnumValueOptions" = here::EnumValueOptions,
    "ExtensionRangeOptions" = here::ExtensionRangeOptions,
    "Field" = here::Field,
    "FieldDescriptorProto" = here::FieldDescriptorProto,
    "FieldMask" = here::FieldMask,
    "FieldOptions" = here::FieldOptions,
    "FileDescriptorProto" = here::FileDescriptorProto,
    "FileDescriptorSet" = here::FileDescriptorSet,
    "FileOptions" = here::FileOptions,
    "GeneratedCodeInfo" = here::GeneratedCodeInfo,
    "GeneratedCodeInfo.Annotation" = here::generated_code_info::Annotation,
    "ListValue" = here::ListValue,
    "MessageOptions" = here::MessageOptions,
    "Method" = here::Method,
    "MethodDescriptorProto" = here::MethodDescriptorProto,
    "MethodOptions" = here::MethodOptions,
    "Mixin" = here::Mixin,
    "OneofDescriptorProto" = here::OneofDescriptorProto,
    "OneofOptions" = here::OneofOptions,
    "Option" = here::Option,
    "ServiceDescriptorProto" = here::ServiceDescriptorProto,
    "ServiceOptions" = here::ServiceOptions,
    "SourceCodeInfo" = here::SourceCodeInfo,
    "SourceCodeInfo.Location" = here::source_code_info::Location,
    "SourceContext" = here::SourceContext,
    "Struct" = here::Struct,
    "Timestamp" = here::Timestamp,
    "Type" = here::Type,
    "UninterpretedOption" = here::UninterpretedOption,
    "UninterpretedOption.NamePart" = here::uninterpreted_option::NamePart,
    "Value" = here::Value,
    "compiler.CodeGeneratorRequest" = compiler::CodeGeneratorRequest,
    "compiler.CodeGeneratorResponse" = compiler::CodeGeneratorResponse,
    "compiler.CodeGeneratorResponse.File" = compiler::code_generator_response::File,
    "compiler.Version" = compiler::Version,
}

/// Enums by their names below google.protobuf.
macro_rules! enums {
    ($($name:literal = $type:path,)+) => {
        const ENUMS: &[&str] = &[$({
            // It is there.
            let _: Option<$type> = None;
            $name
        }),+];
    };
}

enums! {
    "Field.Cardinality" = here::field::Cardinality,
    "Field.Kind" = here::field::Kind,
    "FieldDescriptorProto.Label" = here::field_descriptor_proto::Label,
    "FieldDescriptorProto.Type" = here::field_descriptor_proto::Type,
    "FieldOptions.CType" = here::field_options::CType,
    "FieldOptions.JSType" = here::field_options::JsType,
    "FileOptions.OptimizeMode" = here::file_options::OptimizeMode,
    "MethodOptions.IdempotencyLevel" = here::method_options::IdempotencyLevel,
    "NullValue" = here::NullValue,
    "Syntax" = here::Syntax,
}

/// Whether prost has a message or enum, by its name below google.protobuf: a struct or a plain type in place of it.
pub(crate) fn has_type(name: &str) -> bool {
    ENUMS.contains(&name)
        || PLAIN.iter().any(|(known, _)| *known == name)
        || MESSAGES.iter().any(|(known, _)| *known == name)
}

/// Whether prost-types' struct has a field of this kind; its message is named below google.protobuf.
pub(super) fn has_field(message: &str, number: u32, kind: Kind) -> bool {
    let Some((_, keeps)) = MESSAGES.iter().find(|(known, _)| *known == message) else { return false };
    let (wire_type, value): (u32, &[u8]) = match kind {
        Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => (1, &[1; 8]),
        Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => (5, &[1; 4]),
        Kind::String | Kind::Bytes => (2, &[1, b'a']),
        Kind::Message => (2, &[0]),
        _ => (0, &[1]),
    };
    let mut bytes = Vec::new();
    prost::encoding::encode_varint(u64::from(number << 3 | wire_type), &mut bytes);
    bytes.extend_from_slice(value);
    keeps(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_the_structs() {
        assert!(has_field("FieldOptions", 2, Kind::Bool), "packed");
        assert!(has_field("Struct", 1, Kind::Message), "fields, a map");
        assert!(has_field("SourceCodeInfo.Location", 1, Kind::Int32), "path, packed");
        assert!(!has_field("FieldOptions", 21, Kind::Message), "features, which came with editions");
        assert!(!has_field("FeatureSet", 1, Kind::Enum));
        assert!(has_type("NullValue") && has_type("Any") && !has_type("Edition"));
    }
}
