//! Every fault that applies has tests, and the table that says which is true.

use crate::{File, files, hold, read, rows, section};

/// Rows that wait for a part that does not exist yet. They may have tests all the same, and must once they leave this list.
const LATER: [u32; 5] = [31, 32, 33, 34, 35];
const ROW_COUNT: u32 = 38;

/// A test as the table names it: its name, and the file it is in.
fn tests(cell: &str) -> Result<Vec<(String, String)>, String> {
    let mut tests = Vec::new();
    for group in cell.split(';') {
        let Some((names, path)) = group.split_once(" in ") else {
            return Err(format!("\"{}\" names no file", group.trim()));
        };
        let path = path.trim().trim_start_matches('`');
        let path = path.split('`').next().unwrap_or_default();
        for name in names.split(',') {
            tests.push((name.trim().trim_matches('`').to_owned(), path.to_owned()));
        }
    }
    Ok(tests)
}

/// Whether a file has a test of this name that is run: an attribute that says so in front of it, a list of rows that it is
/// in, or a macro of properties around it.
fn has_test(text: &str, name: &str) -> bool {
    let Some(at) = text.find(&format!("fn {name}(")) else { return false };
    let line_at = text[..at].rfind('\n').map_or(0, |at| at + 1);
    let above = text[..line_at].lines().rev().map(str::trim);
    let attributes: Vec<&str> =
        above.take_while(|line| line.starts_with("#[") || line.starts_with("///")).collect();
    let is_test = attributes.iter().any(|line| line.contains("test]") || line.contains("::test("));
    let is_ignored = attributes.iter().any(|line| line.contains("ignore"));
    let is_row = text.contains("crate::rows!(") && text.contains(&format!("    {name},\n"));
    (is_test && !is_ignored) || is_row
}

/// What is wrong with the table.
fn complaints(table: &str, file_of: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let mut complaints = Vec::new();
    let rows: Vec<_> = rows(table).into_iter().skip(2).collect();
    let numbers: Vec<u32> = rows.iter().filter_map(|row| row[0].parse().ok()).collect();
    // Rows beyond these have numbers that rise, too, and may leave some out.
    let rise = numbers.windows(2).all(|pair| pair[0] < pair[1]);
    if !rise || !numbers.iter().copied().take(ROW_COUNT as usize).eq(1..=ROW_COUNT) {
        complaints.push(format!("rows 1 to {ROW_COUNT} are wanted, in order; there are {numbers:?}"));
    }
    for row in &rows {
        let &[number, fault, happens, cell] = row.as_slice() else {
            complaints.push(format!("row {} has {} cells instead of 4", row[0], row.len()));
            continue;
        };
        if fault.is_empty() {
            complaints.push(format!("row {number} names no fault"));
        }
        if let Some(part) = cell.strip_prefix("later: ") {
            if part.is_empty() || !LATER.iter().any(|later| number == later.to_string()) {
                complaints.push(format!("row {number} applies now and has no tests"));
            }
            continue;
        }
        if happens.is_empty() {
            complaints.push(format!("row {number} does not say what happens"));
        }
        match tests(cell) {
            Ok(tests) => {
                for (name, path) in tests {
                    if !file_of(&path).is_some_and(|text| has_test(&text, &name)) {
                        complaints.push(format!("row {number}: {path} has no test {name} that is run"));
                    }
                }
            }
            Err(complaint) => complaints.push(format!("row {number}: {complaint}")),
        }
    }
    complaints
}

fn text_of(path: &str) -> Option<String> {
    std::fs::read_to_string(crate::root().join(path)).ok()
}

#[test]
fn every_fault_that_applies_has_tests() {
    let document = read("docs/faults.md");
    hold("docs/faults.md", complaints(section(&document, "## The table"), &text_of));
}

/// Parts that a call passes.
const CALL_PATH: [&str; 6] = ["layout", "region", "ring", "session", "transport", "tollfree"];

/// Lines of a source that ask for the time of day.
fn wall_clocks(file: &File) -> Vec<String> {
    let clocks = ["SystemTime", "ClockId::Realtime", "UNIX_EPOCH"];
    let lines = file.text.lines().enumerate();
    let found = lines.filter(|(_, line)| clocks.iter().any(|clock| line.contains(clock)));
    found.map(|(idx, line)| format!("{}:{}: {}", file.path, idx + 1, line.trim())).collect()
}

#[test]
fn nobody_on_a_calls_way_asks_the_wall_clock() {
    let files = files();
    let on_the_way = |file: &&File| {
        file.is_source()
            && file.path.contains("/src/")
            && file.part().is_some_and(|part| CALL_PATH.contains(&part))
    };
    let sources: Vec<&File> = files.iter().filter(on_the_way).collect();
    assert!(sources.iter().any(|file| file.text.contains("ClockId::Monotonic")), "there is one clock");
    hold("clocks", sources.into_iter().flat_map(wall_clocks).collect());
}

#[test]
fn rules() {
    let source = "#[test]\nfn a() {}\n#[test]\n#[ignore]\nfn b() {}\nfn c() {}\n\n#[tokio::test]\n/// So.\nasync fn d() {}\n";
    assert!(has_test(source, "a") && has_test(source, "d"));
    assert!(!has_test(source, "b") && !has_test(source, "c") && !has_test(source, "e"));
    assert!(has_test("async fn f(way: Way) {}\ncrate::rows!(\n    f,\n);\n", "f"));
    let file_of = |path: &str| (path == "x.rs").then(|| source.to_owned());
    let table = |last: &str| {
        let rows = (1..ROW_COUNT).map(|number| match LATER.contains(&number) {
            true => format!("| {number} | f | | later: a part |\n"),
            false => format!("| {number} | f | h | `a`, `d` in `x.rs`; `a` in `x.rs` (so) |\n"),
        });
        format!("| # | a | b | c |\n|---|---|---|---|\n{}{last}", rows.collect::<String>())
    };
    let count = |last: &str| complaints(&table(last), &file_of).len();
    assert_eq!(count("| 38 | f | h | `a` in `x.rs` |\n"), 0);
    assert_eq!(count(""), 1, "a row is missing");
    for bad in ["later: sometime", "`b` in `x.rs`", "`a` in `y.rs`", "`a`", ""] {
        assert_eq!(count(&format!("| 38 | f | h | {bad} |\n")), 1, "{bad}");
    }
    let file = |text: &str| File { path: "a.rs".to_owned(), text: text.to_owned() };
    assert_eq!(wall_clocks(&file("let now = SystemTime::now();")).len(), 1);
    assert!(wall_clocks(&file("let now = Instant::now();")).is_empty());
}
