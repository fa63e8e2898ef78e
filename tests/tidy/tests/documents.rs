//! Documents point to what is there, and show code that compiles.

use crate::{File, files, hold, read, root, rows, section};

/// What GitHub makes of a heading to link to.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// A document's text without its blocks of code.
fn prose(text: &str) -> String {
    let mut in_code = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    prose
}

/// Targets of links in a document.
fn links(text: &str) -> Vec<&str> {
    let ends = text.match_indices("](").map(|(at, begin)| &text[at + begin.len()..]);
    ends.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target).collect()
}

/// Links that lead nowhere; `exists` and `text_of` answer for paths from the root.
fn dead_links(
    file: &File,
    exists: &dyn Fn(&str) -> bool,
    text_of: &dyn Fn(&str) -> Option<String>,
) -> Vec<String> {
    let text = prose(&file.text);
    let mut complaints = Vec::new();
    for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
        let (target, place) = link.split_once('#').unwrap_or((link, ""));
        let path = match target {
            "" => file.path.clone(),
            target => resolve(&file.path, target),
        };
        if !exists(&path) {
            complaints.push(format!("{} points to {link}, which is not there", file.path));
        } else if !place.is_empty() {
            let text = text_of(&path).unwrap_or_default();
            let text = prose(&text);
            let mut headings = text.lines().filter(|line| line.starts_with('#'));
            if !headings.any(|line| anchor(line.trim_start_matches('#')) == place) {
                complaints.push(format!("{} points to {link}, and there is no such heading", file.path));
            }
        }
    }
    complaints
}

/// A relative link of a file as a path from the root.
fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Paths of the project that a text names: words that begin like one.
fn named_paths(text: &str) -> Vec<&str> {
    let begins = ["crates/", "cmd/", "tests/", "lab/", "docs/", "spec/"];
    let words = text.split(|c: char| !c.is_alphanumeric() && !"/_-.<>*{}".contains(c));
    let words = words.map(|word| word.trim_end_matches(['.', '/']));
    words
        .filter(|word| begins.iter().any(|begin| word.starts_with(begin) && word.len() > begin.len()))
        .collect()
}

fn dead_paths(file: &File, exists: &dyn Fn(&str) -> bool) -> Vec<String> {
    let named = named_paths(&file.text).into_iter();
    // Places to fill in, and what only a build makes.
    let named = named.filter(|path| !path.contains(['<', '*', '{']));
    // A part's sources name its own tests from where its manifest lies.
    let own = file.path.splitn(3, '/').take(2).collect::<Vec<_>>().join("/");
    // Links of documents are from where they lie.
    let is_there = |path: &str| {
        exists(path)
            || (file.part().is_some() && exists(&format!("{own}/{path}")))
            || (file.is_document() && exists(&resolve(&file.path, path)))
    };
    let dead = named.filter(|path| !is_there(path));
    dead.map(|path| format!("{} names {path}, which is not there", file.path)).collect()
}

fn exists(path: &str) -> bool {
    root().join(path).exists()
}

#[test]
fn links_and_paths_lead_somewhere() {
    let text_of = |path: &str| std::fs::read_to_string(root().join(path)).ok();
    let files = files();
    let mut complaints = Vec::new();
    let mut link_count = 0;
    for file in files.iter().filter(|file| file.is_document()) {
        link_count += links(&file.text).len();
        complaints.extend(dead_links(file, &exists, &text_of));
    }
    // The rules show paths that are not there, on purpose.
    let named = files.iter().filter(|file| file.is_document() || file.is_source());
    for file in named.filter(|file| !file.path.starts_with("tests/tidy/tests/")) {
        complaints.extend(dead_paths(file, &exists));
    }
    assert!(link_count > 50, "links were found");
    hold("links and paths", complaints);
}

/// What is wrong with decisions and their index. A number without a file is one whose decision became part of a note.
fn misfiled(decisions: &[&File], index: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut next = 1;
    for file in decisions {
        let Some(number) = file.name().get(..4).and_then(|digits| digits.parse::<u32>().ok()) else {
            complaints.push(format!("{} has no number of four digits", file.path));
            continue;
        };
        if number < next {
            complaints.push(format!("{} has the number of another", file.path));
        }
        let is_note = |number: &u32| {
            index
                .lines()
                .any(|row| row.starts_with(&format!("| {number} | [")) && row.contains("](../internals/"))
        };
        for missing in (next..number).filter(|number| !is_note(number)) {
            complaints
                .push(format!("decision {missing} has no file, and docs/adr/README.md names no note for it"));
        }
        next = number + 1;
        if !file.text.starts_with(&format!("# {number}. ")) {
            complaints.push(format!("{} needs a title \"# {number}. …\"", file.path));
        }
        if !["\nStatus: accepted", "\nStatus: superseded by ["]
            .iter()
            .any(|status| file.text.contains(status))
        {
            complaints.push(format!("{} needs a status: accepted, or superseded by another", file.path));
        }
        let title =
            file.text.lines().next().and_then(|line| line.split_once(". ")).map_or("", |(_, title)| title);
        if !index.contains(&format!("| {number} | [{title}]({}) |", file.name())) {
            complaints.push(format!("{} is not listed under its title in docs/adr/README.md", file.path));
        }
    }
    complaints
}

#[test]
fn decisions_are_numbered_titled_and_listed() {
    let index = read("docs/adr/README.md");
    let files = files();
    let decisions: Vec<&File> = files.iter().filter(|file| file.path.starts_with("docs/adr/0")).collect();
    assert!(decisions.len() > 30, "decisions were found");
    hold("decisions", misfiled(&decisions, &index));
}

/// Blocks of Rust in a document that are not, line for line, part of an example.
fn loose_blocks(document: &str, examples: &[&str]) -> Vec<String> {
    let lines = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
    };
    let examples: Vec<Vec<String>> = examples.iter().map(|text| lines(text)).collect();
    let blocks = document.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut loose = Vec::new();
    for block in blocks {
        let block = lines(block);
        let is_in = |example: &Vec<String>| example.windows(block.len()).any(|window| window == block);
        if !examples.iter().any(is_in) {
            loose.push(format!("the block beginning with \"{}\" is in no example", block[0]));
        }
    }
    loose
}

#[test]
fn documents_for_users_show_code_that_compiles() {
    let files = files();
    let examples = files.iter().filter(|file| file.is_source() && file.path.contains("examples/"));
    let examples: Vec<&str> = examples.map(|file| file.text.as_str()).collect();
    let readme = read("README.md");
    assert!(readme.matches("```rust\n").count() >= 2, "server and client");
    hold("code in README.md", loose_blocks(&readme, &examples));
    let guides: Vec<&File> = files.iter().filter(|file| file.path.starts_with("docs/guide/")).collect();
    assert!(guides.iter().any(|guide| guide.text.contains("```rust\n")), "guides show code");
    for guide in guides {
        hold(&guide.path, loose_blocks(&guide.text, &examples));
    }
    let word_count = readme.split_whitespace().count();
    assert!(word_count <= 900, "README.md is for somebody with one minute: {word_count} words");
}

/// Types that a table of files and their types names and that the files do not define.
fn missing_types(table: &str, text_of: &dyn Fn(&str) -> String) -> Vec<String> {
    let mut missing = Vec::new();
    // The first two rows are the table's head.
    for row in rows(table).iter().skip(2) {
        let (path, types) = (row[1].trim_matches('`'), row[2].split(", "));
        let text = text_of(path);
        let defined: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split_once("struct ").or_else(|| line.split_once("enum ")))
            .filter(|(before, _)| before.is_empty() || before.starts_with("pub"))
            .filter_map(|(_, after)| after.split(|c: char| !c.is_alphanumeric()).next())
            .collect();
        let types = types.map(|name| name.trim_matches('`')).filter(|name| !defined.contains(name));
        missing.extend(types.map(|name| format!("{path} defines no {name}")));
    }
    missing
}

#[test]
fn types_that_name_a_stage_of_a_call_are_those_of_the_code() {
    let text = read("ARCHITECTURE.md");
    let table = section(&text, "### Types that name a stage of a call");
    assert!(rows(table).len() > 10, "a table was found");
    hold("types in ARCHITECTURE.md", missing_types(table, &|path| read(path)));
}

/// What a manifest says of where the source lies, and who says otherwise.
fn elsewhere(manifest: &str, readme: &str, go: &str) -> Vec<String> {
    let line = manifest.lines().find_map(|line| line.strip_prefix("repository = \""));
    let Some(address) = line.map(|rest| rest.trim_end_matches('"')) else {
        return vec!["Cargo.toml names no repository".to_owned()];
    };
    let module = format!("module {}/go", address.trim_start_matches("https://"));
    let mut complaints = Vec::new();
    if !readme.contains(&format!("tollfree = {{ git = \"{address}\" }}")) {
        complaints.push(format!("README.md's dependency is not at {address}"));
    }
    if !go.lines().any(|line| line == module) {
        complaints.push(format!("go/go.mod does not say: {module}"));
    }
    complaints
}

#[test]
fn the_source_lies_where_the_manifest_says() {
    hold("repository in Cargo.toml", elsewhere(&read("Cargo.toml"), &read("README.md"), &read("go/go.mod")));
    let manifest = "repository = \"https://github.com/b/c\"\n";
    let readme = "tollfree = { git = \"https://github.com/b/c\" }";
    assert!(elsewhere(manifest, readme, "module github.com/b/c/go").is_empty());
    assert_eq!(elsewhere(manifest, "", "module github.com/b/d/go").len(), 2);
    assert_eq!(elsewhere("", readme, "module github.com/b/c/go").len(), 1);
}

#[test]
fn rules() {
    let exists = |path: &str| ["a.md", "docs/b.md", "crates/x/src/y.rs"].contains(&path);
    let text_of = |_: &str| Some("# One thing: two\n```\n# no heading\n```\n".to_owned());
    let dead = |path: &str, text: &str| {
        dead_links(&File { path: path.to_owned(), text: text.to_owned() }, &exists, &text_of).len()
    };
    assert_eq!(dead("docs/b.md", "[x](../a.md#one-thing-two) [y](b.md) [z](https://localhost/x)"), 0);
    assert_eq!(dead("docs/b.md", "[x](a.md) [y](../a.md#two) [z](../a.md#no-heading) [w](#nothing)"), 4);
    assert_eq!(dead("a.md", "```\n[x](nowhere.md)\n```"), 0);
    let names =
        |text: &str| dead_paths(&File { path: "a.md".to_owned(), text: text.to_owned() }, &exists).len();
    assert_eq!(names("`crates/x/src/y.rs`, docs/b.md. crates/<part>/z.rs"), 0);
    assert_eq!(names("`crates/x/src/z.rs` (docs/c.md)"), 2);
    let decision = |name: &str, text: &str| File { path: format!("docs/adr/{name}"), text: text.to_owned() };
    let index = "| 1 | [One](0001-a.md) | accepted |\n| 2 | [A note](../internals/b.md) |\n| 3 | [Three](0003-c.md) |";
    let one = decision("0001-a.md", "# 1. One\n\nStatus: accepted.\n");
    let three = decision("0003-c.md", "# 3. Three\n\nStatus: superseded by [1](0001-a.md).\n");
    assert!(misfiled(&[&one, &three], index).is_empty());
    // No note for 2; no row for 4, whose status says nothing; 3 twice.
    assert_eq!(misfiled(&[&one, &three], &index.replace("internals", "adr")).len(), 1);
    let four = decision("0004-d.md", "# 4. Four\n\nStatus: thought of.\n");
    assert_eq!(misfiled(&[&one, &three, &four], index).len(), 2);
    assert_eq!(misfiled(&[&one, &three, &three], index).len(), 1);
    let table =
        "| side | file | types |\n|---|---|---|\n| client | `x.rs` | `A`, `B` |\n| | `x.rs` | `C`, `D` |";
    let text_of = |_: &str| "pub(crate) struct A {\nenum B<T> {\npub struct C;\n/// struct D\n".to_owned();
    assert_eq!(missing_types(table, &text_of), ["x.rs defines no D"]);
    let example = "fn main() {\n    a();\n\n    b();\n}\n";
    assert!(loose_blocks("```rust\na();\nb();\n```", &[example]).is_empty());
    assert_eq!(loose_blocks("```rust\na();\nc();\n```", &[example]).len(), 1);
}
