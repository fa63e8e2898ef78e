//! A whole `build.rs` for level 2, in a crate that has its protos in `proto`. (Run as one, it writes to `OUT_DIR`.)

fn main() -> std::io::Result<()> {
    tollfree_build::configure().compile_protos(&["proto/greeter.proto"], &["proto"])
}
