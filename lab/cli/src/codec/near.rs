//! What to say when a type's name is not known: the names that come near.

use std::fmt::Display;

use tollfree_layout::table::{Table, TypeRow};

/// Names that are listed at most.
const LISTED: usize = 5;

/// The words for an unknown type.
pub(super) fn unknown_type(table: &Table, asked: &str, descriptor_set: &dyn Display) -> String {
    let messages = table.types().iter().filter(|row| row.flags & (TypeRow::MAP_ENTRY | TypeRow::BOX) == 0);
    let names: Vec<&str> = messages.map(|row| table.text(row.name)).collect();
    let near = near(&names, asked.trim_start_matches('.'));
    let begin = format!("the descriptor set {descriptor_set} has no message type {asked}");
    if names.is_empty() {
        return format!("{begin}, nor any other");
    }
    if near.is_empty() {
        return format!("{begin}; it has {} others, such as {}", names.len(), names[0]);
    }
    format!("{begin}; near it are: {}", near.join(", "))
}

/// The names that differ least from the one asked for, as a whole or behind their last point.
fn near<'n>(names: &[&'n str], asked: &str) -> Vec<&'n str> {
    let short = |name: &str| name.rsplit('.').next().unwrap_or_default().to_lowercase();
    let mut found: Vec<(usize, usize, &str)> = names
        .iter()
        .map(|name| (distance(&short(name), &short(asked)), distance(name, asked), *name))
        .filter(|(by_short, by_whole, _)| *by_short <= short(asked).len() / 3 || *by_whole <= asked.len() / 4)
        .collect();
    found.sort_unstable();
    found.into_iter().take(LISTED).map(|(_, _, name)| name).collect()
}

/// How many bytes must be added, taken away or changed to make one from the other (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (idx, from) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = idx + 1;
        for (at, to) in b.bytes().enumerate() {
            let changed = diagonal + usize::from(from != to);
            diagonal = row[at + 1];
            row[at + 1] = changed.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("same", "same"), 0);
    }

    #[test]
    fn names_near_another() {
        let names = ["a.HelloRequest", "a.HelloReply", "b.Order", "b.OrderLine"];
        assert_eq!(near(&names, "a.HeloRequest"), ["a.HelloRequest"]);
        assert_eq!(near(&names, "hellorequest"), ["a.HelloRequest"]);
        assert_eq!(near(&names, "c.Order"), ["b.Order"]);
        assert!(near(&names, "zzz.Unrelated").is_empty());
    }
}
