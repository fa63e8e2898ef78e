//! Generates the stubs of gRPC's test services as any tonic user would, and keeps the descriptors for reflection.

use prost::Message;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["grpc/testing/test.proto", "xds/service/orca/v3/orca.proto"], ["proto"])?;
    let out = std::path::PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), files.encode_to_vec())?;
    tonic_prost_build::configure().compile_fds(files)?;
    Ok(())
}
