//! Our implementation's program for the test vectors: each answer is what the product's own code says.
//!
//! It shares no code with the runner but digits; `spec/runner.md` has the protocol.
#![forbid(unsafe_code)]

mod conversations;
mod doors;
mod memory;
mod rings;
mod sessions;
mod types;

use std::io::{self, BufRead, Write};
use std::process::ExitCode;

use serde_json::{Map, Value, json};
use tollfree_driver_tokio::Accepts;
use tollfree_vectors::from_hex;

use crate::doors::Door;

/// An answer's fields, or why the input is refused.
type Answer = Result<Value, String>;

/// A question's fields.
struct Question(Map<String, Value>);

impl Question {
    fn text(&self, field: &str) -> Result<&str, String> {
        self.0.get(field).and_then(Value::as_str).ok_or_else(|| format!("no text in {field}"))
    }

    fn number(&self, field: &str) -> Result<u64, String> {
        self.0.get(field).and_then(Value::as_u64).ok_or_else(|| format!("no number in {field}"))
    }

    fn bytes(&self, field: &str) -> Result<Vec<u8>, String> {
        from_hex(self.text(field)?).ok_or_else(|| format!("no hexadecimal digits in {field}"))
    }

    /// False where it is not there, too.
    fn flag(&self, field: &str) -> bool {
        self.0.get(field) == Some(&Value::Bool(true))
    }

    fn values(&self, field: &str) -> Result<&Vec<Value>, String> {
        self.0.get(field).and_then(Value::as_array).ok_or_else(|| format!("no list in {field}"))
    }

    fn list(&self, field: &str) -> Result<Vec<Vec<u8>>, String> {
        let bytes = |entry: &Value| entry.as_str().and_then(from_hex);
        self.values(field)?
            .iter()
            .map(bytes)
            .collect::<Option<_>>()
            .ok_or_else(|| format!("no hexadecimal digits in {field}"))
    }
}

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tollfree-vectors-ours: the runner's pipe: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What is opened when it is asked for the first time.
#[derive(Default)]
struct Doors {
    server: Option<Door>,
    gateway: Option<Door>,
}

impl Doors {
    fn answer(&mut self, accepts: Accepts, question: &Question) -> Answer {
        let door = match accepts {
            Accepts::Backends => &mut self.gateway,
            Accepts::Callers => &mut self.server,
        };
        let door = match door {
            Some(door) => door,
            None => door.insert(Door::open(accepts)?),
        };
        door.answer(question)
    }
}

fn serve() -> io::Result<()> {
    let mut doors = Doors::default();
    let (from, mut to) = (io::stdin().lock(), io::stdout().lock());
    for line in from.lines() {
        let question = Question(serde_json::from_str(&line?)?);
        let mut answer = match answer(&mut doors, &question) {
            Some(Ok(answer)) => answer,
            Some(Err(words)) => json!({ "refused": words }),
            None => json!({ "not_implemented": true }),
        };
        answer["id"] = question.0.get("id").cloned().unwrap_or_default();
        writeln!(to, "{answer}")?;
        to.flush()?;
    }
    Ok(())
}

/// None for a topic that is not known.
fn answer(doors: &mut Doors, question: &Question) -> Option<Answer> {
    let answer = match question.text("topic").unwrap_or_default() {
        "table" => types::table(question),
        "fingerprint" => types::fingerprint(question),
        "describe" => types::describe(question),
        "decode" => types::decode(question),
        "verify" => types::verify(question),
        "extent" => memory::extent(question),
        "ref" => memory::block_ref(question),
        "ref-tag" => memory::tag(question),
        "take" => memory::take(question),
        "pool-member" => memory::member(question),
        "pool-words" => memory::words(question),
        "pool-message" => memory::message(question),
        "ring" => rings::ring(question),
        "ring-head" => rings::head(question),
        "ring-cursor" => rings::cursor(question),
        "load" => rings::load(question),
        "waiting" => rings::waiting(question),
        "device" => rings::device(question),
        "conversation-to-server" => conversations::to_server(question),
        "conversation-to-client" => conversations::to_client(question),
        "handshake" => memory::handshake(question),
        "refused-by-server" => doors.answer(Accepts::Callers, question),
        "refused-by-gateway" => doors.answer(Accepts::Backends, question),
        "violation-to-server" => sessions::to_server(question),
        "violation-to-client" => sessions::to_client(question),
        _ => return None,
    };
    Some(answer)
}
