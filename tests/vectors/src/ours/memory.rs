//! What lies in shared memory, or comes through a socket, at fixed places: pools and handshakes.

use std::sync::atomic::Ordering;

use serde_json::json;
use tollfree_layout::PageIdx;
use tollfree_layout::handshake::Hello;
use tollfree_layout::pool::{
    BlockState, ExtentShape, HOLD_COUNT_MAX, HoldWord, PoolMessage, RefHead, hold_off, key_off, member_of,
    state_off,
};
use tollfree_pool::holds::{self, Row, TakeError};
use tollfree_region::{HeapMemory, ReadMemory, WriteMemory};
use tollfree_vectors::to_hex;
use zerocopy::FromBytes;

use crate::{Answer, Question};

/// A number that JSON's readers may round: 16 digits.
fn wide(number: u64) -> String {
    format!("{number:016x}")
}

fn word(question: &Question, field: &str) -> Result<u64, String> {
    let bytes = question.bytes(field)?.try_into().map_err(|_| format!("{field} is not 8 bytes long"))?;
    Ok(u64::from_le_bytes(bytes))
}

pub(crate) fn extent(question: &Question) -> Answer {
    let shape = ExtentShape::of_data(question.number("data_len")?).ok_or("no extent has so many bytes")?;
    let page = PageIdx(u32::try_from(question.number("page")?).map_err(|error| error.to_string())?);
    Ok(json!({
        "pages": shape.page_count(),
        "data_off": shape.data_off(),
        "file_len": shape.file_len(),
        "row_len": shape.row_len(),
        "state_off": state_off(page),
        "key_off": key_off(page),
        "hold_off": hold_off(page),
    }))
}

pub(crate) fn block_ref(question: &Question) -> Answer {
    let head = head(question)?;
    let (page, generation) = head.block();
    Ok(json!({
        "pool": to_hex(&head.pool),
        "member": head.member.get(),
        "extent": head.extent.get(),
        "page": page.0,
        "generation": wide(generation.0),
        "tag": wide(head.tag.get()),
        "offset": wide(head.offset.get()),
        "len": wide(head.len.get()),
    }))
}

fn head(question: &Question) -> Result<RefHead, String> {
    RefHead::read_from_bytes(&question.bytes("ref")?).map_err(|_| "a ref has another length".to_owned())
}

/// What a member that sees the block's key writes into a ref.
pub(crate) fn tag(question: &Question) -> Answer {
    Ok(json!({ "tag": wide(head(question)?.tag_by(word(question, "key")?)) }))
}

/// A reader that takes hold of a block, in a row and an extent of zeros but for the words of the block's first page.
pub(crate) fn take(question: &Question) -> Answer {
    let shape = ExtentShape::of_data(question.number("data_len")?).ok_or("no extent has so many bytes")?;
    let (head, extent) = (head(question)?, HeapMemory::new(shape.data_off()));
    let (page, generation) = head.block();
    if page.as_usize() >= shape.page_count() {
        return Ok(json!({ "outcome": "malformed", "taken": 0, "held": 0 }));
    }
    extent.store_u64(state_off(page), word(question, "state")?, Ordering::Relaxed);
    extent.store_u64(key_off(page), word(question, "key")?, Ordering::Relaxed);
    let mut row = Row::new(HeapMemory::new(shape.row_len()), HOLD_COUNT_MAX);
    let taken = holds::take(&mut row, &extent, page, generation, |key| head.tag_by(key) == head.tag.get());
    let outcome = match taken {
        Ok(state) if shape.block_len(page, state).is_some_and(|len| head.range_in(len).is_some()) => "taken",
        Ok(_) => {
            row.release(page);
            "malformed"
        }
        Err(TakeError::Stale) => "stale",
        Err(TakeError::Forged) => "forged",
        Err(error) => return Err(error.to_string()),
    };
    let hold = HoldWord::from_word(row.memory().load_u64(hold_off(page), Ordering::Relaxed));
    Ok(json!({ "outcome": outcome, "taken": hold.taken, "held": hold.held }))
}

/// The number of the member that has a secret.
pub(crate) fn member(question: &Question) -> Answer {
    let sixteen =
        |field: &str| question.bytes(field)?.try_into().map_err(|_| format!("{field} is not 16 bytes long"));
    let (secret, pool) = (sixteen("secret")?, sixteen("pool")?);
    Ok(json!({ "member": member_of(&secret, &pool).0 }))
}

pub(crate) fn words(question: &Question) -> Answer {
    let state = BlockState::from_word(word(question, "state")?);
    let hold = HoldWord::from_word(word(question, "hold")?);
    Ok(json!({
        "page_count": state.page_count,
        "generation": wide(state.generation.0),
        "taken": hold.taken,
        "held": hold.held,
    }))
}

pub(crate) fn message(question: &Question) -> Answer {
    let bytes = question.bytes("message")?;
    let message = PoolMessage::read_from_bytes(&bytes).map_err(|_| "a message has another length")?;
    Ok(json!({
        "magic": to_hex(&message.magic),
        "kind": message.kind.get(),
        "member": message.member.get(),
        "extent": message.extent.get(),
        "reason": message.reason.get(),
        "amount": wide(message.amount.get()),
        "len": wide(message.len.get()),
        "pool": to_hex(&message.pool),
        "version": message.version.get(),
        "secret": to_hex(&message.secret),
    }))
}

pub(crate) fn handshake(question: &Question) -> Answer {
    let bytes = question.bytes("message")?;
    // A registration follows in some.
    let (hello, body) = Hello::read_from_prefix(&bytes).map_err(|_| "a message is longer")?;
    let mut fields = json!({
        "kind": hello.kind.get(),
        "version_min": hello.version_min.get(),
        "version_max": hello.version_max.get(),
        "features": hello.features.get(),
        "required": hello.required.get(),
        "region_len": hello.region_len.get(),
        "ring_len": hello.ring_len.get(),
        "stream_window": hello.stream_window.get(),
        "session_window": hello.session_window.get(),
        "clock_ns": hello.clock_ns.get(),
        "stream_count": hello.stream_count.get(),
        "area_len_max": hello.area_len_max.get(),
        "metadata_len_max": hello.metadata_len_max.get(),
        "reason": hello.reason.get(),
        "text": hello.text(),
        "token": to_hex(&hello.token),
        "tcp_client": to_hex(&hello.tcp_client),
        "tcp_server": to_hex(&hello.tcp_server),
        "tcp_client_port": hello.tcp_client_port.get(),
        "tcp_server_port": hello.tcp_server_port.get(),
    });
    let body_len = hello.body_len.get();
    if body_len > 0 {
        let body = body.get(..body_len as usize).ok_or("the registration breaks off")?;
        (fields["body_len"], fields["body"]) = (body_len.into(), to_hex(body).into());
    }
    Ok(fields)
}
