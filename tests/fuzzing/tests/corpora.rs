//! Replays the kept corpora of all fuzz targets.

use std::collections::BTreeSet;
use std::path::Path;

use tollfree_fuzzing::{TARGETS, builder, pack, stream_violation, unpack, violation_by};

/// Inputs that each corpus had when it was last written: one that has much fewer has lost its reach.
const INPUT_COUNTS: [(&str, usize); 9] = [
    ("builder", 234),
    ("handshake", 107),
    ("object", 141),
    ("protobuf", 297),
    ("ring", 74),
    ("session", 145),
    ("stream", 159),
    ("table", 20),
    ("thrift", 72),
];

/// Violations that the kept inputs of the session commit.
const REACHED: [&str; 9] =
    ["Chunk", "Control", "FrameKind", "FrameLen", "Metadata", "MethodIdx", "MethodPath", "Order", "StreamId"];

fn corpus_of(name: &str) -> Vec<u8> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../fuzz/corpus/{name}.bin"));
    std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

#[test]
fn every_kept_input_is_survived() {
    for ((name, target), (counted, count)) in TARGETS.iter().zip(INPUT_COUNTS) {
        assert_eq!(*name, counted, "every corpus is counted, in the order of the targets");
        let file = corpus_of(name);
        let inputs = unpack(&file).unwrap_or_else(|| panic!("the corpus of {name} is cut"));
        assert!(inputs.len() >= count / 2, "the corpus of {name} has {} inputs of {count}", inputs.len());
        for (idx, input) in inputs.iter().enumerate() {
            println!("{name} {idx}");
            target(input);
        }
        let again: Vec<Vec<u8>> = inputs.iter().map(|input| input.to_vec()).collect();
        assert!(pack(again) == file, "the corpus of {name} is not as it would be packed");
    }
}

#[test]
fn the_sessions_corpus_reaches_what_it_did() {
    let file = corpus_of("session");
    let violations = unpack(&file).expect("it is whole").into_iter().filter_map(violation_by);
    let name = |violation| format!("{violation:?}").split([' ', '(', '{']).next().unwrap().to_owned();
    let reached: BTreeSet<String> = violations.map(name).collect();
    let missing: Vec<_> = REACHED.iter().filter(|name| !reached.contains(**name)).collect();
    assert!(missing.is_empty(), "no kept input commits {missing:?}; reached {reached:?}");
}

/// Words of all that a message of a stream can do wrong.
const STREAM_REACHED: [&str; 7] = [
    "of no kind",
    "bits that mean nothing",
    "completes what was completed",
    "out of their turn",
    "more lines than were granted",
    "completion of what was not written",
    "more beats",
];

#[test]
fn the_streams_corpus_reaches_all_that_can_be_wrong_and_what_is_right() {
    let file = corpus_of("stream");
    let outcomes: Vec<_> = unpack(&file).expect("it is whole").into_iter().map(stream_violation).collect();
    let words: Vec<String> = outcomes.iter().flatten().map(ToString::to_string).collect();
    for part in STREAM_REACHED {
        assert!(words.iter().any(|words| words.contains(part)), "no kept input reaches {part:?}: {words:?}");
    }
    assert!(outcomes.iter().filter(|outcome| outcome.is_none()).count() > 10);
}

#[test]
fn a_cut_corpus_is_noticed() {
    let file = pack(vec![b"two".to_vec(), b"one".to_vec(), b"two".to_vec(), Vec::new()]);
    assert_eq!(unpack(&file), Some(vec![&b""[..], b"one", b"two"]));
    for len in [1, 5, file.len() - 1] {
        assert_eq!(unpack(&file[..len]), None, "{len} bytes of {}", file.len());
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
    let names: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(files, names);
}

/// Steps by a generator of random numbers, the same in each run: what the kept corpus reaches, and mixtures of it.
#[test]
fn builders_that_are_built_by_random_steps() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..400 {
        let len = next() % 400;
        let steps: Vec<u8> = (0..len).map(|_| (next() >> 24) as u8).collect();
        println!("{steps:?}");
        builder(&steps);
    }
}
