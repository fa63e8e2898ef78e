//! Asks a program case after case.

use std::io;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::case::Case;
use crate::compare::compare;
use crate::program::{Program, Silence};
use crate::report::{Outcome, Report};

/// How often in a row a program may give no answer: then the rest is not asked.
const SILENCES: u32 = 3;

/// What to run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// How long it may take for an answer.
    pub time: Duration,
    /// Topics that it may leave out.
    pub allowed: Vec<String>,
}

/// Asks the program of `settings` for each case. One that gives no answer is started anew for the next.
///
/// # Errors
/// If the program can't be started.
pub fn run(cases: &[Case], settings: &Settings) -> io::Result<Report> {
    let mut report = Report::new(settings.allowed.clone());
    let mut program = Program::start(&settings.command)?;
    let mut silences = 0;
    for (id, case) in cases.iter().enumerate() {
        if silences == SILENCES {
            let words = format!("not asked: {SILENCES} answers in a row did not come");
            report.add(&case.topic, &case.name, &case.section, Outcome::Wrong(words));
            continue;
        }
        let outcome = match program.ask(question(id, case), settings.time) {
            Ok(line) => match answer(id, &line) {
                Ok(answer) => {
                    silences = 0;
                    report.add(&case.topic, &case.name, &case.section, compare(case, answer));
                    continue;
                }
                Err(words) => Outcome::Wrong(words),
            },
            Err(Silence::Late) => Outcome::Wrong(format!("no answer within {:?}", settings.time)),
            Err(Silence::Ended(words)) => Outcome::Wrong(format!("no answer: {words}")),
        };
        report.add(&case.topic, &case.name, &case.section, outcome);
        silences += 1;
        // Whatever it says from now on may be about an earlier case.
        program = Program::start(&settings.command)?;
    }
    Ok(report)
}

fn question(id: usize, case: &Case) -> String {
    let mut question = case.input.clone();
    question.insert("id".to_owned(), json!(id));
    question.insert("topic".to_owned(), json!(case.topic));
    question.insert("name".to_owned(), json!(case.name));
    format!("{}\n", Value::Object(question))
}

/// An answer's fields without its `id`.
fn answer(id: usize, line: &str) -> Result<Map<String, Value>, String> {
    let mut answer: Map<String, Value> =
        serde_json::from_str(line).map_err(|error| format!("the answer is no JSON object: {error}"))?;
    match answer.remove("id") {
        Some(said) if said == json!(id) => Ok(answer),
        said => Err(format!("the answer's id is {}, the question's was {id}", said.unwrap_or_default())),
    }
}
