//! Every payload of the HyperProtoBench-like corpus comes out byte for byte as it went in.

use tollfree_processor::Processor;
use tollfree_schema::Schema;

use crate::fixture::{again, corpora};

#[test]
fn every_payload_encodes_to_the_same_bytes() {
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
        let processor = load(&format!("bench{bench}"));
        for entry in std::fs::read_dir(dir.join(format!("bench{bench}"))).unwrap() {
            let path = entry.unwrap().path();
            let name = format!("hyperprotobench.{}", path.file_stem().unwrap().to_str().unwrap());
            let payload = std::fs::read(&path).unwrap();
            assert!(again(&processor, &name, &payload).unwrap() == payload, "{name} of bench{bench} differs");
            seen += 1;
        }
    }
    for name in ["bench0", "bench1", "bench2", "bench3", "bench4", "bench5", "descriptor"] {
        let payload = std::fs::read(dir.join(format!("{name}.fds.binpb"))).unwrap();
        let encoded = again(&descriptor, "google.protobuf.FileDescriptorSet", &payload).unwrap();
        assert!(encoded == payload, "{name}.fds differs");
        seen += 1;
    }
    assert_eq!(seen, 67);
}
