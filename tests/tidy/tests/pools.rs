//! `spec/pool.md` says what the code does: its constants and its structures.

use std::collections::BTreeMap;

use tollfree_layout::pool::{
    EXTENT_MAGIC, ExtentHead, POOL_MAGIC, PoolMessage, RefHead, pool_kind, pool_reason, standing,
};
use zerocopy::FromZeros;

use crate::spec::{declared_in, differences, fields, number, stated};
use crate::{hold, read, rows, section};

macro_rules! constants {
    ($($($path:ident)::+),* $(,)?) => {
        BTreeMap::from([$((
            stringify!($($path)::+).rsplit("::").next().expect("a path has an end").trim().to_owned(),
            tollfree_layout::pool::$($path)::+ as u64
        )),*])
    };
}

macro_rules! named {
    ($module:ident: $($name:ident),* $(,)?) => {
        BTreeMap::from([$((stringify!($name).to_owned(), u64::from($module::$name))),*])
    };
}

#[test]
fn constants_are_those_of_the_code() {
    let text = read("spec/pool.md");
    let numbers = constants![
        POOL_VERSION,
        POOL_ID_LEN,
        DIRECTORY_OFF,
        ENTRY_LEN,
        HOLD_LEN,
        REF_LEN,
        POOL_MESSAGE_LEN,
        SECRET_LEN,
        EXTENT_PAGE_COUNT_MIN,
        EXTENT_PAGE_COUNT_MAX,
        HOLD_COUNT_MAX,
        GENERATION_BITS,
        GENERATION_MAX,
    ];
    let kinds = named![pool_kind: JOIN, WELCOME, REFUSAL, NEED, GRANT, DENY, EXTENT, EXTENT_OK, MAP, MAPPED, ROW, ROW_OK,
        NOT_HAD, WATCHED, MAP_FAILED, SURPLUS, TAKE_BACK, RETURNED, DROP, UNMAPPED, PRESENT, RESUMED, WANTED, GIVE,
        LEAVE, LEFT, SHOW, SHOWN, SHOWN_MEMBER];
    let standings = named![standing: ATTACHED, RETURNING, CUT_OFF];
    let reasons =
        named![pool_reason: GONE, QUOTA, CAPACITY, POOL, VERSION, BUSY, USER, MALFORMED, LIFE, INVITATION];
    let count = numbers.len() + kinds.len() + reasons.len() + standings.len();
    let declared = declared_in(&["pool"]);
    assert_eq!(count + 2, declared.len(), "all that the layout declares, and the two magics: {declared:?}");
    let places = [
        ("## 2. Regions", numbers),
        ("### Kinds", kinds),
        ("### Reasons", reasons),
        ("### Standings", standings),
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
