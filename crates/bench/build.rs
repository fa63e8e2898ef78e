//! Generates the stubs of both services, as any tonic user would, without protoc; and once more as Tollfree's users do; and views of everyday messages.

use std::path::{Path, PathBuf};

use prost_types::FileDescriptorSet;
use protox::Compiler;
use protox::file::{ChainFileResolver, DescriptorSetFileResolver, IncludeFileResolver};

/// Schemas that another part keeps.
const SCHEMAS: &str = "../codec-peers/schemas";
/// The messages of NotNets' figure 1a and of Split gRPC's figure 2, by schema. Everything else in the schemas is left out, for it takes
/// long to compile.
const MESSAGES: [(&str, &[&str]); 3] =
    [("bench5", &["M54", "M34"]), ("bench3", &["M3"]), ("bench4", &["M43"])];
/// Where the everyday messages are kept, by another part.
const EVERYDAY: &str = "../view-stubs/proto";

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    println!("cargo::rerun-if-changed=proto");
    println!("cargo::rerun-if-changed={SCHEMAS}");
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
        .extern_path(".tollfree.bench.v1.Bytes", "crate::proto::Bytes")
        .bytes(".tollfree.bench.v1.HopRequest.body")
        .out_dir(direct)
        .compile_fds(services)?;
    tollfree_build::configure()
        .out_dir(everyday)
        .views(".shop")
        .compile_protos(&["shop.proto"], &[EVERYDAY])?;
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

fn services(large: FileDescriptorSet) -> Outcome<FileDescriptorSet> {
    let mut resolver = ChainFileResolver::new();
    resolver.add(IncludeFileResolver::new("proto".into()));
    resolver.add(DescriptorSetFileResolver::new(large));
    let mut compiler = Compiler::with_file_resolver(resolver);
    compiler.include_source_info(true).include_imports(true);
    compiler.open_files(["echo.proto", "hop.proto", "layers.proto", "split.proto"])?;
    Ok(compiler.file_descriptor_set())
}
