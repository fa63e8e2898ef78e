//! Generates the stubs of both services, as any tonic user would, without protoc; and once more as Tollfree's users do; and views of everyday messages.

use std::path::{Path, PathBuf};

use prost_types::FileDescriptorSet;
use protox::Compiler;
use protox::file::{ChainFileResolver, DescriptorSetFileResolver, IncludeFileResolver};

/// The schema with the large message of NotNets' figure 1a, kept by another part.
const SCHEMA: &str = "../codec-peers/schemas/bench5.fds.binpb";
/// That message: everything else in the schema is left out, for it takes long to compile.
const LARGE: &str = "M54";
/// Where the everyday messages are kept, by another part.
const EVERYDAY: &str = "../view-stubs/proto";

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    println!("cargo::rerun-if-changed=proto");
    println!("cargo::rerun-if-changed={SCHEMA}");
    let large = schema()?;
    let services = services(large.clone())?;
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    // Directories of their own: the files have the same names as others.
    let (messages, direct, everyday) = (out.join("messages"), out.join("direct"), out.join("everyday"));
    std::fs::create_dir_all(&messages)?;
    std::fs::create_dir_all(&direct)?;
    std::fs::create_dir_all(&everyday)?;
    tonic_prost_build::configure().out_dir(messages).compile_fds(large)?;
    tonic_prost_build::configure()
        .extern_path(".hyperprotobench", "crate::hyperprotobench")
        .compile_fds(services.clone())?;
    tollfree_build::configure()
        .build_blocking_client(true)
        .extern_path(".hyperprotobench", "crate::hyperprotobench")
        .extern_path(".tollfree.bench.v1.HelloWorld", "crate::proto::HelloWorld")
        .bytes(".tollfree.bench.v1.HopRequest.body")
        .out_dir(direct)
        .compile_fds(services)?;
    tollfree_build::configure()
        .out_dir(everyday)
        .views(".shop")
        .compile_protos(&["shop.proto"], &[EVERYDAY])?;
    Ok(())
}

fn schema() -> Outcome<FileDescriptorSet> {
    let mut set: FileDescriptorSet = prost::Message::decode(&std::fs::read(Path::new(SCHEMA))?[..])?;
    for file in &mut set.file {
        file.message_type.retain(|message| message.name() == LARGE);
    }
    Ok(set)
}

fn services(large: FileDescriptorSet) -> Outcome<FileDescriptorSet> {
    let mut resolver = ChainFileResolver::new();
    resolver.add(IncludeFileResolver::new("proto".into()));
    resolver.add(DescriptorSetFileResolver::new(large));
    let mut compiler = Compiler::with_file_resolver(resolver);
    compiler.include_source_info(true).include_imports(true);
    compiler.open_files(["echo.proto", "hop.proto", "layers.proto"])?;
    Ok(compiler.file_descriptor_set())
}
