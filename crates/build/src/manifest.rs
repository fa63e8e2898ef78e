//! The manifest of the crate that is generated for: whether it has the crates that the code names.

use std::path::Path;

use toml::{Table, Value};

/// A crate that generated code names, and what for.
pub(crate) struct Needed {
    pub(crate) package: &'static str,
    pub(crate) why: &'static str,
}

/// What the manifest in a directory lacks, in words. Of a manifest that can't be read nothing is known.
pub(crate) fn lacks(directory: &Path, needed: &[Needed]) -> Result<(), String> {
    let path = directory.join("Cargo.toml");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let Ok(manifest) = text.parse::<Table>() else { return Ok(()) };
    if !manifest.contains_key("package") {
        return Ok(());
    }
    let lacking: Vec<String> = needed
        .iter()
        .filter(|needed| !has(&manifest, needed.package))
        .map(|Needed { package, why }| {
            format!("{}: {why} needs the crate {package}; run `cargo add {package}`", path.display())
        })
        .collect();
    if lacking.is_empty() { Ok(()) } else { Err(lacking.join("\n")) }
}

/// Whether the manifest is this package's, or depends on it under any name.
fn has(manifest: &Table, package: &str) -> bool {
    let is_own = manifest.get("package").and_then(|own| own.get("name")?.as_str()) == Some(package);
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let tables = std::iter::once(manifest).chain(targets.filter_map(Value::as_table));
    let dependencies = tables.flat_map(|table| {
        let of = |name: &str| table.get(name).and_then(Value::as_table);
        [of("dependencies"), of("dev-dependencies")].into_iter().flatten().flatten()
    });
    let is_it = |(name, value): (&String, &Value)| {
        name == package || value.get("package").and_then(Value::as_str) == Some(package)
    };
    let mut dependencies = dependencies;
    is_own || dependencies.any(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_found_wherever_they_stand() {
        let found = |text: &str| {
            let directory = tempfile::tempdir().unwrap();
            std::fs::write(directory.path().join("Cargo.toml"), text).unwrap();
            lacks(directory.path(), &[Needed { package: "tollfree", why: "the code" }])
        };
        let package = "[package]\nname = \"p\"\n";
        for text in [
            "[dependencies]\ntollfree = \"1\"",
            "[dependencies]\ntollfree.workspace = true",
            "[dependencies.free]\npackage = \"tollfree\"",
            "[dev-dependencies]\ntollfree = { path = \"..\" }",
            "[target.'cfg(unix)'.dependencies]\ntollfree = \"1\"",
        ] {
            assert_eq!(found(&format!("{package}{text}")), Ok(()), "{text}");
        }
        for text in ["[package]\nname = \"tollfree\"", "[workspace]\nmembers = []", "no manifest", ""] {
            assert_eq!(found(text), Ok(()), "{text}");
        }
        for text in ["", "[build-dependencies]\ntollfree = \"1\"", "[dependencies]\ntollfree-build = \"1\""] {
            let error = found(&format!("{package}{text}")).unwrap_err();
            assert!(
                error.ends_with("Cargo.toml: the code needs the crate tollfree; run `cargo add tollfree`"),
                "{error}"
            );
        }
    }
}
