//! What came of each case, in words and as JSON.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use serde_json::{Value, json};

/// What came of one case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The answer is right.
    Right,
    /// The program said that it has not implemented this.
    NotImplemented,
    /// The answer is wrong, no answer came, or none that can be read; in words.
    Wrong(String),
}

/// What came of all cases that were asked.
#[derive(Debug, Default)]
pub struct Report {
    cases: Vec<(String, String, String, Outcome)>,
    allowed: Vec<String>,
}

#[derive(Default)]
struct Count {
    right: usize,
    wrong: usize,
    not_implemented: usize,
}

impl Report {
    /// An empty one; the topics `allowed` may be not implemented.
    #[must_use]
    pub(crate) fn new(allowed: Vec<String>) -> Report {
        Report { cases: Vec::new(), allowed }
    }

    pub(crate) fn add(&mut self, topic: &str, name: &str, section: &str, outcome: Outcome) {
        self.cases.push((topic.to_owned(), name.to_owned(), section.to_owned(), outcome));
    }

    /// Whether all answers were right, but for what may be not implemented. A report without cases is not.
    #[must_use]
    pub fn is_right(&self) -> bool {
        !self.cases.is_empty() && self.cases.iter().all(|(topic, .., outcome)| self.passes(topic, outcome))
    }

    fn passes(&self, topic: &str, outcome: &Outcome) -> bool {
        match outcome {
            Outcome::Right => true,
            Outcome::NotImplemented => self.allowed.iter().any(|allowed| allowed == topic),
            Outcome::Wrong(_) => false,
        }
    }

    /// The outcome of a case.
    #[must_use]
    pub fn outcome(&self, topic: &str, name: &str) -> Option<&Outcome> {
        self.cases.iter().find(|case| case.0 == topic && case.1 == name).map(|case| &case.3)
    }

    /// Outcomes by topic and name, in the order of the cases.
    pub fn outcomes(&self) -> impl Iterator<Item = (&str, &str, &Outcome)> {
        self.cases.iter().map(|(topic, name, _, outcome)| (topic.as_str(), name.as_str(), outcome))
    }

    fn counts(&self) -> BTreeMap<&str, Count> {
        let mut counts: BTreeMap<&str, Count> = BTreeMap::new();
        for (topic, .., outcome) in &self.cases {
            let count = counts.entry(topic).or_default();
            match outcome {
                Outcome::Right => count.right += 1,
                Outcome::NotImplemented => count.not_implemented += 1,
                Outcome::Wrong(_) => count.wrong += 1,
            }
        }
        counts
    }

    /// The same as JSON: counts by topic, and what was not right.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let counts = self.counts().into_iter().map(|(topic, count)| {
            let counts = json!({ "right": count.right, "wrong": count.wrong, "not_implemented": count.not_implemented });
            (topic.to_owned(), counts)
        });
        let not_right = self.cases.iter().filter_map(|(topic, name, section, outcome)| {
            let words = match outcome {
                Outcome::Right => return None,
                Outcome::NotImplemented => "not implemented",
                Outcome::Wrong(words) => words,
            };
            Some(json!({ "topic": topic, "name": name, "section": section, "what": words, "passes": self.passes(topic, outcome) }))
        });
        json!({
            "passes": self.is_right(),
            "topics": counts.collect::<serde_json::Map<_, _>>(),
            "not_right": not_right.collect::<Vec<_>>(),
        })
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (topic, name, section, outcome) in &self.cases {
            match outcome {
                Outcome::Right => {}
                Outcome::NotImplemented => writeln!(f, "{topic}: {name}: not implemented ({section})")?,
                Outcome::Wrong(words) => writeln!(f, "{topic}: {name}: {words} ({section})")?,
            }
        }
        writeln!(f, "{:<22}{:>7}{:>7}{:>17}", "topic", "right", "wrong", "not implemented")?;
        for (topic, count) in self.counts() {
            writeln!(f, "{topic:<22}{:>7}{:>7}{:>17}", count.right, count.wrong, count.not_implemented)?;
        }
        f.write_str(if self.is_right() { "All is as specified." } else { "It does not pass." })
    }
}
