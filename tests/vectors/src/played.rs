//! Cases that are played: rings, control words, messages of a stream between hosts, and conversations.

use serde_json::{Map, Value, json};

use crate::case::{Case, Expected, VectorError, array, form, parse, text};

const RING: &str = include_str!("../../../spec/vectors/ring.json");
const DEVICE: &str = include_str!("../../../spec/vectors/device.json");

fn fields(pairs: &[(&str, &Value)]) -> Map<String, Value> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).clone())).collect()
}

fn case(
    topic: &str,
    name: &str,
    section: &str,
    input: Map<String, Value>,
    answer: Map<String, Value>,
) -> Case {
    let [topic, name, section] = [topic, name, section].map(str::to_owned);
    Case { topic, name, section, input, expected: Expected::Fields(answer) }
}

/// Rings and the words of a control page.
pub(crate) fn rings(all: &mut Vec<Case>) -> Result<(), VectorError> {
    const FILE: &str = "ring.json";
    let file = parse(FILE, RING)?;
    let ring_len = &file["ring_len"];
    steps(FILE, &file, all)?;
    let simple = [
        ("ring-head", "heads", "wire.md, 5. Rings", &["position", "head_word"][..], &["found", "len"][..]),
        (
            "ring-cursor",
            "cursors",
            "wire.md, 5. Rings",
            &["published", "seen", "consumed"],
            &["found", "room"],
        ),
    ];
    for (topic, list, section, asked, answered) in simple {
        for entry in array(FILE, &file, list)? {
            let of = |names: &[&'static str]| {
                names.iter().map(|name| ((*name).to_owned(), entry[*name].clone())).collect::<Map<_, _>>()
            };
            let mut input = of(asked);
            input.insert("ring_len".to_owned(), ring_len.clone());
            all.push(case(topic, &text(FILE, entry, "name")?, section, input, of(answered)));
        }
    }
    for entry in array(FILE, &file, "load")? {
        let (input, answer) = (fields(&[("calls", &entry["calls"])]), fields(&[("load", &entry["load"])]));
        all.push(case("load", &format!("{} calls", entry["calls"]), "wire.md, 4. Regions", input, answer));
    }
    let words = array(FILE, &file, "waiting")?;
    for (count, entry) in words.iter().enumerate() {
        // The first is how it begins.
        let step = |word: &Value| match word["for_space"] == true {
            true => json!("park for space"),
            false => word["step"].clone(),
        };
        let steps: Vec<Value> = words[1..=count].iter().map(step).collect();
        let input = fields(&[("steps", &json!(steps))]);
        let name = format!("{count} steps");
        all.push(case(
            "waiting",
            &name,
            "wire.md, 6. Waiting",
            input,
            fields(&[("waiting", &entry["waiting"])]),
        ));
    }
    Ok(())
}

/// A case for each step, with all that is done before it.
fn steps(file: &'static str, ring: &Value, all: &mut Vec<Case>) -> Result<(), VectorError> {
    let (mut before, mut number) = (Vec::new(), 0);
    for (at, step) in array(file, ring, "steps")?.iter().enumerate() {
        let (asked, answered, name) = match step["publish"].as_array() {
            Some(lens) => {
                let mut payload = |len: &Value| {
                    // As the file says: byte `at` of record `number`.
                    let bytes = (0..len.as_u64().unwrap_or(0)).map(|at| (31 * number + at) as u8);
                    let digits = crate::to_hex(&bytes.collect::<Vec<u8>>());
                    number += 1;
                    digits
                };
                let payloads: Vec<String> = lens.iter().map(&mut payload).collect();
                (json!({ "publish": payloads }), &["records", "empty_head_offset"][..], "publish")
            }
            None => (json!({ "receive": step["receive"] }), &["consumed"][..], "receive"),
        };
        before.push(asked);
        let input = fields(&[("ring_len", &ring["ring_len"]), ("steps", &json!(before))]);
        let answer = answered.iter().map(|name| ((*name).to_owned(), step[*name].clone())).collect();
        all.push(case("ring", &format!("step {at}, {name}"), "wire.md, 5. Rings", input, answer));
    }
    Ok(())
}

/// Messages of a stream, whole and byte by byte.
pub(crate) fn devices(all: &mut Vec<Case>) -> Result<(), VectorError> {
    const FILE: &str = "device.json";
    let file = parse(FILE, DEVICE)?;
    for entry in file.as_array().ok_or_else(|| form(FILE, "cases", &file))? {
        let (name, messages) = (text(FILE, entry, "name")?, array(FILE, entry, "messages")?);
        let bytes =
            messages.iter().map(|message| text(FILE, message, "bytes")).collect::<Result<Vec<_>, _>>()?;
        let is_violation = messages.iter().any(|message| message["outcome"] != "taken");
        let mut answer = entry["mirror"].as_object().cloned().ok_or_else(|| form(FILE, "mirror", entry))?;
        answer.insert("violation".to_owned(), json!(is_violation));
        let single: Vec<&str> = bytes
            .iter()
            .flat_map(|bytes| bytes.as_bytes().chunks(2))
            .filter_map(|two| str::from_utf8(two).ok())
            .collect();
        for (name, pieces) in [(name.clone(), json!(bytes)), (format!("{name}, byte by byte"), json!(single))]
        {
            let input = fields(&[
                ("ring_len", &entry["ring_len"]),
                ("sent", &entry["sent"]),
                ("told", &entry["told"]),
                ("pieces", &pieces),
            ]);
            all.push(case("device", &name, "device.md, 11.3 Messages", input, answer.clone()));
        }
    }
    Ok(())
}

/// What either side of each conversation tells its application.
pub(crate) fn conversations(file: &Value, all: &mut Vec<Case>) -> Result<(), VectorError> {
    const FILE: &str = "frames.json";
    for (topic, own, told) in [
        ("conversation-to-server", "server", "server_is_told"),
        ("conversation-to-client", "client", "client_is_told"),
    ] {
        for entry in array(FILE, file, "conversations")? {
            let limits = entry["limits_of_both_sides"].as_object();
            let mut input = limits.cloned().ok_or_else(|| form(FILE, "limits_of_both_sides", entry))?;
            input.insert("pool".to_owned(), entry["pool"].clone());
            input.insert("frames".to_owned(), json!(met(array(FILE, entry, "frames")?, own)));
            let answer = entry[told].as_object().cloned().ok_or_else(|| form(FILE, told, entry))?;
            all.push(case(topic, &text(FILE, entry, "name")?, "wire.md, 9. Streams", input, answer));
        }
    }
    Ok(())
}

/// The frames of a conversation in the order in which one side says and hears them.
fn met(frames: &[Value], own: &str) -> Vec<Value> {
    let mut theirs =
        frames.iter().filter(|frame| frame["from"] != own).map(|frame| json!({ "heard": frame["hex"] }));
    let (mut met, mut heard) = (Vec::new(), 0);
    for frame in frames.iter().filter(|frame| frame["from"] == own) {
        while heard < frame["heard"].as_u64().unwrap_or(0) {
            met.extend(theirs.next());
            heard += 1;
        }
        met.push(json!({ "said": frame["hex"] }));
    }
    met.extend(theirs);
    met
}
