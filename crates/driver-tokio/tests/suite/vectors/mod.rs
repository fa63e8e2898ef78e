//! The test vectors of `spec/wire.md`: made by this code, kept in `spec/vectors`, and compared with it in every run.
//!
//! `TOLLFREE_WRITE_VECTORS=1 cargo test -p tollfree-driver-tokio --test suite vectors::` writes them anew; a change in them is a
//! change of the protocol.

mod frames;
mod handshake;
mod ring;
mod violations;

use std::path::Path;

use serde_json::Value;

/// Compares a file of vectors with what this code makes, or writes it where that is asked for.
fn hold(file: &str, made: &Value) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/vectors").join(file);
    if std::env::var_os("TOLLFREE_WRITE_VECTORS").is_some() {
        let text = serde_json::to_string_pretty(made).expect("vectors are plain data") + "\n";
        std::fs::create_dir_all(path.parent().expect("a file in a directory"))
            .expect("spec/vectors can be made");
        std::fs::write(&path, text).expect("spec/vectors can be written");
        return;
    }
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let kept: Value = serde_json::from_str(&text).unwrap_or_default();
    if let Some(place) = difference(made, &kept, String::new()) {
        panic!(
            "spec/vectors/{file} is not what this code does, at {place}: the protocol has changed, or the vectors have \
             to be written anew (TOLLFREE_WRITE_VECTORS=1)"
        );
    }
}

/// Where two values differ first.
fn difference(made: &Value, kept: &Value, place: String) -> Option<String> {
    match (made, kept) {
        (Value::Object(made), Value::Object(kept)) if made.len() == kept.len() => {
            let inner = |(key, value): (&String, &Value)| {
                difference(value, kept.get(key).unwrap_or(&Value::Null), format!("{place}/{key}"))
            };
            made.iter().find_map(inner)
        }
        (Value::Array(made), Value::Array(kept)) if made.len() == kept.len() => {
            let pairs = made.iter().zip(kept).enumerate();
            pairs.into_iter().find_map(|(idx, (made, kept))| difference(made, kept, format!("{place}/{idx}")))
        }
        _ => (made != kept).then_some(place),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
