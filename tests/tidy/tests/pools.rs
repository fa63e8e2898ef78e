//! `spec/pool.md` says what the code does: its constants and its structures.

use tollfree_layout::pool::{EXTENT_MAGIC, ExtentHead, POOL_MAGIC, PoolMessage, RefHead};
use zerocopy::FromZeros;

use crate::constants::numbers;
use crate::spec::{differences, fields, number, stated};
use crate::{hold, read, rows, section};

#[test]
fn constants_are_those_of_the_code() {
    let text = read("spec/pool.md");
    let places = [
        ("## 2. Regions", numbers(&["pool"])),
        ("### Kinds", numbers(&["pool_kind"])),
        ("### Reasons", numbers(&["pool_reason"])),
        ("### Standings", numbers(&["standing"])),
    ];
    for (place, constants) in places {
        hold(&format!("{place} of spec/pool.md"), differences(&stated(section(&text, place)), &constants));
    }
    for magic in [EXTENT_MAGIC, POOL_MAGIC] {
        assert!(text.contains(&format!("`{}`", String::from_utf8_lossy(&magic))));
    }
}

#[test]
fn structures_are_those_of_the_code() {
    let text = read("spec/pool.md");
    let head =
        fields!(ExtentHead, ExtentHead::new_zeroed(), magic, pool, member, extent, page_count, reserved);
    let bytes = fields!(RefHead, RefHead::new_zeroed(), pool, member, extent, block, tag, offset, len);
    let message = fields!(
        PoolMessage,
        PoolMessage::new(0),
        magic,
        kind,
        member,
        extent,
        reason,
        amount,
        len,
        pool,
        version,
        reserved,
        secret
    );
    for (heading, fields) in
        [("### Extent header", head), ("### Ref fields", bytes), ("### Message fields", message)]
    {
        let field = |row: Vec<&str>| Some((number(row[0])?, number(row.get(1)?)?, row.get(2)?.to_string()));
        let stated: Vec<_> = rows(section(&text, heading)).into_iter().filter_map(field).collect();
        let known: Vec<_> = fields
            .into_iter()
            .map(|(name, offset, len)| (offset as u64, len as u64, format!("`{name}`")))
            .collect();
        assert_eq!(stated, known, "{heading}");
    }
}

/// The drawings in the layout's source are those of the document.
#[test]
fn drawings_are_those_of_the_code() {
    let (text, code) = (read("spec/pool.md"), read("crates/layout/src/pool.rs"));
    let drawn = |text: &str| -> Vec<String> {
        let lines = text.lines().map(|line| line.trim_start_matches("//!").trim().to_owned());
        lines.filter(|line| line.contains('|') && !line.starts_with('|')).collect()
    };
    let (stated, coded) = (drawn(&text), drawn(code.split("use zerocopy").next().expect("it has a head")));
    assert!(coded.len() >= 11, "the drawings were found");
    for line in coded {
        assert!(stated.contains(&line), "spec/pool.md doesn't draw: {line}");
    }
}
