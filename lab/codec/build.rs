//! Generates everyday messages, of a schema that another part keeps: prost's structs, and views and builders of the same.

fn main() -> std::io::Result<()> {
    tollfree_build::configure()
        .views(".shop")
        .views_path("crate::views")
        .compile_protos(&["shop.proto"], &["../../tests/view-stubs/proto"])
}
