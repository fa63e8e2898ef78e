//! What is different between two configs.

use serde_json::Value;

/// Values that are longer are not shown.
const SHOWN_LEN: usize = 60;

/// The keys whose values differ, each with both values.
pub(super) fn between(old: &Value, new: &Value) -> Vec<String> {
    let mut changes = Vec::new();
    compare("", Some(old), Some(new), &mut changes);
    changes
}

fn compare(key: &str, old: Option<&Value>, new: Option<&Value>, changes: &mut Vec<String>) {
    match (old, new) {
        (old, new) if old == new => {}
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let mut keys: Vec<&String> = old.keys().chain(new.keys()).collect();
            keys.sort_unstable();
            keys.dedup();
            for inner in keys {
                let path = if key.is_empty() { inner.clone() } else { format!("{key}.{inner}") };
                compare(&path, old.get(inner), new.get(inner), changes);
            }
        }
        (old, new) => changes.push(format!("{key}: {} -> {}", shown(old), shown(new))),
    }
}

fn shown(value: Option<&Value>) -> String {
    let Some(value) = value else { return "none".into() };
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_LEN) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn changed_keys_are_told_with_both_values() {
        let of = |text: &str| Config::from_toml(text).unwrap();
        let old = of("limits.streams = 7\n[groups.a]\nservices = [\"x.A\"]\n[groups.b]\n");
        let new =
            of("limits.streams = 8\n[groups.a]\nservices = [\"x.A\", \"x.B\"]\ncalls = 5\n[groups.c]\n");
        let changes = old.changes(&new);
        let starts = [
            "groups.a.calls: none -> 5",
            "groups.a.services: [\"x.A\"] -> [\"x.A\",\"x.B\"]",
            "groups.b: {",
            "groups.c: none -> {",
            "limits.streams: 7 -> 8",
        ];
        assert_eq!(changes.len(), starts.len(), "{changes:#?}");
        for (change, start) in changes.iter().zip(starts) {
            assert!(change.starts_with(start), "{change}");
        }
        assert!(old.changes(&old).is_empty());
    }
}
