//! On which line of a file a key stands.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The line of the longest part of a path that is there, counted from 1.
pub(super) fn line_of(text: &str, path: &[String]) -> Option<usize> {
    find(text, path).map(|(line, _)| line)
}

/// The line of a path that is there as a whole.
pub(super) fn line_of_all(text: &str, path: &[String]) -> Option<usize> {
    find(text, path).filter(|(_, depth)| *depth == path.len()).map(|(line, _)| line)
}

/// The line of the longest part of a path, and how long that is.
fn find(text: &str, path: &[String]) -> Option<(usize, usize)> {
    let table = DeTable::parse(text).ok()?;
    let mut table: &DeTable<'_> = table.get_ref();
    let mut at = None;
    for (key, depth) in path.iter().zip(1..) {
        let Some((found, value)) = table.iter().find(|(known, _)| known.get_ref().as_ref() == key) else {
            break;
        };
        at = Some((Spanned::span(found).start, depth));
        match value.get_ref() {
            DeValue::Table(inner) => table = inner,
            _ => break,
        }
    }
    at.map(|(at, depth)| (line_at(text, at), depth))
}

/// The line of a byte, counted from 1.
pub(super) fn line_at(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}
