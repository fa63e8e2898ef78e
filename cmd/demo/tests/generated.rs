//! The kept stubs are what tonic's generator makes of the proto.

#[test]
fn the_stubs_are_those_of_the_proto() {
    let here = env!("CARGO_MANIFEST_DIR");
    let files = protox::compile(["greeter.proto"], [format!("{here}/proto")]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    tonic_prost_build::configure().out_dir(dir.path()).compile_fds(files).unwrap();
    let name = "tollfree.demo.v1.rs";
    let generated = std::fs::read_to_string(dir.path().join(name)).unwrap();
    let kept = std::fs::read_to_string(format!("{here}/src/generated/{name}")).unwrap();
    assert!(generated == kept, "src/generated/{name} is out of date. The generator makes:\n{generated}");
}
