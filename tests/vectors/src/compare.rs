//! An answer against the right one.

use serde_json::{Map, Value};
use tollfree_layout::table::Table;
use tollfree_processor::{EncodeBuffer, Processor};

use crate::case::{Case, Expected};
use crate::hex::{from_hex, to_hex};
use crate::report::Outcome;

/// Deepest nesting of the objects that are made for cases.
const DEPTH: u32 = 100;

/// What an answer is worth. `id` is taken out of it already.
pub(crate) fn compare(case: &Case, mut answer: Map<String, Value>) -> Outcome {
    if answer.get("not_implemented") == Some(&Value::Bool(true)) {
        return Outcome::NotImplemented;
    }
    let right = match &case.expected {
        Expected::Refused => answer.get("refused").is_some_and(Value::is_string),
        Expected::Violation(places) => {
            answer.len() == 1
                && answer
                    .get("violation")
                    .and_then(Value::as_str)
                    .is_some_and(|said| places.iter().any(|place| place == said))
        }
        Expected::Object { message } => match answer.remove("object").as_ref().and_then(Value::as_str) {
            Some(object) => match encoded(case, object) {
                Ok(encoded) if encoded == *message => true,
                Ok(encoded) => {
                    return Outcome::Wrong(format!("the object encodes to {encoded}, right is {message}"));
                }
                Err(words) => return Outcome::Wrong(words),
            },
            None => false,
        },
        Expected::Fields(fields) => answer == *fields,
    };
    if right { Outcome::Right } else { Outcome::Wrong(difference(&case.expected, &answer)) }
}

fn difference(expected: &Expected, answer: &Map<String, Value>) -> String {
    let said = Value::Object(answer.clone());
    match expected {
        Expected::Refused => format!("it has to be refused; the answer is {said}"),
        Expected::Violation(places) => {
            format!("it is a violation at \"{}\"; the answer is {said}", places.join("\" or \""))
        }
        Expected::Object { .. } => format!("an object is asked for; the answer is {said}"),
        Expected::Fields(fields) => {
            let wrong = |(key, right): (&String, &Value)| {
                let found = answer.get(key).unwrap_or(&Value::Null);
                (found != right).then(|| format!("{key}: {found}, right is {right}"))
            };
            let other = answer
                .keys()
                .filter(|key| !fields.contains_key(*key))
                .map(|key| format!("{key}: not asked for"));
            fields.iter().filter_map(wrong).chain(other).collect::<Vec<_>>().join("; ")
        }
    }
}

/// The message of an object that an implementation has made.
fn encoded(case: &Case, object: &str) -> Result<String, String> {
    let field = |name: &str| case.input.get(name).and_then(Value::as_str).unwrap_or_default();
    let table =
        Table::load(&from_hex(field("table")).unwrap_or_default()).map_err(|error| error.to_string())?;
    let processor = Processor::new(table);
    let type_idx = processor.type_by_name(field("type")).ok_or("the case's table lacks its type")?;
    let object = from_hex(object).ok_or("the object is not in hexadecimal digits")?;
    let object = processor
        .verify(type_idx, &object, DEPTH)
        .map_err(|error| format!("the object is not sound: {error}"))?;
    let mut buffer = EncodeBuffer::new();
    object.encode(&mut buffer).map(to_hex).map_err(|error| error.to_string())
}
