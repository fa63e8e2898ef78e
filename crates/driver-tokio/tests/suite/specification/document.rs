//! What the checker takes from the document itself: the tables of states, and where each violation stands.

use std::collections::BTreeMap;

/// The tables of `spec/wire.md` that say what may happen.
pub(crate) struct Document {
    /// State and event (`?MESSAGE`) to what follows, for client and server.
    states: [BTreeMap<(String, String), String>; 2],
    /// Names of violations in the vectors, and the places in section 17 where they stand.
    names: BTreeMap<String, Vec<String>>,
    /// Names of metadata that have an index.
    static_names: BTreeMap<u8, String>,
}

/// The rows of the first table behind a heading, without marks of code.
fn table(text: &str, heading: &str) -> Vec<Vec<String>> {
    let start = text.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no heading {heading:?}"));
    let lines = text[start..].lines().skip_while(|line| !line.starts_with('|'));
    let rows = lines.take_while(|line| line.starts_with('|'));
    let cells =
        |row: &str| row.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect();
    rows.map(cells).collect()
}

impl Document {
    pub(crate) fn read(text: &str) -> Document {
        let states = ["### Client", "### Server"].map(|heading| {
            let rows = table(text, heading);
            let mut states = BTreeMap::new();
            for row in &rows[2..] {
                for (event, next) in rows[0].iter().zip(row).skip(1) {
                    states.insert((row[0].clone(), event.clone()), next.clone());
                }
            }
            assert!(states.len() >= 50, "{heading} has {} fields", states.len());
            states
        });
        let names = table(text, "### Violations in the vectors");
        let names = names[2..].iter().map(|row| {
            let places = row[1].split(',').map(|place| place.trim().to_owned());
            (row[0].clone(), places.collect())
        });
        let static_names = table(text, "### Static names");
        let static_names = static_names[2..].iter();
        let static_names = static_names.map(|row| (row[0].parse().expect("an index"), row[1].clone()));
        Document { states, names: names.collect(), static_names: static_names.collect() }
    }

    /// The name of metadata with an index.
    pub(crate) fn static_name(&self, idx: u8) -> &str {
        &self.static_names[&idx]
    }

    /// What follows on an event in a state: another state, or a word that says that it may not be.
    pub(crate) fn next(&self, server: bool, state: &str, event: &str) -> &str {
        let key = (state.to_owned(), event.to_owned());
        self.states[usize::from(server)].get(&key).unwrap_or_else(|| panic!("no field for {key:?}"))
    }

    pub(crate) fn places(&self, name: &str) -> &[String] {
        self.names.get(name).unwrap_or_else(|| panic!("the document does not name the violation {name}"))
    }
}
