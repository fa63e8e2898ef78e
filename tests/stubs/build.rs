//! Generates stubs as any tonic user would, without protoc, and keeps the descriptors for the reflection service.

use prost::Message;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(
        ["probe.proto", "greeter.proto", "freight.proto", "sensors.proto", "relay.proto"],
        ["proto"],
    )?;
    let out = std::path::PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), files.encode_to_vec())?;
    let cargo = ["body", "parts"].map(|field| format!(".tollfree.freight.v1.Cargo.{field}"));
    let settings =
        cargo.into_iter().fold(tonic_prost_build::configure(), |settings, field| settings.bytes(field));
    settings.compile_fds(files)?;
    Ok(())
}
