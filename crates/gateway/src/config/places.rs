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
    let table: &DeTable<'_> = table.get_ref();
    let (mut at, mut value): (_, Option<&DeValue<'_>>) = (None, None);
    for (key, depth) in path.iter().zip(1..) {
        let (start, inner) = match value {
            Some(DeValue::Array(array)) => {
                let Some(item) = key.parse().ok().and_then(|nth: usize| array.get(nth)) else { break };
                (item.span().start, item)
            }
            None | Some(DeValue::Table(_)) => {
                let within = match value {
                    Some(DeValue::Table(inner)) => inner,
                    _ => table,
                };
                let found = within.iter().find(|(known, _)| known.get_ref().as_ref() == key);
                let Some((found, inner)) = found else { break };
                (Spanned::span(found).start, inner)
            }
            _ => break,
        };
        at = Some((start, depth));
        value = Some(inner.get_ref());
    }
    at.map(|(at, depth)| (line_at(text, at), depth))
}

/// The line of a byte, counted from 1.
pub(super) fn line_at(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}
