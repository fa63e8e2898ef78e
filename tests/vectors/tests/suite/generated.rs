//! Vectors of tables, objects and pools: made here, kept in `spec/vectors`, and compared in every run.
//!
//! `TOLLFREE_WRITE_VECTORS=1 cargo test -p tollfree-vectors generated::` writes them anew. What our own program answers to them
//! is tried in `runner.rs`; here nothing but bytes is made.

mod broken_tables;
mod descriptions;
mod objects;
mod pools;
mod schemas;
mod tables;

use std::path::Path;

use serde_json::{Value, json};

/// Compares a file of vectors with what is made here, or writes it where that is asked for.
fn hold(file: &str, cases: &[Value]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/vectors").join(file);
    let made = json!({ "cases": cases });
    if std::env::var_os("TOLLFREE_WRITE_VECTORS").is_some() {
        let text = serde_json::to_string_pretty(&made).expect("vectors are plain data") + "\n";
        std::fs::write(&path, text).expect("spec/vectors can be written");
        return;
    }
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let kept: Value = serde_json::from_str(&text).unwrap_or_default();
    assert!(
        kept == made,
        "spec/vectors/{file} is not what is made here: a format has changed, or the vectors have to be written anew \
         (TOLLFREE_WRITE_VECTORS=1)"
    );
}

fn case(topic: &str, name: &str, section: &str, input: Value, answer: Value) -> Value {
    json!({ "topic": topic, "name": name, "section": section, "input": input, "answer": answer })
}

/// One that has to be refused, with the reference's words.
fn refused(topic: &str, name: &str, section: &str, input: Value, words: String) -> Value {
    case(topic, name, section, input, json!({ "refused": words }))
}
