//! One word for one thing: `docs/glossary.md` has the terms, which public names use them, and the words that stand nowhere.

use std::collections::{BTreeMap, BTreeSet};

use super::{File, files, hold, read, rows, section};

const GLOSSARY: &str = "docs/glossary.md";

/// Where public names of `tollfree` stand.
const API: [&str; 5] = [
    "crates/tollfree/src/lib.rs",
    "crates/tollfree/src/channel/blocking.rs",
    "crates/tollfree/src/by_bytes/mod.rs",
    "crates/tollfree/src/gateway/mod.rs",
    "crates/tollfree/src/metrics/mod.rs",
];

/// Types that a module exports: what it declares and what it passes on.
fn exported(source: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in source.match_indices("\npub ") {
        let item = &source[at + 5..];
        let end = if item.starts_with("use ") {
            item.find(';')
        } else {
            item.find(['{', ';', '(', '<', ' ', '\n'])
        };
        let declared =
            ["struct ", "enum ", "trait ", "type "].iter().find_map(|kind| item.strip_prefix(kind));
        match (declared, item.strip_prefix("use ")) {
            (Some(name), _) => {
                found
                    .insert(name.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned());
            }
            (None, Some(_)) => {
                let path = &item[..end.unwrap_or(item.len())];
                let last =
                    path.split('{').nth(1).unwrap_or_else(|| path.rsplit("::").next().unwrap_or_default());
                let names = last.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|name| {
                    name.starts_with(|c: char| c.is_ascii_uppercase())
                        && name.contains(|c: char| c.is_ascii_lowercase())
                });
                found.extend(names.map(str::to_owned));
            }
            (None, None) => {}
        }
    }
    found
}

/// The rows of a section's table, without its head.
fn table<'g>(glossary: &'g str, heading: &str) -> Vec<Vec<&'g str>> {
    rows(section(glossary, heading)).into_iter().skip(2).collect()
}

fn terms(glossary: &str) -> BTreeSet<String> {
    table(glossary, "## Terms").iter().flat_map(|row| row[0].split(", ").map(str::to_owned)).collect()
}

/// What the table of public names lacks, has too much, or explains by a word that is no term.
fn unexplained(glossary: &str, public: &BTreeSet<String>) -> Vec<String> {
    let terms = terms(glossary);
    let table = table(glossary, "## Public names");
    let listed: BTreeSet<String> = table
        .iter()
        .flat_map(|row| row[0].split(", ").map(|name| name.trim_matches('`').to_owned()))
        .collect();
    let lacking = public.difference(&listed).map(|name| format!("{name} is public, and not in the table"));
    let surplus = listed.difference(public).map(|name| format!("{name} is in the table, and not public"));
    let strange = table.iter().flat_map(|row| row[1].split(", ")).filter(|term| !terms.contains(*term));
    lacking.chain(surplus).chain(strange.map(|term| format!("{term} is no term"))).collect()
}

/// Words of the third table in a text, each with its line.
fn banned(glossary: &str, file: &File) -> Vec<String> {
    let table = table(glossary, "## Words that we don't use");
    let words: Vec<String> = table
        .iter()
        .flat_map(|row| row[0].split(", ").map(|word| word.trim_matches('`').to_lowercase()))
        .collect();
    let mut found = Vec::new();
    for (at, line) in file.text.lines().enumerate() {
        let low = line.to_lowercase();
        for word in &words {
            let stands = low.match_indices(word.as_str()).any(|(at, _)| {
                let letter = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphabetic());
                let rest = low[at + word.len()..].trim_start_matches('s');
                !letter(low[..at].chars().next_back()) && !letter(rest.chars().next())
            });
            if stands {
                found.push(format!("{}:{}: {word}", file.path, at + 1));
            }
        }
    }
    found
}

#[test]
fn public_names_are_explained_by_terms() {
    let public: BTreeSet<String> = API.iter().flat_map(|path| exported(&read(path))).collect();
    assert!(public.len() > 50, "the public names were found: {public:?}");
    hold(GLOSSARY, unexplained(&read(GLOSSARY), &public));
}

/// Decisions and the changelog tell how it was, in the words of their time.
#[test]
fn words_that_are_not_used_stand_nowhere() {
    let glossary = read(GLOSSARY);
    let history = |path: &str| {
        path.starts_with("docs/adr/")
            || path.ends_with("CHANGELOG.md")
            || path == GLOSSARY
            || path.ends_with(".lock")
            || path.contains("testdata")
    };
    let told = files().into_iter().filter(|file| !history(&file.path));
    hold("words", told.flat_map(|file| banned(&glossary, &file)).collect());
}

#[test]
fn rules() {
    let public = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let source =
        "\npub use a::{CONST, c_d};\npub use e::Fg;\npub struct Hi<T>(T);\nstruct Jk;\npub use a::lower;\n";
    assert_eq!(exported(source), public(&["Fg", "Hi"]), "constants, functions and modules are no types");
    let glossary = "\n## Terms\n\n| t | m |\n|---|---|\n| ring | r |\n\n## Public names\n\n| n | t |\n|---|---|\n| `Ring`, `Bell` | ring |\n\n\
        ## Words that we don't use\n\n| not | but |\n|---|---|\n| cord | string |\n";
    assert_eq!(unexplained(glossary, &public(&["Ring", "Bell"])), [""; 0]);
    assert_eq!(unexplained(glossary, &public(&["Ring"])).len(), 1, "surplus");
    assert_eq!(unexplained(glossary, &public(&["Ring", "Bell", "Frame"])).len(), 1, "lacking");
    assert_eq!(
        unexplained(&glossary.replace("| ring |\n\n##", "| wing |\n\n##"), &public(&["Ring", "Bell"])).len(),
        1,
        "no term"
    );
    let file = |text: &str| File { path: "a.md".to_owned(), text: text.to_owned() };
    assert_eq!(banned(glossary, &file("a cord\ncords of two\nrecord\nto accord\ncordial\n")).len(), 2);
    assert_eq!(banned(glossary, &file("let wide_cord = 1;\n")).len(), 1);
}

/// Types that have another's name with a reason: the same thing for threads that block, and as tonic's generator has it.
const NAMED_ALIKE: [(&str, &str); 3] =
    [("tollfree", "Channel"), ("tollfree", "Streaming"), ("build", "Builder")];

/// Names of types that a source defines outside of its tests, and whether others may use them.
fn defined(text: &str) -> Vec<(String, bool)> {
    let product = text.split("#[cfg(test)]").next().unwrap_or_default();
    let name_of = |line: &str| {
        let (is_private, rest) = match line.strip_prefix("pub") {
            None => (true, line),
            Some(rest) => (false, rest.split_once(' ')?.1),
        };
        let rest = ["struct ", "enum ", "trait ", "union ", "type "]
            .iter()
            .find_map(|kind| rest.strip_prefix(kind))?;
        let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
        Some((rest[..end].to_owned(), is_private))
    };
    product.lines().filter_map(name_of).collect()
}

#[test]
fn no_type_has_the_name_of_another_in_its_crate() {
    let files = files();
    let mut by_name: BTreeMap<(String, String), Vec<(&str, bool)>> = BTreeMap::new();
    // What stands in for something that a feature or a system lacks has its names.
    let sources = files.iter().filter(|file| file.is_source() && !file.path.ends_with("/absent.rs"));
    for file in sources.filter(|file| file.path.starts_with("crates/") && file.path.contains("/src/")) {
        let Some(part) = file.part() else { continue };
        if part == "os" || file.path.contains("/src/tests/") {
            continue;
        }
        for (name, is_private) in defined(&file.text) {
            let places = by_name.entry((part.to_owned(), name)).or_default();
            // Alternatives of one file are for different builds.
            if places.iter().all(|(path, _)| *path != file.path) {
                places.push((&file.path, is_private));
            }
        }
    }
    assert!(by_name.len() > 1000, "{} types were found", by_name.len());
    let complaints = by_name.iter().filter(|((part, name), places)| {
        let is_alike = NAMED_ALIKE.contains(&(part.as_str(), name.as_str()));
        places.len() > 1 && !is_alike && places.iter().any(|(_, is_private)| !is_private)
    });
    let complaints = complaints.map(|((part, name), places)| {
        let places: Vec<&str> = places.iter().map(|(path, _)| *path).collect();
        format!("{part} has several types {name}: {}", places.join(", "))
    });
    hold("names of types", complaints.collect());
}
