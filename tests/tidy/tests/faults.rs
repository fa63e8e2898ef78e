//! Every fault that applies has tests, and the document that says which is true.

use crate::{File, files, hold, read};

/// Faults that wait for a part that does not exist yet. They may have tests all the same, and must once they leave this list.
const LATER: [u32; 3] = [33, 34, 35];
const FAULT_COUNT: u32 = 109;

/// A fault of the document: its number and what follows its heading.
fn faults(document: &str) -> Vec<(u32, &str)> {
    let sections = document.split("\n### ").skip(1);
    sections.filter_map(|section| Some((section.split_once(". ")?.0.parse().ok()?, section))).collect()
}

/// The tests that a fault names: files, and names of tests below each.
fn tests(section: &str) -> Vec<(&str, &str)> {
    let mut path = "";
    let mut tests = Vec::new();
    for line in section.lines() {
        let quoted = line.split('`').nth(1).unwrap_or_default();
        if line.starts_with("- `") {
            path = quoted;
        } else if line.starts_with("  - `") {
            tests.push((path, quoted));
        }
    }
    tests
}

/// Whether a file has a test of this name that is run: an attribute that says so in front of it, a list of rows that it is
/// in, or a macro of properties around it. A test in Go is told by its name and parameter.
fn has_test(text: &str, name: &str) -> bool {
    if name.starts_with("Test") {
        return text.contains(&format!("\nfunc {name}(t *testing.T) {{"));
    }
    let Some(at) = text.find(&format!("fn {name}(")) else { return false };
    let line_at = text[..at].rfind('\n').map_or(0, |at| at + 1);
    let above = text[..line_at].lines().rev().map(str::trim);
    let attributes: Vec<&str> =
        above.take_while(|line| line.starts_with("#[") || line.starts_with("///")).collect();
    let is_test = attributes.iter().any(|line| line.contains("test]") || line.contains("::test("));
    let is_ignored = attributes.iter().any(|line| line.contains("ignore"));
    let is_row = text.contains(&format!("crate::rows!({name});"))
        || text.contains("crate::rows!(") && text.contains(&format!("    {name},\n"));
    (is_test && !is_ignored) || is_row
}

/// What is wrong with the document.
fn complaints(document: &str, file_of: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let mut complaints = Vec::new();
    let faults = faults(document);
    let numbers: Vec<u32> = faults.iter().map(|(number, _)| *number).collect();
    if !numbers.iter().copied().eq(1..=FAULT_COUNT) {
        complaints.push(format!("faults 1 to {FAULT_COUNT} are wanted, in order; there are {numbers:?}"));
    }
    for (number, section) in faults {
        let mut lines = section.lines().skip(1).filter(|line| !line.is_empty());
        let happens = lines.next().unwrap_or_default();
        if happens.starts_with("Later: ") && LATER.contains(&number) {
            continue;
        }
        if happens.is_empty() || happens.starts_with("- ") {
            complaints.push(format!("fault {number} does not say what happens"));
        }
        let tests = tests(section);
        if tests.is_empty() {
            complaints.push(format!("fault {number} applies now and has no tests"));
        }
        for (path, name) in tests {
            if !file_of(path).is_some_and(|text| has_test(&text, name)) {
                complaints.push(format!("fault {number}: {path} has no test {name} that is run"));
            }
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
    hold("docs/faults.md", complaints(&document, &text_of));
}

/// Parts that a call passes.
const CALL_PATH: [&str; 11] = [
    "os",
    "layout",
    "region",
    "ring",
    "session",
    "connection",
    "host",
    "driver-tokio",
    "driver-blocking",
    "driver-loop",
    "tollfree",
];

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
    assert!(has_test("package x\n\nfunc TestG(t *testing.T) {\n", "TestG"));
    assert!(!has_test("package x\n\n// func TestG(t *testing.T) {\nfunc TestGo(t *testing.T) {\n", "TestG"));
    assert!(has_test("async fn f(way: Way) {}\ncrate::rows!(\n    f,\n);\n", "f"));
    let file_of = |path: &str| (path == "x.rs").then(|| source.to_owned());
    let document = |last: &str| {
        let sections = (1..FAULT_COUNT).map(|number| match LATER.contains(&number) {
            true => format!("\n### {number}. F\n\nLater: a part.\n"),
            false => format!("\n### {number}. F\n\nH.\n\n- `x.rs`:\n  - `a`\n  - `d` (so)\n"),
        });
        format!("{}{last}", sections.collect::<String>())
    };
    let count = |last: &str| complaints(&document(last), &file_of).len();
    let last = |rest: &str| format!("\n### {FAULT_COUNT}. F\n\n{rest}");
    assert_eq!(count(&last("H.\n\n- `x.rs`:\n  - `a`\n")), 0);
    assert_eq!(count(""), 1, "a fault is missing");
    for bad in ["Later: sometime.\n", "H.\n\n- `x.rs`:\n  - `b`\n", "H.\n\n- `y.rs`:\n  - `a`\n", "H.\n"] {
        assert_eq!(count(&last(bad)), 1, "{bad}");
    }
    assert_eq!(count(&last("- `x.rs`:\n  - `a`\n")), 1, "what happens");
    let file = |text: &str| File { path: "a.rs".to_owned(), text: text.to_owned() };
    assert_eq!(wall_clocks(&file("let now = SystemTime::now();")).len(), 1);
    assert!(wall_clocks(&file("let now = Instant::now();")).is_empty());
}
