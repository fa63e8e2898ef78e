//! A schema whose strings are checked for UTF-8: the same proto2 schema, restated as an edition with that rule.

use prost::Message;
use prost_types::FileDescriptorSet;
use prost_types::field_descriptor_proto::Label;

/// What is merged into each file: `syntax = "editions"`, edition 2023, and in its options the features explicit
/// presence, closed enums, expanded lists, verified UTF-8. (Raw bytes: prost-types knows no features.)
const OVERRIDE: &[u8] = &[
    0x62, 8, b'e', b'd', b'i', b't', b'i', b'o', b'n', b's', // syntax = 12
    0x70, 0xe8, 7, // edition = 14: 1000, edition 2023
    0x42, 11, 0x92, 3, 8, 8, 1, 16, 2, 24, 2, 32, 2, // options = 8, in it features = 50
];

/// The descriptor set, with checks.
pub(super) fn strict(set: &[u8]) -> Result<Vec<u8>, String> {
    let set = FileDescriptorSet::decode(set).map_err(|error| error.to_string())?;
    let mut out = Vec::new();
    for file in &set.file {
        if file.syntax() != "" && file.syntax() != "proto2" {
            return Err("the schema is not proto2, its strings are checked already".to_owned());
        }
        let mut fields = file.message_type.iter().flat_map(all_fields);
        if fields.any(|field| field.label() == Label::Required) {
            return Err("the schema has required fields, which editions write differently".to_owned());
        }
        let mut bytes = file.encode_to_vec();
        bytes.extend_from_slice(OVERRIDE);
        out.push(0x0a);
        prost::encoding::encode_varint(bytes.len() as u64, &mut out);
        out.extend(bytes);
    }
    Ok(out)
}

fn all_fields(
    ty: &prost_types::DescriptorProto,
) -> Box<dyn Iterator<Item = &prost_types::FieldDescriptorProto> + '_> {
    Box::new(ty.field.iter().chain(ty.nested_type.iter().flat_map(all_fields)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollfree_bench::schemas::SCHEMAS;
    use tollfree_layout::table::FieldRow;
    use tollfree_schema::Schema;

    #[test]
    fn only_the_check_is_added() {
        for schema in SCHEMAS.iter().filter(|schema| schema.name != "descriptor") {
            let table = |set: &[u8]| Schema::from_descriptor_set(set).unwrap().compile().unwrap();
            let (plain, strict) =
                (table(schema.descriptor_set), table(&strict(schema.descriptor_set).unwrap()));
            let mut checked = 0;
            for (before, after) in plain.fields().iter().zip(strict.fields()) {
                assert_eq!(
                    (before.label, before.kind, before.slot_off),
                    (after.label, after.kind, after.slot_off)
                );
                let text = before.kind == tollfree_layout::table::Kind::String;
                assert_eq!(after.has(FieldRow::UTF8), text);
                assert!(!before.has(FieldRow::UTF8));
                checked += usize::from(text);
            }
            assert!(checked > 0, "{}", schema.name);
        }
        let descriptor = SCHEMAS.iter().find(|schema| schema.name == "descriptor").unwrap();
        assert!(strict(descriptor.descriptor_set).is_err());
    }
}
