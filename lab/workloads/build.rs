//! Generates the services' stubs twice over the same messages, whose `bytes` fields are `Bytes`: as tonic's users do, and
//! as Tollfree's do. Once more they are stubs that take objects.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto/workloads.proto");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    let stock = out.join("stock");
    std::fs::create_dir_all(&stock)?;
    tonic_prost_build::configure()
        .extern_path(".tollfree.workloads.v1", "crate::direct")
        .out_dir(&stock)
        .compile_fds(protox::compile(["workloads.proto"], ["proto"])?)?;
    tollfree_build::configure()
        .bytes(".")
        .out_dir(&out)
        .compile_protos(&["proto/workloads.proto"], &["proto"])?;
    let objects = out.join("objects");
    std::fs::create_dir_all(&objects)?;
    tollfree_build::configure()
        .objects(".tollfree.workloads.v1")
        .views_path("crate::objects::views")
        .out_dir(&objects)
        .compile_protos(&["proto/workloads.proto"], &["proto"])?;
    Ok(())
}
