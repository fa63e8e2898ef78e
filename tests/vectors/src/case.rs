//! The cases, read from the files of vectors.

use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::played;

/// Files whose cases stand in them as they are asked.
const FILES: [(&str, &str); 4] = [
    ("tables.json", include_str!("../../../spec/vectors/tables.json")),
    ("describe.json", include_str!("../../../spec/vectors/describe.json")),
    ("objects.json", include_str!("../../../spec/vectors/objects.json")),
    ("pools.json", include_str!("../../../spec/vectors/pools.json")),
];
/// Older forms, from which cases are made here.
const FRAMES: &str = include_str!("../../../spec/vectors/frames.json");
const HANDSHAKE: &str = include_str!("../../../spec/vectors/handshake.json");

/// Where the table stands that says at which places a violation of a vector may be found.
const WIRE: &str = include_str!("../../../spec/wire.md");
const PLACES: &str = "### Violations in the vectors";

/// What an implementation should say to a case.
#[derive(Debug, Clone, PartialEq)]
pub enum Expected {
    /// These fields, and no others.
    Fields(Map<String, Value>),
    /// That it refuses the input; the words are not compared.
    Refused,
    /// A violation, at one of these places of `spec/wire.md`, section 17.
    Violation(Vec<String>),
    /// An object that a verifier accepts and that encodes to this message. Its bytes are not compared: where its parts
    /// lie is the maker's choice.
    Object {
        /// The message, in hexadecimal digits.
        message: String,
    },
}

/// One question to an implementation.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// What it is about; decides which fields `input` has.
    pub topic: String,
    /// What it shows; with the topic, its name among all cases.
    pub name: String,
    /// The text that it follows from: file and heading.
    pub section: String,
    /// The fields of the question, without `id`, `topic`, `name`.
    pub input: Map<String, Value>,
    /// The right answer.
    pub expected: Expected,
}

/// Why vectors could not be read.
#[derive(Debug, Error)]
pub enum VectorError {
    /// A file is no JSON.
    #[error("spec/vectors/{file}: {error}")]
    Json {
        /// The file.
        file: &'static str,
        /// Why.
        error: serde_json::Error,
    },
    /// A case lacks something.
    #[error("spec/vectors/{file}: a case without {what}, or with another form of it: {case}")]
    Form {
        /// The file.
        file: &'static str,
        /// What it lacks.
        what: &'static str,
        /// The case's name, if it has one.
        case: String,
    },
}

/// All cases, in the order of the files.
///
/// # Errors
/// [`VectorError`] if a file of vectors is damaged.
pub fn cases() -> Result<Vec<Case>, VectorError> {
    let mut all = Vec::new();
    for (file, text) in FILES {
        for case in array(file, &parse(file, text)?, "cases")? {
            all.push(plain(file, case)?);
        }
    }
    let conversations = parse("frames.json", FRAMES)?;
    frames(&conversations, &mut all)?;
    played::conversations(&conversations, &mut all)?;
    played::rings(&mut all)?;
    played::devices(&mut all)?;
    handshake(&parse("handshake.json", HANDSHAKE)?, &mut all)?;
    Ok(all)
}

pub(crate) fn parse(file: &'static str, text: &str) -> Result<Value, VectorError> {
    serde_json::from_str(text).map_err(|error| VectorError::Json { file, error })
}

pub(crate) fn form(file: &'static str, what: &'static str, case: &Value) -> VectorError {
    VectorError::Form { file, what, case: case["name"].as_str().unwrap_or("(no name)").to_owned() }
}

pub(crate) fn array<'v>(
    file: &'static str,
    value: &'v Value,
    what: &'static str,
) -> Result<&'v Vec<Value>, VectorError> {
    value[what].as_array().ok_or_else(|| form(file, what, value))
}

pub(crate) fn text(file: &'static str, case: &Value, what: &'static str) -> Result<String, VectorError> {
    Ok(case[what].as_str().ok_or_else(|| form(file, what, case))?.to_owned())
}

fn object(file: &'static str, case: &Value, what: &'static str) -> Result<Map<String, Value>, VectorError> {
    Ok(case[what].as_object().ok_or_else(|| form(file, what, case))?.clone())
}

fn plain(file: &'static str, case: &Value) -> Result<Case, VectorError> {
    let topic = text(file, case, "topic")?;
    let answer = object(file, case, "answer")?;
    let expected = if answer.contains_key("refused") {
        Expected::Refused
    } else if topic == "decode" {
        Expected::Object { message: text(file, &case["answer"], "message")? }
    } else {
        Expected::Fields(answer)
    };
    let (name, section) = (text(file, case, "name")?, text(file, case, "section")?);
    Ok(Case { topic, name, section, input: object(file, case, "input")?, expected })
}

/// Places of `spec/wire.md`, section 17, by the name that a vector gives a violation.
fn places(violation: &str) -> Option<Vec<String>> {
    let table = WIRE.split(PLACES).nth(1)?.split("\n## ").next()?;
    let row = table.lines().find_map(|line| line.strip_prefix(&format!("| `{violation}` | ")))?;
    Some(row.trim_end_matches([' ', '|']).split(", ").map(str::to_owned).collect())
}

/// Violations to a server and to a client.
fn frames(file: &Value, all: &mut Vec<Case>) -> Result<(), VectorError> {
    const FILE: &str = "frames.json";
    let ends = [
        ("violation-to-server", "violations_to_a_server", "limits_of_that_server", Value::Array(Vec::new())),
        (
            "violation-to-client",
            "violations_to_a_client",
            "limits_of_that_client",
            file["that_client_has_said"].clone(),
        ),
    ];
    for (topic, list, limits, said) in ends {
        for case in array(FILE, file, list)? {
            let named = text(FILE, case, "violation")?;
            let places = places(&named).ok_or_else(|| form(FILE, "violation", case))?;
            let mut input = object(FILE, file, limits)?;
            input.insert("pool".to_owned(), case["pool"].clone());
            input.insert("said".to_owned(), said.clone());
            input.insert("before".to_owned(), case["before"].clone());
            input.insert("frame".to_owned(), case["hex"].clone());
            all.push(Case {
                topic: topic.to_owned(),
                name: text(FILE, case, "name")?,
                section: "wire.md, 17. Violations".to_owned(),
                input,
                expected: Expected::Violation(places),
            });
        }
    }
    Ok(())
}

/// Handshake messages: good ones, taken apart, and bad ones, refused.
fn handshake(file: &Value, all: &mut Vec<Case>) -> Result<(), VectorError> {
    const FILE: &str = "handshake.json";
    for case in array(FILE, file, "messages")? {
        let mut fields = case.as_object().cloned().ok_or_else(|| form(FILE, "fields", case))?;
        let (name, hex) = (text(FILE, case, "name")?, text(FILE, case, "hex")?);
        // A registration comes behind it.
        let hex = hex + case["body"].as_str().unwrap_or_default();
        fields.remove("name");
        fields.remove("hex");
        all.push(Case {
            topic: "handshake".to_owned(),
            name,
            section: "wire.md, 3. Handshake".to_owned(),
            input: Map::from_iter([("message".to_owned(), json!(hex))]),
            expected: Expected::Fields(fields),
        });
    }
    for (topic, list) in [("refused-by-server", "refused"), ("refused-by-gateway", "refused_by_gateways")] {
        for case in array(FILE, file, list)? {
            let input = [("message", &case["hex"]), ("region_len", &case["region_len"])];
            all.push(Case {
                topic: topic.to_owned(),
                name: text(FILE, case, "name")?,
                section: "wire.md, 3. Handshake".to_owned(),
                input: input.map(|(name, value)| (name.to_owned(), value.clone())).into_iter().collect(),
                expected: Expected::Fields(Map::from_iter([("reason".to_owned(), case["reason"].clone())])),
            });
        }
    }
    Ok(())
}
