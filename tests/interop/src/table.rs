//! The results as tables, what is wrong with them, and the document that shows them.

use std::fmt::Write as _;
use std::path::Path;

use tollfree_interop::cases::CASES;

use crate::Error;
use crate::pairings::{Column, Outcome};
use crate::tools::{Check, WAYS};

const BEGIN: &str = "<!-- results: written and compared by tests/interop -->\n";
const END: &str = "<!-- end of results -->\n";

/// What `make interop` uses of others: names, and the modules of go.mod.
pub(crate) const MODULES: [(&str, &str); 3] = [
    ("grpc-go", "google.golang.org/grpc"),
    ("grpcurl", "github.com/fullstorydev/grpcurl"),
    ("ghz", "github.com/bojand/ghz"),
];

/// Versions of what came from elsewhere.
pub(crate) struct Versions(Vec<(&'static str, String)>);

impl Versions {
    /// Reads them from the go.mod that pins them.
    pub(crate) fn read(path: &Path, modules: &[(&'static str, &str)]) -> Result<Versions, Error> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let version = |module: &str| {
            let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            let line = lines.find(|words| words.first() == Some(&module) && words.len() > 1)?;
            Some(line[1].to_owned())
        };
        let versions = modules.iter().map(|&(name, module)| {
            let version = version(module).ok_or(format!("{} pins no {module}", path.display()))?;
            Ok::<_, Error>((name, version))
        });
        Ok(Versions(versions.collect::<Result<_, _>>()?))
    }

    /// One more, which no go.mod pins.
    pub(crate) fn push(&mut self, name: &'static str, version: String) {
        self.0.push((name, version));
    }

    /// The sentence that heads the results.
    pub(crate) fn line(&self) -> String {
        let versions: Vec<_> = self.0.iter().map(|(name, version)| format!("{name} {version}")).collect();
        format!("\nAgainst {}.\n\n", versions.join(", "))
    }
}

/// What is not as it should be: failures, cases that were not run, and absences that nobody expects any more.
pub(crate) fn failures(columns: &[Column], checks: &[Check]) -> Vec<String> {
    let mut failures = Vec::new();
    for Column { pairing, outcomes } in columns {
        for (idx, case) in CASES.iter().enumerate() {
            let place = format!(
                "{}: {} client, {} server, {}",
                case.name, pairing.client, pairing.server, pairing.way
            );
            match (outcomes.get(idx), pairing.lacks(case.name)) {
                (Some(Outcome::Passed), false) | (Some(Outcome::Absent), true) => {}
                (Some(Outcome::Passed), true) => {
                    failures.push(format!("{place}: it passes, and the other side is said to lack it"));
                }
                (Some(Outcome::Absent), false) => {
                    failures.push(format!("{place}: the other side does not have what it is about"));
                }
                (Some(Outcome::Failed(reason)), _) => failures.push(format!("{place}: {reason}")),
                (None, _) => failures.push(format!("{place}: it was not run")),
            }
        }
    }
    for check in checks {
        for (outcome, way) in check.outcomes.iter().zip(WAYS) {
            if let Err(reason) = outcome {
                failures.push(format!("{}, {}, {way}: {reason}", check.tool, check.what));
            }
        }
    }
    failures
}

pub(crate) fn row(text: &mut String, cells: impl IntoIterator<Item = String>) {
    let cells: Vec<String> = cells.into_iter().collect();
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

pub(crate) fn heading(text: &mut String, cells: Vec<String>) {
    let count = cells.len();
    row(text, cells);
    let _ = writeln!(text, "|{}", "---|".repeat(count));
}

/// The tables. The same results make the same bytes.
pub(crate) fn render(columns: &[Column], checks: &[Check], versions: &Versions) -> String {
    let mut text = versions.line();
    render_cases(&mut text, columns);
    text.push('\n');
    heading(&mut text, ["tool", "check"].into_iter().chain(WAYS).map(str::to_owned).collect());
    for check in checks {
        let cell = |outcome: &Result<(), String>| {
            if outcome.is_ok() { "passed".to_owned() } else { "**failed**".to_owned() }
        };
        let what = [check.tool.to_owned(), check.what.to_owned()];
        row(&mut text, what.into_iter().chain(check.outcomes.iter().map(cell)));
    }
    text.push('\n');
    text
}

/// A row for each case.
pub(crate) fn render_cases(text: &mut String, columns: &[Column]) {
    let title =
        |Column { pairing, .. }: &Column| format!("{} → {}, {}", pairing.client, pairing.server, pairing.way);
    heading(text, std::iter::once("case".to_owned()).chain(columns.iter().map(title)).collect());
    for (idx, case) in CASES.iter().enumerate() {
        let cell = |column: &Column| match column.outcomes.get(idx) {
            Some(Outcome::Passed) => "passed".to_owned(),
            Some(Outcome::Absent) => "–".to_owned(),
            Some(Outcome::Failed(_)) => "**failed**".to_owned(),
            None => "**not run**".to_owned(),
        };
        row(text, std::iter::once(format!("`{}`", case.name)).chain(columns.iter().map(cell)));
    }
}

/// Cuts a document into what is before, in and after the results.
fn cut(document: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (results, after) = rest.split_once(END)?;
    Some((before, results, after))
}

fn read(path: &Path) -> Result<String, Error> {
    Ok(std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?)
}

fn no_place(path: &Path) -> Error {
    format!("{} has no place for results: the lines {BEGIN:?} and {END:?}", path.display()).into()
}

/// Fails when the document shows other results, which `command` would put into it.
pub(crate) fn compare(path: &Path, results: &str, command: &str) -> Result<(), Error> {
    let document = read(path)?;
    let (_, shown, _) = cut(&document).ok_or_else(|| no_place(path))?;
    if shown == results {
        println!("all as it should be, and as {} says", path.display());
        return Ok(());
    }
    let differing = results.lines().find(|line| !shown.lines().any(|known| known == *line));
    let place = differing.map_or(String::new(), |line| format!("; this is new:\n  {line}"));
    Err(format!("{} shows other results: run `{command}`{place}", path.display()).into())
}

/// Fails when the document doesn't show these results among others.
pub(crate) fn compare_part(path: &Path, results: &str, command: &str) -> Result<(), Error> {
    let document = read(path)?;
    let (_, shown, _) = cut(&document).ok_or_else(|| no_place(path))?;
    if shown.contains(results) {
        println!("what was run is as {} says", path.display());
        return Ok(());
    }
    Err(format!("{} shows other results: run `{command}`", path.display()).into())
}

/// Puts the results into the document.
pub(crate) fn write(path: &Path, results: &str) -> Result<(), Error> {
    let document = read(path)?;
    let (before, _, after) = cut(&document).ok_or_else(|| no_place(path))?;
    std::fs::write(path, format!("{before}{BEGIN}{results}{END}{after}"))?;
    println!("the results are in {}", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pairings::Pairing;

    /// Our client against grpc-go's server, as it should go.
    fn column() -> Column {
        let pairing = Pairing::with_grpc_go();
        let outcome = |case: &tollfree_interop::cases::Case| match pairing.lacks(case.name) {
            true => Outcome::Absent,
            false => Outcome::Passed,
        };
        Column { outcomes: CASES.iter().map(outcome).collect(), pairing }
    }

    /// It passes over http, and over https as is said.
    fn check([http, https]: [Result<(), String>; 2]) -> Check {
        Check { tool: "tool", what: "does something", outcomes: [http, https, Ok(()), Ok(())] }
    }

    #[test]
    fn everything_that_is_not_as_it_should_be_is_found() {
        let good = [Ok(()), Ok(())];
        assert_eq!(failures(&[column()], &[check(good.clone())]), <[String; 0]>::default());
        let lacking = CASES.iter().position(|case| column().pairing.lacks(case.name)).unwrap();
        type Spoil = fn(&mut Vec<Outcome>, usize);
        let spoiled: [(&str, Spoil); 4] = [
            ("not run", |outcomes, _| drop(outcomes.pop())),
            ("broken", |outcomes, _| outcomes[0] = Outcome::Failed("broken".to_owned())),
            ("does not have", |outcomes, _| outcomes[0] = Outcome::Absent),
            ("said to lack", |outcomes, lacking| outcomes[lacking] = Outcome::Passed),
        ];
        for (word, spoil) in spoiled {
            let mut column = column();
            spoil(&mut column.outcomes, lacking);
            let found = failures(&[column], &[check(good.clone())]);
            assert!(matches!(&found[..], [one] if one.contains(word)), "{word}: {found:?}");
        }
        let found = failures(&[column()], &[check([Ok(()), Err("no answer".to_owned())])]);
        assert_eq!(found, ["tool, does something, https: no answer"]);
    }

    #[test]
    fn a_document_that_shows_other_results_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("interop.md");
        let versions = Versions(vec![("grpc-go", "v1".to_owned())]);
        let results = render(&[column()], &[check([Ok(()), Ok(())])], &versions);
        std::fs::write(&path, "no place").unwrap();
        assert!(compare(&path, &results, "make it").is_err() && write(&path, &results).is_err());
        std::fs::write(&path, format!("# Title\n{BEGIN}{END}after\n")).unwrap();
        assert!(compare(&path, &results, "make it").is_err(), "nothing is shown yet");
        write(&path, &results).unwrap();
        compare(&path, &results, "make it").unwrap();
        let newer = Versions(vec![("grpc-go", "v2".to_owned())]);
        let error = compare(&path, &render(&[column()], &[], &newer), "make it").unwrap_err().to_string();
        assert!(error.contains("Against grpc-go v2") && error.contains("`make it`"), "{error}");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# Title\n") && text.ends_with("after\n"), "{text}");
    }

    #[test]
    fn the_document_has_a_column_for_every_pairing_and_a_row_for_every_case() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let document = read(&root.join("docs/interop.md")).unwrap();
        let (_, shown, _) = cut(&document).expect("a place for results");
        for case in CASES {
            let row = shown.lines().find(|line| line.starts_with(&format!("| `{}` |", case.name)));
            let row = row.unwrap_or_else(|| panic!("{} has no row", case.name));
            assert_eq!(row.matches(" | ").count(), 13, "{row}");
        }
        assert!(!shown.contains("**"), "nothing failed");
    }
}
