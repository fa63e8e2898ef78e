//! Generates the greeter's stubs for `tollfree demo`, as any tonic user would, without protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto/greeter.proto");
    let files = protox::compile(["greeter.proto"], ["proto"])?;
    tonic_prost_build::configure().compile_fds(files)?;
    Ok(())
}
