//! The JSON schema of config files, made of the types and their comments. The file `schema.json` is what programs print; a test keeps it as the
//! types are.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;
use tollfree_control::Policy;

use super::Config;

/// A text or a number.
pub(super) struct WordOrNumber;

impl JsonSchema for WordOrNumber {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "WordOrNumber".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "integer"], "minimum": 0 })
    }
}

/// The name of a policy.
pub(super) struct PolicyName;

impl JsonSchema for PolicyName {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Policy".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": Policy::ALL.map(Policy::name) })
    }
}

/// Set, the test writes the file.
const WRITE: &str = "TOLLFREE_WRITE_SCHEMA";

fn schema() -> String {
    // Without a meta schema, editors take the one that they know.
    let settings = SchemaSettings::default().with(|settings| settings.meta_schema = None);
    let mut text =
        serde_json::to_string_pretty(&settings.into_generator().into_root_schema_for::<Config>()).unwrap();
    text.push('\n');
    text
}

#[test]
fn the_schema_is_as_the_types_are() {
    let (file, made) = (concat!(env!("CARGO_MANIFEST_DIR"), "/src/config/schema.json"), schema());
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(file, &made).unwrap();
    }
    let is = std::fs::read_to_string(file).unwrap();
    assert!(is == made, "write it by {WRITE}=1 cargo test -p tollfree-gateway --lib the_schema");
}

/// Each key of the effective config is in the schema, and unknown keys are refused by it.
#[test]
fn the_schema_knows_each_key() {
    let schema: Value = serde_json::from_str(Config::json_schema()).unwrap();
    let follow = |mut part: Value| loop {
        let Some(named) = part["$ref"].as_str() else { break part };
        part = schema["$defs"][named.rsplit('/').next().unwrap()].clone();
    };
    assert_eq!(schema["additionalProperties"], false);
    let config =
        serde_json::to_value(Config::from_toml("[groups.g]\n[listeners.a]\naddress = \"x:1\"\n").unwrap());
    for (section, values) in config.unwrap().as_object().unwrap() {
        let known = follow(schema["properties"][section].clone());
        let keys = known["properties"].as_object();
        match keys {
            Some(keys) => {
                for key in values.as_object().into_iter().flatten().map(|(key, _)| key) {
                    assert!(keys.contains_key(key), "{section}.{key}");
                }
            }
            None if !values.is_object() => assert!(known["type"].is_string(), "{section}: {known}"),
            None => {
                let items = ["additionalProperties", "items"].iter().any(|key| known[key].is_object());
                assert!(items, "{section}: {known}");
            }
        }
    }
}
