//! Every payload of the HyperProtoBench-like corpus comes out of JSON byte for byte as it went in.

use std::path::{Path, PathBuf};
use tollfree_json::{Unknown, read, write};
use tollfree_processor::{Arena, EncodeBuffer, Limits, Processor};
use tollfree_schema::Schema;

/// Where the outer corpora lie, if they do.
fn corpora() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpora");
    let dir = std::env::var_os("TOLLFREE_CORPORA").map_or(beside, PathBuf::from);
    dir.is_dir().then_some(dir)
}

fn through_json(p: &Processor, type_name: &str, payload: &[u8]) -> Vec<u8> {
    let type_idx = p.type_by_name(type_name).unwrap();
    let (mut arena, mut other) = (Arena::with_limit(1 << 27), Arena::with_limit(1 << 27));
    let object = p.decode(type_idx, payload, &mut arena, &Limits::default()).unwrap();
    let text = write(p, object.root()).unwrap();
    let wire = read(p, type_idx, &text, Unknown::Refuse).unwrap();
    let again = p.decode(type_idx, &wire, &mut other, &Limits::default()).unwrap();
    again.encode(&mut EncodeBuffer::new()).unwrap().to_vec()
}

#[test]
fn every_payload_survives_json() {
    let Some(dir) = corpora() else {
        println!("skipped: no corpora (set TOLLFREE_CORPORA)");
        return;
    };
    let dir = dir.join("hyperprotobench");
    let load = |name: &str| {
        let set = std::fs::read(dir.join(format!("{name}.fds.binpb"))).unwrap();
        Processor::new(Schema::from_descriptor_set(&set).unwrap().compile().unwrap())
    };
    let descriptor = load("descriptor");
    let mut seen = 0;
    for bench in 0..6 {
        let name = format!("bench{bench}");
        let processor = load(&name);
        for entry in std::fs::read_dir(dir.join(&name)).unwrap() {
            let path = entry.unwrap().path();
            let type_name = format!("hyperprotobench.{}", path.file_stem().unwrap().to_str().unwrap());
            let payload = std::fs::read(&path).unwrap();
            assert!(
                through_json(&processor, &type_name, &payload) == payload,
                "{type_name} of {name} differs"
            );
            seen += 1;
        }
        let payload = std::fs::read(dir.join(format!("{name}.fds.binpb"))).unwrap();
        let again = through_json(&descriptor, "google.protobuf.FileDescriptorSet", &payload);
        assert!(again == payload, "{name}.fds differs");
        seen += 1;
    }
    assert_eq!(seen, 66);
}
