//! The kept schemas, as descriptor sets. Where they come from is in `schemas/NOTICE.md`.

use crate::BenchError;

/// A kept descriptor set.
#[derive(Debug, Clone, Copy)]
pub struct Schema {
    /// Its name, as the corpus has it: `bench0`, `descriptor`, …
    pub name: &'static str,
    /// The bytes of a `google.protobuf.FileDescriptorSet`.
    pub descriptor_set: &'static [u8],
}

/// All kept descriptor sets.
pub const SCHEMAS: &[Schema] = &[
    Schema { name: "bench0", descriptor_set: include_bytes!("../schemas/bench0.fds.binpb") },
    Schema { name: "bench1", descriptor_set: include_bytes!("../schemas/bench1.fds.binpb") },
    Schema { name: "bench2", descriptor_set: include_bytes!("../schemas/bench2.fds.binpb") },
    Schema { name: "bench3", descriptor_set: include_bytes!("../schemas/bench3.fds.binpb") },
    Schema { name: "bench4", descriptor_set: include_bytes!("../schemas/bench4.fds.binpb") },
    Schema { name: "bench5", descriptor_set: include_bytes!("../schemas/bench5.fds.binpb") },
    Schema { name: "descriptor", descriptor_set: include_bytes!("../schemas/descriptor.fds.binpb") },
];

/// The descriptor set of that name.
///
/// # Errors
/// [`BenchError::Refused`] if it isn't kept.
pub fn kept(name: &str) -> Result<&'static [u8], BenchError> {
    let kept = SCHEMAS.iter().find(|kept| kept.name == name).map(|kept| kept.descriptor_set);
    kept.ok_or_else(|| BenchError::Refused(format!("the schema {name} is not kept")))
}
