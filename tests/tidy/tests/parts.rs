//! Which part uses which: the drawings in ARCHITECTURE.md and lab/README.md, the manifests, and that all arrows point downwards. The
//! same for the topics of the public crate, by its table.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::{GROUPS, LAB, files, hold, read, root, section};

/// Parts by name, with what they use; in the order of the drawing.
type Arrows = Vec<(String, BTreeSet<String>)>;

/// Where the parts of the product and of the laboratory are drawn.
const DRAWINGS: [(&str, bool); 2] = [("ARCHITECTURE.md", false), ("lab/README.md", true)];

fn drawing(document: &str) -> Arrows {
    let text = read(document);
    let parts = section(&text, "## Parts");
    let block = parts.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a drawing");
    let arrows = block.lines().map(|line| {
        let (user, used) = line.split_once('►').unwrap_or_else(|| panic!("no arrow in \"{line}\""));
        let user = user.trim_end_matches(['─', ' ']).trim().to_owned();
        let used = used.split(',').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty());
        (user, used.collect())
    });
    arrows.collect()
}

struct Manifest {
    uses: BTreeSet<String>,
    /// In tests and examples only.
    tests_use: BTreeSet<String>,
    /// The part of those of tests that a registry is told of: they are named with a version.
    tests_name: BTreeSet<String>,
    is_published: bool,
    description: String,
    text: String,
    /// The directory of directories that the part's own lies in: one of [`GROUPS`].
    group: String,
    /// The first line of its library, or of its program or tests where it has none.
    first_line: String,
}

fn part_of(package: &str) -> Option<String> {
    match package {
        "tollfree" => Some("tollfree".to_owned()),
        package => package.strip_prefix("tollfree-").map(str::to_owned),
    }
}

/// Those of both workspaces.
fn manifests() -> BTreeMap<String, Manifest> {
    let (mut all, lab) = (manifests_below("."), manifests_below(LAB));
    let count = all.len() + lab.len();
    all.extend(lab);
    assert_eq!(all.len(), count, "no part has the name of another workspace's");
    all
}

fn manifests_below(workspace: &str) -> BTreeMap<String, Manifest> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root().join(workspace))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let manifest = |package: &Value| {
        let name = package["name"].as_str().expect("a name");
        let part = part_of(name).unwrap_or_else(|| panic!("package {name} is not named tollfree-<part>"));
        let (mut uses, mut tests_use, mut tests_name) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            // Ours have a path; a crate of ours that came from elsewhere would be another.
            if let (Some(used), true) =
                (part_of(dependency["name"].as_str().expect("a name")), dependency["path"].is_string())
            {
                if dependency["kind"] == "dev" {
                    if dependency["req"] != "*" {
                        tests_name.insert(used.clone());
                    }
                    tests_use.insert(used);
                } else {
                    uses.insert(used);
                }
            }
        }
        let path = Path::new(package["manifest_path"].as_str().expect("a path"));
        let above = path.ancestors().nth(2).expect("two directories above");
        // A language's own directory has a product's part in it.
        let group = if above == root() { "crates".as_ref() } else { above.file_name().unwrap_or_default() };
        let group = group.to_string_lossy().into_owned();
        let target = package["targets"][0]["src_path"].as_str().expect("a target");
        let target = std::fs::read_to_string(target).unwrap_or_default();
        let manifest = Manifest {
            uses,
            tests_use,
            tests_name,
            // Cargo lists the registries: none at all where nothing is to be published, `null` for any.
            is_published: package["publish"].as_array().is_none_or(|registries| !registries.is_empty()),
            description: package["description"].as_str().unwrap_or_default().to_owned(),
            text: std::fs::read_to_string(path).expect("cargo has just read it"),
            group,
            first_line: target.lines().next().unwrap_or_default().to_owned(),
        };
        (part, manifest)
    };
    packages.iter().map(manifest).collect()
}

/// Arrows that don't point at a line further down, nor at a part of `below`.
fn upward(arrows: &Arrows, below: &BTreeSet<String>) -> Vec<String> {
    let place = |part: &str| arrows.iter().position(|(known, _)| known == part);
    let mut complaints = Vec::new();
    for (idx, (user, used)) in arrows.iter().enumerate() {
        for part in used.difference(below) {
            if place(part).is_none_or(|place| place <= idx) {
                complaints.push(format!("{user} ─► {part} does not point downwards"));
            }
        }
    }
    complaints
}

/// Names of the product's parts.
fn of_the_product(manifests: &BTreeMap<String, Manifest>) -> BTreeSet<String> {
    manifests.iter().filter(|(_, manifest)| manifest.group != LAB).map(|(part, _)| part.clone()).collect()
}

#[test]
fn the_drawings_are_what_the_manifests_say() {
    let manifests = manifests();
    let product = of_the_product(&manifests);
    for (document, is_lab) in DRAWINGS {
        let arrows = drawing(document);
        let drawn: BTreeSet<&String> = arrows.iter().map(|(part, _)| part).collect();
        let parts = manifests.keys().filter(|part| product.contains(*part) != is_lab).collect();
        assert_eq!(drawn, parts, "the parts drawn in {document}, and those that exist");
        let mut complaints = upward(&arrows, if is_lab { &product } else { const { &BTreeSet::new() } });
        for (part, used) in &arrows {
            let uses = &manifests[part].uses;
            for missing in uses.difference(used) {
                complaints.push(format!("{part} uses {missing}, which {document} does not draw"));
            }
            for drawn in used.difference(uses) {
                complaints.push(format!("{part} does not use {drawn}, though {document} draws it"));
            }
        }
        hold("dependencies between parts", complaints);
    }
}

#[test]
fn tests_use_only_parts_further_down() {
    let manifests = manifests();
    let product = of_the_product(&manifests);
    for (document, is_lab) in DRAWINGS {
        let tests: Arrows = drawing(document)
            .iter()
            .map(|(part, _)| {
                let used = manifests[part].tests_use.iter().filter(|used| *used != part);
                (part.clone(), used.cloned().collect())
            })
            .collect();
        let below = if is_lab { &product } else { const { &BTreeSet::new() } };
        hold("dependencies of tests", upward(&tests, below));
    }
}

/// Names in a lock file.
fn locked(lock: &str) -> BTreeSet<&str> {
    lock.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"')).collect()
}

/// What only the laboratory needs, though tests of the product may use some of it.
const LAB_ONLY: [&str; 5] = ["buffa", "iceoryx2", "image", "rcgen", "thrift"];
/// Of these, what tests of the product use, too.
const TESTS_USE: [&str; 2] = ["rcgen", "thrift"];

#[test]
fn what_only_the_laboratory_needs_is_no_dependency_of_the_product() {
    let (manifests, lock) = (manifests(), read("Cargo.lock"));
    let locked = locked(&lock);
    assert!(locked.contains("tollfree-cli") && locked.contains("tonic"), "names were found");
    let parts = manifests.iter().filter(|(_, manifest)| manifest.group == LAB);
    let parts = parts.map(|(part, _)| format!("tollfree-{part}"));
    let crates = LAB_ONLY.iter().filter(|name| !TESTS_USE.contains(name)).map(|name| (*name).to_owned());
    let found = parts.chain(crates).filter(|name| locked.contains(name.as_str()));
    hold("Cargo.lock", found.map(|name| format!("{name} is the laboratory's")).collect());
    for (command, part) in [("tollfree-cli", "tollfree-control"), ("tollfree-gateway", "tollfree-gateway")] {
        let arguments = ["tree", "--offline", "--prefix", "none", "-e", "no-dev", "-p", command];
        let output =
            Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().expect("cargo runs");
        assert!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
        let tree = String::from_utf8_lossy(&output.stdout);
        let names: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
        assert!(names.contains(part), "the tree of {command} was found");
        // The command asks gateways, and need not be able to be one.
        let others = ["tollfree-gateway"].iter().filter(|other| **other != part);
        let found = LAB_ONLY.iter().chain(others).filter(|name| names.contains(*name));
        hold("what commands stand on", found.map(|name| format!("{command} needs {name}")).collect());
    }
}

/// Parts that are published, though something they need is not. `needed` gives what a registry is told of, by part.
fn unpublishable(needed: &BTreeMap<String, BTreeSet<String>>, published: &BTreeSet<String>) -> Vec<String> {
    let mut complaints = Vec::new();
    for part in published {
        for missing in needed[part].difference(published) {
            complaints.push(format!("{part} is published and depends on {missing}, which is not"));
        }
    }
    complaints
}

#[test]
fn published_parts_depend_on_published_parts_only() {
    let manifests = manifests();
    let is_published = |(part, manifest): (&String, &Manifest)| manifest.is_published.then(|| part.clone());
    let published: BTreeSet<String> = manifests.iter().filter_map(is_published).collect();
    for (part, is_published) in [("tollfree", true), ("demo", false), ("testkit", false)] {
        assert_eq!(published.contains(part), is_published, "whether {part} is published");
    }
    let needed = manifests
        .iter()
        .map(|(part, manifest)| (part.clone(), &manifest.uses | &manifest.tests_name))
        .collect();
    hold("what published parts depend on", unpublishable(&needed, &published));
}

/// What a part of one group uses of another that it may not use: a product stands on products, a tool on both.
fn across(user: (&str, &str), used: (&str, &str)) -> Option<String> {
    let rank = |group: &str| GROUPS.iter().position(|known| *known == group);
    let allowed = rank(user.1).zip(rank(used.1)).is_some_and(|(user, used)| user >= used);
    (!allowed).then(|| format!("{} in {}/ uses {} in {}/", user.0, user.1, used.0, used.1))
}

#[test]
fn products_use_neither_tools_nor_tests() {
    let manifests = manifests();
    let mut complaints = Vec::new();
    for (part, manifest) in &manifests {
        if manifest.is_published && manifest.group != "crates" {
            complaints.push(format!("{part} is published and lies in {}/", manifest.group));
        }
        for used in &manifest.uses {
            complaints.extend(across((part, &manifest.group), (used, &manifests[used].group)));
        }
    }
    hold("where parts lie", complaints);
}

#[test]
fn each_part_says_its_job_in_one_line_and_takes_the_workspaces_lints() {
    let mut complaints = Vec::new();
    for (part, manifest) in manifests() {
        let description = &manifest.description;
        if description.is_empty() || description.contains('\n') || description.len() > 110 {
            complaints.push(format!("{part} needs a description of one line, of at most 110 bytes"));
        }
        if !manifest.text.contains("[lints]\nworkspace = true") {
            complaints.push(format!("{part} does not take the workspace's lints"));
        }
        if !manifest.first_line.starts_with("//! ") {
            complaints.push(format!("{part} does not begin by saying what it is"));
        }
    }
    hold("what parts say of themselves", complaints);
}

#[test]
fn rules() {
    let arrow = |user: &str, used: &[&str]| {
        (user.to_owned(), used.iter().map(|part| (*part).to_owned()).collect::<BTreeSet<_>>())
    };
    let nothing = BTreeSet::new();
    assert!(upward(&vec![arrow("a", &["b"]), arrow("b", &[])], &nothing).is_empty());
    assert_eq!(upward(&vec![arrow("a", &["b"]), arrow("b", &["a"])], &nothing).len(), 1);
    let elsewhere = vec![arrow("a", &["a"]), arrow("b", &["elsewhere"])];
    assert_eq!(upward(&elsewhere, &nothing).len(), 2);
    assert_eq!(upward(&elsewhere, &BTreeSet::from(["elsewhere".to_owned()])).len(), 1);
    assert!(across(("a", "cmd"), ("b", "crates")).is_none());
    for (user, used) in [("crates", "cmd"), ("cmd", "tests"), ("crates", LAB), ("tests", LAB)] {
        assert!(across(("a", user), ("b", used)).is_some(), "{user} uses {used}");
    }
    assert_eq!(locked("[[package]]\nname = \"a-b\"\nversion = \"1\"\n"), BTreeSet::from(["a-b"]));
    let needed = BTreeMap::from([arrow("a", &["b"]), arrow("b", &["c"]), arrow("c", &[])]);
    let published = |parts: [&str; 2]| BTreeSet::from(parts.map(str::to_owned));
    assert!(unpublishable(&needed, &published(["b", "c"])).is_empty());
    assert_eq!(unpublishable(&needed, &published(["a", "b"])).len(), 1);
}

/// The topics of the public crate, in the order of their table.
fn topics() -> Vec<String> {
    let text = read("ARCHITECTURE.md");
    let rows = section(&text, "## Topics of `tollfree`").lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned())).collect()
}

/// Topics that a file names by their path in the crate, outside of comments and of its tests.
fn named(text: &str) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut named = BTreeSet::new();
    for line in lines {
        for path in line.split("crate::").skip(1) {
            let name: String = path.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            if name.starts_with(|c: char| c.is_ascii_lowercase()) {
                named.insert(name);
            }
        }
    }
    named
}

#[test]
fn a_topic_uses_only_topics_above_it() {
    let topics = topics();
    let place = |name: &str| topics.iter().position(|topic| topic == name);
    let (mut complaints, mut seen) = (Vec::new(), BTreeSet::new());
    for file in files() {
        let Some(within) = file.path.strip_prefix("crates/tollfree/src/") else { continue };
        let topic = within.split('/').next().expect("a name").trim_end_matches(".rs");
        if topic == "lib" {
            continue;
        }
        let Some(user) = place(topic) else {
            complaints.push(format!("{topic} is missing in the table"));
            continue;
        };
        seen.insert(topic.to_owned());
        for used in named(&file.text) {
            match place(&used) {
                Some(place) if place <= user => {}
                _ => complaints.push(format!("{} uses {used}, which is no topic above it", within)),
            }
        }
    }
    complaints.extend(
        topics.iter().filter(|topic| !seen.contains(*topic)).map(|topic| format!("there is no {topic}")),
    );
    hold("topics of tollfree in ARCHITECTURE.md", complaints);
}

/// What a gateway of somebody else's could be made of, too.
const GATEWAY_USES: [&str; 7] = ["balancer", "control", "layout", "pool", "processor", "schema", "tollfree"];

#[test]
fn the_gateway_is_made_of_public_parts_alone() {
    let manifests = manifests();
    let uses = &manifests["gateway"].uses;
    let mut complaints: Vec<String> = uses
        .iter()
        .filter(|part| !GATEWAY_USES.contains(&part.as_str()))
        .map(|part| format!("it uses {part}, which only drivers and sessions are made of"))
        .collect();
    // What is for generated code, and hidden in the documentation.
    let hidden = ["tollfree::direct", "use tollfree::{direct"];
    let sources = files().into_iter().filter(|file| file.path.starts_with("crates/gateway/src/"));
    let mut count = 0;
    for file in sources {
        count += 1;
        let text = read(&file.path);
        let found = hidden.iter().filter(|name| text.contains(**name));
        complaints.extend(found.map(|name| format!("{} has {name}", file.path)));
    }
    assert!(count > 40, "{count} sources were found");
    hold("crates/gateway", complaints);
}

/// What a gateway needs and a client or server doesn't.
const GATEWAY_ONLY: [&str; 6] = ["clap", "figment", "flate2", "opentelemetry", "toml", "x509-parser"];

#[test]
fn a_client_stands_on_nothing_that_only_a_gateway_needs() {
    let arguments = ["tree", "--offline", "--prefix", "none", "-e", "normal", "-p", "tollfree"];
    let output =
        Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().expect("cargo runs");
    assert!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8_lossy(&output.stdout);
    let names: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.contains("tollfree-session"), "the tree was found");
    let found = GATEWAY_ONLY.iter().filter(|name| names.contains(*name));
    hold("what tollfree stands on", found.map(|name| format!("it needs {name}")).collect());
}
