//! The testee from the outside: its pipe, its answers, and what is linked into it.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use prost::Message;

const PROTOBUF: u8 = 1;
const JSON: u8 = 2;
const TEXT: u8 = 4;

/// A field of bytes; all here are short.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, value.len() as u8], value].concat()
}

fn request(payload: &[u8], form: u8, name: &str) -> Vec<u8> {
    [payload, &[3 << 3, form], &field(4, name.as_bytes())].concat()
}

/// Starts the testee with these requests on its pipe.
fn run(pipe: &[u8]) -> Output {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixture");
    let set = protox::compile(["conformance.proto"], [fixture]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("set.binpb");
    std::fs::write(&path, set.encode_to_vec()).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_tollfree-conformance"))
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(pipe).unwrap();
    child.wait_with_output().unwrap()
}

fn framed(request: &[u8]) -> Vec<u8> {
    [&(request.len() as u32).to_le_bytes(), request].concat()
}

/// The answers to these requests, each without its length.
fn answers(requests: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let done = run(&requests.iter().flat_map(|request| framed(request)).collect::<Vec<u8>>());
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut rest = &done.stdout[..];
    let mut answers = Vec::new();
    while let Some((len, behind)) = rest.split_first_chunk::<4>() {
        let (answer, behind) = behind.split_at(u32::from_le_bytes(*len) as usize);
        answers.push(answer.to_vec());
        rest = behind;
    }
    answers
}

#[test]
fn each_request_has_its_answer() {
    // Unpacked numbers and a merged message: what comes back is in another form than what went in.
    let message = [&[2 << 3, 5, 2 << 3, 6][..], &field(3, &field(1, b"a")), &field(3, &[2 << 3, 7])].concat();
    let expected = [field(2, &[5, 6]), field(3, &[field(1, b"a"), field(2, &[7])].concat())].concat();
    let sample = "conformance.Sample";
    let answers = answers(&[
        request(&field(1, b""), PROTOBUF, "conformance.FailureSet"),
        request(&field(1, &message), PROTOBUF, sample),
        request(&field(1, &field(1, b"\xff")), PROTOBUF, sample),
        request(&field(2, br#"{"text":"a"}"#), PROTOBUF, sample),
        request(&field(1, &message), JSON, sample),
        request(&field(1, &message), PROTOBUF, "conformance.Missing"),
        b"\x0a".to_vec(),
        request(&field(1, &message), TEXT, sample),
    ]);
    assert_eq!(answers.len(), 8);
    assert_eq!(answers[0], field(3, b""), "no failures are expected");
    assert_eq!(answers[1], field(3, &expected));
    let text = |idx: usize| String::from_utf8_lossy(&answers[idx][2..]).into_owned();
    assert_eq!(answers[2][0], 1 << 3 | 2, "a parse error");
    assert_eq!(text(2), "conformance.Sample.text: the string before byte 3 is not UTF-8");
    assert_eq!(answers[3], field(3, &field(1, b"a")), "from JSON");
    assert_eq!(answers[7][0], 5 << 3 | 2, "skipped");
    assert_eq!(answers[4][0], 4 << 3 | 2, "JSON");
    assert_eq!(text(4), r#"{"numbers":[5,6],"inner":{"text":"a","numbers":[7]}}"#);
    assert_eq!((answers[5][0], answers[6][0]), (2 << 3 | 2, 2 << 3 | 2), "never right");
    assert!(text(5).contains("conformance.Missing"), "{}", text(5));
}

#[test]
fn a_pipe_that_breaks_off_is_told() {
    for pipe in [&[9][..], &[9, 0, 0, 0, 1], &[0xff; 4]] {
        let done = run(pipe);
        assert_eq!(done.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&done.stderr).contains("pipe"), "{done:?}");
    }
    let usage = Command::new(env!("CARGO_BIN_EXE_tollfree-conformance")).output().unwrap();
    assert_eq!(usage.status.code(), Some(2));
}

/// What is proved is the engine: no other protobuf implementation is in the program.
#[test]
fn no_protobuf_library_is_linked() {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--package", "tollfree-conformance", "--edges", "normal,build"])
        .args(["--prefix", "none"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8(tree.stdout).unwrap();
    assert!(tree.contains("tollfree-processor"), "{tree}");
    for crate_name in tree.lines().filter_map(|line| line.split_whitespace().next()) {
        let other = ["prost", "protox", "protobuf", "buffa", "quick-protobuf"];
        assert!(!other.iter().any(|name| crate_name.starts_with(name)), "{crate_name} is linked:\n{tree}");
    }
}
