//! Generates the stubs of all services, as any tonic user would, without protoc; once more as Tollfree's users do; and of some, stubs that
//! take objects. What reads and builds the messages of those is written, too.

mod walks;

use std::path::{Path, PathBuf};

use prost_types::{DescriptorProto, FileDescriptorProto, FileDescriptorSet};
use protox::Compiler;
use protox::file::{ChainFileResolver, DescriptorSetFileResolver, IncludeFileResolver};

/// Where the large messages are kept.
const SCHEMAS: &str = "schemas";
/// The messages of NotNets' figure 1a and of Split gRPC's figure 2, by schema. Everything else in the schemas is left out, for it takes
/// long to compile.
const MESSAGES: [(&str, &[&str]); 3] =
    [("bench5", &["M54", "M34"]), ("bench3", &["M3"]), ("bench4", &["M43"])];
/// The schema of descriptor sets, which are messages, too.
const DESCRIPTOR: &str = "descriptor";
/// The package that they have here, so that they are no types of prost's own.
const FDS: &str = "fds";
/// The messages that are read and built field by field.
const WALKED: [&str; 5] = [
    ".hyperprotobench.M3",
    ".hyperprotobench.M43",
    ".hyperprotobench.M34",
    ".shop.Order",
    ".fds.FileDescriptorSet",
];
/// Where the everyday messages are kept, by another part.
const EVERYDAY: &str = "../../tests/view-stubs/proto";

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    println!("cargo::rerun-if-changed=proto");
    println!("cargo::rerun-if-changed={SCHEMAS}");
    println!("cargo::rerun-if-changed={EVERYDAY}");
    let mut large = schema()?;
    large.file.push(descriptors()?);
    let all = services(large.clone(), &["echo", "hop", "layers", "messages", "split", "stream"])?;
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    // Directories of their own: the files have the same names as others.
    let [messages, direct, objects] = ["messages", "direct", "objects"].map(|name| out.join(name));
    for dir in [&messages, &direct, &objects] {
        std::fs::create_dir_all(dir)?;
    }
    std::fs::write(out.join("walks.rs"), walks::text(&all, &WALKED))?;
    tonic_prost_build::configure().out_dir(messages).compile_fds(large.clone())?;
    tonic_prost_build::configure()
        .extern_path(".hyperprotobench", "crate::hyperprotobench")
        .extern_path(".fds", "crate::fds")
        .extern_path(".shop", "crate::shop")
        .compile_fds(all.clone())?;
    tollfree_build::configure()
        .build_blocking_client(true)
        .own_streaming(true)
        .extern_path(".hyperprotobench", "crate::hyperprotobench")
        .extern_path(".fds", "crate::fds")
        .extern_path(".shop", "crate::shop")
        .extern_path(".tollfree.bench.v1.HelloWorld", "crate::proto::HelloWorld")
        .extern_path(".tollfree.bench.v1.Bytes", "crate::proto::Bytes")
        .extern_path(".tollfree.bench.v1.StreamAsk", "crate::proto::StreamAsk")
        .extern_path(".tollfree.bench.v1.StreamItem", "crate::proto::StreamItem")
        .extern_path(".tollfree.bench.v1.StreamSum", "crate::proto::StreamSum")
        .bytes(".tollfree.bench.v1.HopRequest.body")
        .out_dir(direct)
        .compile_fds(all)?;
    tollfree_build::configure()
        .extern_path(".hyperprotobench", "crate::hyperprotobench")
        .extern_path(".fds", "crate::fds")
        .own_streaming(true)
        .objects(".tollfree.bench.v1")
        .views(".shop")
        .views_path("crate::objects::views")
        .out_dir(objects)
        .compile_fds(services(large, &["echo", "messages", "split", "stream"])?)?;
    Ok(())
}

/// One file with all of them: they have one package, and no name twice.
fn schema() -> Outcome<FileDescriptorSet> {
    let mut all: Option<FileDescriptorSet> = None;
    for (schema, names) in MESSAGES {
        let bytes = std::fs::read(Path::new(SCHEMAS).join(format!("{schema}.fds.binpb")))?;
        let mut set: FileDescriptorSet = prost::Message::decode(&bytes[..])?;
        for file in &mut set.file {
            file.message_type.retain(|message| names.contains(&message.name()));
        }
        match &mut all {
            None => all = Some(set),
            Some(all) => all.file[0].message_type.append(&mut set.file[0].message_type),
        }
    }
    all.ok_or_else(|| "there are schemas".into())
}

/// The types of descriptor sets, in a package of their own.
fn descriptors() -> Outcome<FileDescriptorProto> {
    let bytes = std::fs::read(Path::new(SCHEMAS).join(format!("{DESCRIPTOR}.fds.binpb")))?;
    let mut set: FileDescriptorSet = prost::Message::decode(&bytes[..])?;
    let mut file = set.file.pop().ok_or("a descriptor set has a file")?;
    let package = format!(".{}.", file.package());
    file.name = Some(format!("{FDS}.proto"));
    file.package = Some(FDS.to_owned());
    file.options = None;
    file.message_type.iter_mut().for_each(|message| renamed(message, &package));
    Ok(file)
}

fn renamed(message: &mut DescriptorProto, package: &str) {
    for field in &mut message.field {
        if let Some(name) = field.type_name().strip_prefix(package) {
            field.type_name = Some(format!(".{FDS}.{name}"));
        }
    }
    message.nested_type.iter_mut().for_each(|nested| renamed(nested, package));
}

fn services(large: FileDescriptorSet, names: &[&str]) -> Outcome<FileDescriptorSet> {
    let mut resolver = ChainFileResolver::new();
    resolver.add(IncludeFileResolver::new("proto".into()));
    resolver.add(IncludeFileResolver::new(EVERYDAY.into()));
    resolver.add(DescriptorSetFileResolver::new(large));
    let mut compiler = Compiler::with_file_resolver(resolver);
    compiler.include_source_info(true).include_imports(true);
    compiler.open_files(names.iter().map(|name| format!("{name}.proto")))?;
    Ok(compiler.file_descriptor_set())
}
