//! What a pool's members share, at fixed places.

use serde_json::{Value, json};
use tollfree_layout::pool::ExtentShape;
use tollfree_layout::pool::{
    BlockState, EXTENT_PAGE_COUNT_MAX, EXTENT_PAGE_COUNT_MIN, GENERATION_MAX, HoldWord, PoolMessage, RefHead,
    block_word, hold_off, key_off, member_of, pool_kind, pool_reason, state_off,
};
use tollfree_layout::{ExtentIdx, Generation, MemberIdx, PageIdx};
use tollfree_vectors::to_hex;
use zerocopy::IntoBytes;

use super::{case, hold, refused};

const POOL: [u8; 16] = *b"0123456789abcdef";

fn wide(number: u64) -> String {
    format!("{number:016x}")
}

#[test]
fn pools_are_as_written_down() {
    let mut cases = Vec::new();
    let section = "pool.md, 2. Regions";
    for pages in [EXTENT_PAGE_COUNT_MIN, 255, 256, 257, 4096, EXTENT_PAGE_COUNT_MAX] {
        let shape = ExtentShape::of_pages(pages).expect("within the limits");
        let page = PageIdx(pages as u32 - 1);
        let answer = json!({
            "pages": pages, "data_off": shape.data_off(), "file_len": shape.file_len(), "row_len": shape.row_len(),
            "state_off": state_off(page), "key_off": key_off(page), "hold_off": hold_off(page),
        });
        let input = json!({ "data_len": pages * 4096, "page": page.0 });
        cases.push(case("extent", &format!("{pages} pages"), section, input, answer));
    }
    for (name, data_len) in [
        ("too short", (EXTENT_PAGE_COUNT_MIN - 1) * 4096),
        ("too long", (EXTENT_PAGE_COUNT_MAX + 1) * 4096),
        ("no whole pages", EXTENT_PAGE_COUNT_MIN * 4096 + 1),
    ] {
        assert!(ExtentShape::of_data(data_len as u64).is_none(), "{name}");
        let words = "no extent has so many bytes".to_owned();
        cases.push(refused("extent", name, section, json!({ "data_len": data_len, "page": 0 }), words));
    }
    for (name, page, generation) in
        [("a ref", 7, 1), ("of the last generation", (1 << 18) - 1, GENERATION_MAX)]
    {
        let head = RefHead {
            pool: POOL,
            member: 3.into(),
            extent: 4.into(),
            block: block_word(page, Generation(generation)).into(),
            tag: 0x0123_4567_89ab_cdef.into(),
            offset: 5.into(),
            len: (1 << 30).into(),
        };
        let answer = json!({
            "pool": to_hex(&POOL), "member": 3, "extent": 4, "page": page, "generation": wide(generation),
            "tag": wide(0x0123_4567_89ab_cdef), "offset": wide(5), "len": wide(1 << 30),
        });
        cases.push(case("ref", name, "pool.md, 3. Refs", json!({ "ref": to_hex(head.as_bytes()) }), answer));
    }
    for (name, state, hold_word) in [
        (
            "a block of two pages",
            BlockState { page_count: 2, generation: Generation(9) },
            HoldWord { taken: 5, held: 1 },
        ),
        ("no block, no hold", BlockState { page_count: 0, generation: Generation(0) }, HoldWord::default()),
        (
            "the largest",
            BlockState { page_count: 1 << 18, generation: Generation(GENERATION_MAX) },
            HoldWord { taken: u32::MAX, held: u32::MAX },
        ),
    ] {
        let input = json!({ "state": to_hex(&state.word().to_le_bytes()), "hold": to_hex(&hold_word.word().to_le_bytes()) });
        let answer = json!({
            "page_count": state.page_count, "generation": wide(state.generation.0),
            "taken": hold_word.taken, "held": hold_word.held,
        });
        cases.push(case("pool-words", name, "pool.md, 4. Blocks and 5. Holds", input, answer));
    }
    let about = |kind| PoolMessage::new(kind).about(MemberIdx(11), ExtentIdx(12)).of(1 << 40);
    for (name, message) in [
        ("join", PoolMessage { secret: POOL, ..PoolMessage::new(pool_kind::JOIN) }),
        ("a row", about(pool_kind::ROW).row(13)),
        ("refused", PoolMessage::new(pool_kind::REFUSAL).because(pool_reason::INVITATION)),
    ] {
        let answer = json!({
            "magic": to_hex(b"TOLLPOOL"), "kind": message.kind.get(), "member": message.member.get(),
            "extent": message.extent.get(), "reason": message.reason.get(), "amount": wide(message.amount.get()),
            "len": wide(message.len.get()), "pool": to_hex(&message.pool), "version": message.version.get(),
            "secret": to_hex(&message.secret),
        });
        let input = json!({ "message": to_hex(message.as_bytes()) });
        cases.push(case("pool-message", name, "pool.md, 6. Messages", input, answer));
    }
    cases.extend(tags());
    cases.extend(takes());
    for (name, secret) in [("a number", *b"a secret of 16 b"), ("of zeros", [0; 16])] {
        let input = json!({ "pool": to_hex(&POOL), "secret": to_hex(&secret) });
        let answer = json!({ "member": member_of(&secret, &POOL).0 });
        cases.push(case("pool-member", name, "pool.md, 6. Messages, Coming back", input, answer));
    }
    hold("pools.json", &cases);
}

const KEY: u64 = 0xfedc_ba98_7654_3210;
/// An extent of 16 pages, with a block of two pages at page 3.
const PAGES: u64 = 16;
const BLOCK: BlockState = BlockState { page_count: 2, generation: Generation(9) };

/// A ref to bytes of a block, with the tag that proves it.
fn made(page: u32, generation: u64, offset: u64, len: u64) -> RefHead {
    let mut head = RefHead {
        pool: POOL,
        member: 3.into(),
        extent: 4.into(),
        block: block_word(page, Generation(generation)).into(),
        tag: 0.into(),
        offset: offset.into(),
        len: len.into(),
    };
    head.tag = head.tag_by(KEY).into();
    head
}

fn tags() -> Vec<Value> {
    let tag = |(name, head): (&str, RefHead)| {
        let input = json!({ "key": to_hex(&KEY.to_le_bytes()), "ref": to_hex(head.as_bytes()) });
        case("ref-tag", name, "pool.md, 3. Refs", input, json!({ "tag": wide(head.tag.get()) }))
    };
    [
        ("all of a block", made(3, 9, 0, 8192)),
        ("a part of it", made(3, 9, 100, 1)),
        ("another generation", made(3, 10, 0, 8192)),
    ]
    .into_iter()
    .map(tag)
    .collect()
}

/// What a reader finds, and its row's word behind it.
fn takes() -> Vec<Value> {
    let good = made(3, 9, 0, 8192);
    let take = |name: &str, state: BlockState, key: u64, head: RefHead, outcome: &str, row: [u32; 2]| {
        let input = json!({
            "data_len": PAGES * 4096, "state": to_hex(&state.word().to_le_bytes()),
            "key": to_hex(&key.to_le_bytes()), "ref": to_hex(head.as_bytes()),
        });
        let answer = json!({ "outcome": outcome, "taken": row[0], "held": row[1] });
        case("take", name, "pool.md, 5. Holds", input, answer)
    };
    let of_pages = |page_count| BlockState { page_count, ..BLOCK };
    let of_generation = |generation| BlockState { generation: Generation(generation), ..BLOCK };
    vec![
        take("all of a block", BLOCK, KEY, good, "taken", [1, 1]),
        take("its last byte", BLOCK, KEY, made(3, 9, 8191, 1), "taken", [1, 1]),
        take("an earlier generation", of_generation(10), KEY, good, "stale", [1, 0]),
        take("a later generation", of_generation(8), KEY, good, "stale", [1, 0]),
        take("an earlier generation, and no key any more", of_generation(10), 0, good, "stale", [1, 0]),
        take("no block", of_pages(0), KEY, good, "forged", [1, 0]),
        take("no key", BLOCK, 0, RefHead { tag: good.tag_by(0).into(), ..good }, "forged", [1, 0]),
        take("another key", BLOCK, KEY + 1, good, "forged", [1, 0]),
        take(
            "another tag",
            BLOCK,
            KEY,
            RefHead { tag: (good.tag.get() ^ 1).into(), ..good },
            "forged",
            [1, 0],
        ),
        take("a ref that was widened", BLOCK, KEY, RefHead { len: 8193.into(), ..good }, "forged", [1, 0]),
        take("a block that leads out of the extent", of_pages(14), KEY, good, "malformed", [1, 0]),
        take("a range that leads out of the block", BLOCK, KEY, made(3, 9, 1, 8192), "malformed", [1, 0]),
        take("a range whose end overflows", BLOCK, KEY, made(3, 9, u64::MAX, 2), "malformed", [1, 0]),
        take("a page that is not in the extent", BLOCK, KEY, made(16, 9, 0, 1), "malformed", [0, 0]),
    ]
}
