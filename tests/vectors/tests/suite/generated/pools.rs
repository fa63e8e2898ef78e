//! What a pool's members share, at fixed places.

use serde_json::json;
use tollfree_layout::pool::ExtentShape;
use tollfree_layout::pool::{
    BlockState, EXTENT_PAGE_COUNT_MAX, EXTENT_PAGE_COUNT_MIN, GENERATION_MAX, HoldWord, PoolMessage, RefHead,
    block_word, hold_off, key_off, pool_kind, pool_reason, state_off,
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
    hold("pools.json", &cases);
}
