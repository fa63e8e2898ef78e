//! Messages with seeded contents for when no corpus is at hand: shaped by the schema, mostly scalars and short
//! strings, now and then a long one. They are no substitute for the corpus' own values.

use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet};

/// Messages inside messages go no deeper.
const DEPTH: u32 = 12;

/// A message of type `type_name`; the same seed gives the same bytes.
///
/// # Panics
/// If `set` is not the descriptor set of a kept schema, or lacks the type.
pub fn message(set: &[u8], type_name: &str, seed: u64) -> Vec<u8> {
    let set = FileDescriptorSet::decode(set).expect("kept schemas are descriptor sets");
    let writer = Writer { set: &set };
    let ty = writer.message(&format!(".{type_name}")).expect("kept schemas have their types");
    let mut out = Vec::new();
    writer.write(ty, &mut Random(seed), 0, &mut out);
    out
}

/// SplitMix64, by Steele, Lea and Flood (2014), from a seed.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    ///
    /// # Panics
    /// If that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

struct Writer<'s> {
    set: &'s FileDescriptorSet,
}

impl<'s> Writer<'s> {
    /// The part of `full_name` behind each file's package.
    fn names<'n>(
        &self,
        full_name: &'n str,
    ) -> impl Iterator<Item = (&'s prost_types::FileDescriptorProto, &'n str)> {
        let set = self.set;
        set.file.iter().filter_map(move |file| {
            let rest = full_name.strip_prefix('.')?.strip_prefix(file.package())?;
            Some((file, rest.strip_prefix('.').unwrap_or(rest)))
        })
    }

    fn message(&self, full_name: &str) -> Option<&'s DescriptorProto> {
        self.names(full_name).find_map(|(file, path)| nested(&file.message_type, path))
    }

    fn enumeration(&self, full_name: &str) -> Option<&'s EnumDescriptorProto> {
        self.names(full_name).find_map(|(file, path)| {
            let (enums, name) = match path.rsplit_once('.') {
                Some((outer, name)) => (&nested(&file.message_type, outer)?.enum_type, name),
                None => (&file.enum_type, path),
            };
            enums.iter().find(|ty| ty.name() == name)
        })
    }

    fn write(&self, ty: &DescriptorProto, random: &mut Random, depth: u32, out: &mut Vec<u8>) {
        let mut fields: Vec<_> = ty.field.iter().collect();
        fields.sort_by_key(|field| field.number());
        for field in fields {
            let times = match field.label() {
                Label::Repeated => random.below(4),
                Label::Required => 1,
                Label::Optional => u64::from(random.below(3) != 0),
            };
            for _ in 0..times {
                self.field(field, random, depth, out);
            }
        }
    }

    fn field(&self, field: &FieldDescriptorProto, random: &mut Random, depth: u32, out: &mut Vec<u8>) {
        let tag = |wire_type: u64, out: &mut Vec<u8>| varint((field.number() as u64) << 3 | wire_type, out);
        match field.r#type() {
            Type::Message if depth < DEPTH => {
                let Some(ty) = self.message(field.type_name()) else { return };
                let mut inner = Vec::new();
                self.write(ty, random, depth + 1, &mut inner);
                tag(2, out);
                bytes(&inner, out);
            }
            // The kept schemas have no groups.
            Type::Message | Type::Group => {}
            Type::String | Type::Bytes => {
                let len = if random.below(24) == 0 { 512 + random.below(8192) } else { random.below(48) };
                let text: Vec<u8> = (0..len).map(|_| b'a' + random.below(26) as u8).collect();
                tag(2, out);
                bytes(&text, out);
            }
            Type::Double | Type::Fixed64 | Type::Sfixed64 => {
                tag(1, out);
                out.extend(random.next().to_le_bytes());
            }
            Type::Float | Type::Fixed32 | Type::Sfixed32 => {
                tag(5, out);
                out.extend((random.next() as u32).to_le_bytes());
            }
            Type::Bool => {
                tag(0, out);
                out.push(random.below(2) as u8);
            }
            Type::Enum => {
                let Some(ty) = self.enumeration(field.type_name()) else { return };
                let Some(value) = ty.value.get(random.below(ty.value.len().max(1) as u64) as usize) else {
                    return;
                };
                tag(0, out);
                varint(i64::from(value.number()) as u64, out);
            }
            Type::Int32 | Type::Uint32 | Type::Sint32 => {
                tag(0, out);
                varint((random.next() as u32 >> random.below(32)).into(), out);
            }
            Type::Int64 | Type::Uint64 | Type::Sint64 => {
                tag(0, out);
                varint(random.next() >> random.below(64), out);
            }
        }
    }
}

/// The message that `path` (`Outer.Inner`) names.
fn nested<'s>(types: &'s [DescriptorProto], path: &str) -> Option<&'s DescriptorProto> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let ty = types.iter().find(|ty| ty.name() == first)?;
    rest.map_or(Some(ty), |rest| nested(&ty.nested_type, rest))
}

fn varint(value: u64, out: &mut Vec<u8>) {
    prost::encoding::encode_varint(value, out);
}

fn bytes(bytes: &[u8], out: &mut Vec<u8>) {
    varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}
