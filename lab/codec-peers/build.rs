//! Generates prost's and buffa's types for the kept schemas, and the list of them. No protoc.

use prost::Message;
use prost_types::FileDescriptorSet;
use std::fmt::Write;
use std::path::Path;

/// Where the schemas are kept.
const SCHEMAS: &str = "../bench/schemas";

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// The largest schema by far: buffa's borrowing types for it are 7 MB of source, which took longer to compile than
/// everything else together, for a row that no claim rests on.
const WITHOUT_VIEWS: &str = "bench2";

fn main() -> Outcome {
    println!("cargo::rerun-if-changed={SCHEMAS}");
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    let mut list = String::from("pub(crate) const GENERATED: &[Entry] = &[\n");
    for idx in 0..6 {
        let name = format!("bench{idx}");
        let path = std::env::current_dir()?.join(format!("{SCHEMAS}/{name}.fds.binpb"));
        let set = FileDescriptorSet::decode(&std::fs::read(&path)?[..])?;
        let views = name != WITHOUT_VIEWS;
        let buffa = if views { "BuffaWithView" } else { "Buffa" };
        for message in set.file.iter().flat_map(|file| &file.message_type) {
            let ty = message.name();
            writeln!(
                list,
                "Entry {{ schema: \"{name}\", type_name: \"hyperprotobench.{ty}\", \
                 prost: &Prost::<prost_types_of::{name}::{ty}>(PhantomData), \
                 buffa: &{buffa}::<buffa_types_of::{name}::hyperprotobench::{ty}>(PhantomData) }},"
            )?;
        }
        prost_types_of(&out.join(format!("prost_{name}")), set)?;
        buffa_types_of(&out.join(format!("buffa_{name}")), &path, views)?;
    }
    list.push_str("];\n");
    std::fs::write(out.join("entries.rs"), list)?;
    Ok(())
}

fn prost_types_of(dir: &Path, set: FileDescriptorSet) -> Outcome {
    std::fs::create_dir_all(dir)?;
    Ok(prost_build::Config::new().out_dir(dir).compile_fds(set)?)
}

fn buffa_types_of(dir: &Path, set: &Path, views: bool) -> Outcome {
    std::fs::create_dir_all(dir)?;
    buffa_build::Config::new()
        .descriptor_set(set)
        .files(&["benchmark.proto"])
        .out_dir(dir)
        .generate_views(views)
        .generate_with_setters(false)
        .include_file("mod.rs")
        .compile()
}
