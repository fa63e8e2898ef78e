//! Replays the kept corpora of all fuzz targets.

use std::path::Path;

#[test]
fn every_kept_input_is_survived() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, target) in tollfree_fuzzing::TARGETS {
        let mut replayed = 0;
        for entry in std::fs::read_dir(corpora.join(name)).unwrap() {
            let path = entry.unwrap().path();
            let input = std::fs::read(&path).unwrap();
            println!("{}", path.display());
            target(&input);
            replayed += 1;
        }
        assert!(replayed >= 10, "the corpus of {name} has {replayed} inputs: it is empty, or nearly");
    }
}

#[test]
fn every_target_has_its_file() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets");
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    files.sort();
    let names: Vec<_> = tollfree_fuzzing::TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(files, names);
}
