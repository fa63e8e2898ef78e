//! Generates the stubs of the same services as `tollfree-stubs`, with Tollfree's generator, and
//! blocking clients beside them. The second call has stubs that take objects; the third has such of a
//! later version of a schema, the fourth has streams of our own type, and the fifth unusual names, types and settings,
//! for a test to compile.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let out = std::env::var_os("OUT_DIR").ok_or_else(|| std::io::Error::other("cargo sets OUT_DIR"))?;
    tollfree_build::configure()
        .build_blocking_client(true)
        .file_descriptor_set_path(Path::new(&out).join("descriptors.bin"))
        .bytes(".tollfree.freight.v1.Cargo.body")
        .bytes(".tollfree.freight.v1.Cargo.parts")
        .compile_protos(
            &["probe.proto", "greeter.proto", "freight.proto", "sensors.proto", "relay.proto"],
            &["../stubs/proto"],
        )?;
    let objects = Path::new(&out).join("objects");
    std::fs::create_dir_all(&objects)?;
    tollfree_build::configure()
        .out_dir(&objects)
        .build_blocking_client(true)
        .objects(".tollfree.probe.v1")
        .objects(".tollfree.greeter.v1")
        .objects(".tollfree.sensors.v1")
        .objects("Freight.Unary")
        .objects("Freight.Both")
        .views_path("crate::objects::views")
        .compile_protos(
            &["probe.proto", "greeter.proto", "freight.proto", "sensors.proto"],
            &["../stubs/proto"],
        )?;
    let later = Path::new(&out).join("later");
    std::fs::create_dir_all(&later)?;
    tollfree_build::configure()
        .out_dir(&later)
        .objects(".tollfree.probe.v1")
        .views_path("crate::later::views")
        .compile_protos(&["later.proto"], &["proto"])?;
    let own = Path::new(&out).join("own");
    std::fs::create_dir_all(&own)?;
    tollfree_build::configure()
        .out_dir(&own)
        .build_blocking_client(true)
        .own_streaming(true)
        .bytes(".tollfree.freight.v1.Cargo.body")
        .objects(".tollfree.sensors.v1")
        .views_path("crate::own::views")
        .compile_protos(&["freight.proto", "sensors.proto"], &["../stubs/proto"])?;
    let unusual = Path::new(&out).join("unusual");
    std::fs::create_dir_all(&unusual)?;
    tollfree_build::configure()
        .out_dir(&unusual)
        .include_file("all.rs")
        .build_blocking_client(true)
        .use_arc_self(true)
        .generate_default_stubs(true)
        .bytes(".golden.kinds.v1")
        .compile_protos(&["kinds.proto", "bare.proto", "shadows.proto"], &["../../crates/build/tests/protos"])
}
