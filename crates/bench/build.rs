//! Generates the echo service's stubs, as any tonic user would, without protoc; and once more as Tollfree's users do.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto/echo.proto");
    let files = protox::compile(["echo.proto"], ["proto"])?;
    tonic_prost_build::configure().compile_fds(files)?;
    let direct =
        std::path::PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?).join("direct");
    std::fs::create_dir_all(&direct)?;
    tollfree_build::configure()
        .build_blocking_client(true)
        .out_dir(direct)
        .compile_protos(&["proto/echo.proto"], &["proto"])?;
    Ok(())
}
