//! The messages that are measured: a corpus' or generated ones.

use std::path::Path;

use tollfree_bench::BenchError;
use tollfree_bench::lookalike;
use tollfree_bench::schemas::SCHEMAS;

/// One message and its schema.
#[derive(Clone)]
pub(super) struct Payload {
    /// `bench3/M3`, or `bench2.fds` for a descriptor set that is a payload itself.
    pub name: String,
    /// Name of the schema.
    pub schema: String,
    pub descriptor_set: Vec<u8>,
    pub type_name: String,
    pub bytes: Vec<u8>,
}

const SET_TYPE: &str = "google.protobuf.FileDescriptorSet";

/// The directories in which a corpus may lie: the one that was named, and those in it.
pub(super) fn places(dir: &Path) -> Result<Vec<std::path::PathBuf>, BenchError> {
    let mut places = listed(dir)?;
    places.retain(|place| place.is_dir());
    places.insert(0, dir.to_owned());
    Ok(places)
}

/// All payloads of a corpus, if there is one: `<schema>.fds.binpb` and beside it a directory of messages,
/// `<schema>/<type>.binpb`. The descriptor sets are payloads, too, where `descriptor.fds.binpb` is there.
pub(super) fn from_corpus(dir: &Path) -> Result<Vec<Payload>, BenchError> {
    let mut payloads = Vec::new();
    let descriptor = dir.join("descriptor.fds.binpb");
    let descriptor = descriptor.is_file().then(|| read(&descriptor)).transpose()?;
    for path in listed(dir)? {
        let Some(schema) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".fds.binpb")) else {
            continue;
        };
        let set = read(&path)?;
        let folder = dir.join(schema);
        for message in if folder.is_dir() { listed(&folder)? } else { Vec::new() } {
            let Some(ty) = message.file_name().and_then(|name| name.to_str()?.strip_suffix(".binpb")) else {
                continue;
            };
            let type_name = root_type(&set, ty).ok_or_else(|| {
                BenchError::Refused(format!("{}: the schema {schema} has no message {ty}", message.display()))
            })?;
            payloads.push(Payload {
                name: format!("{schema}/{ty}"),
                schema: schema.to_owned(),
                descriptor_set: set.clone(),
                type_name,
                bytes: read(&message)?,
            });
        }
        if let Some(descriptor_set) = &descriptor {
            payloads.push(structured(schema, descriptor_set.clone(), set));
        }
    }
    payloads.sort_by(|a, b| (a.bytes.len(), &a.name).cmp(&(b.bytes.len(), &b.name)));
    Ok(payloads)
}

/// Messages of the kept schemas' types with seeded contents, and the schemas themselves as messages.
pub(super) fn lookalikes(seed: u64) -> Vec<Payload> {
    let descriptor = SCHEMAS.iter().find(|schema| schema.name == "descriptor").expect("it is kept");
    let mut payloads: Vec<Payload> = tollfree_codec_peers::entries()
        .filter(|entry| entry.schema != descriptor.name)
        .enumerate()
        .map(|(idx, entry)| {
            let set =
                SCHEMAS.iter().find(|schema| schema.name == entry.schema).expect("an entry has its schema");
            Payload {
                name: format!("{}/{}", entry.schema, entry.type_name.rsplit('.').next().unwrap_or_default()),
                schema: entry.schema.to_owned(),
                descriptor_set: set.descriptor_set.to_vec(),
                type_name: entry.type_name.to_owned(),
                bytes: lookalike::message(set.descriptor_set, entry.type_name, seed.wrapping_add(idx as u64)),
            }
        })
        .collect();
    payloads.extend(SCHEMAS.iter().map(|schema| {
        structured(schema.name, descriptor.descriptor_set.to_vec(), schema.descriptor_set.to_vec())
    }));
    payloads
}

fn structured(name: &str, descriptor_set: Vec<u8>, bytes: Vec<u8>) -> Payload {
    Payload {
        name: format!("{name}.fds"),
        schema: "descriptor".to_owned(),
        descriptor_set,
        type_name: SET_TYPE.to_owned(),
        bytes,
    }
}

/// Full name of the top-level message `short`.
fn root_type(set: &[u8], short: &str) -> Option<String> {
    let set = <prost_types::FileDescriptorSet as prost::Message>::decode(set).ok()?;
    let file = set.file.iter().find(|file| file.message_type.iter().any(|ty| ty.name() == short))?;
    Some(if file.package().is_empty() { short.to_owned() } else { format!("{}.{short}", file.package()) })
}

fn listed(dir: &Path) -> Result<Vec<std::path::PathBuf>, BenchError> {
    let entries = std::fs::read_dir(dir).and_then(|dir| dir.map(|entry| Ok(entry?.path())).collect());
    let mut paths: Vec<_> = entries.map_err(|error| unreadable(dir, &error))?;
    paths.sort();
    Ok(paths)
}

fn read(path: &Path) -> Result<Vec<u8>, BenchError> {
    std::fs::read(path).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &std::io::Error) -> BenchError {
    BenchError::Refused(format!("cannot read {}: {error}", path.display()))
}
