//! Every head of a frame that a peer can write, against the tables of `spec/wire.md`, section 8: which are frames, and how long
//! their records are.

use tollfree_layout::frame::{
    AREA_RANGE_LEN, DEADLINE_LEN, FRAME_HEAD_LEN, FrameHead, control, events, flags,
};
use zerocopy::IntoBytes;

use crate::Role;
use crate::frame::Frame;
use crate::tests::script::Record;

use events::*;
use flags::*;

/// The table of flags.
fn has_allowed_flags(head: &FrameHead, sender: Role, pooled: bool) -> bool {
    let has = |flag: u8| head.flags & flag != 0;
    let message = head.events & MESSAGE != 0;
    let first = message && has(FIRST);
    let opens = head.events & HEADERS != 0 && sender == Role::Client;
    let batch = first && has(LAST) && !has(COMPRESSED | SEGMENTED | HAS_DEADLINE);
    let is_allowed = |flag| match flag {
        FIRST | LAST | IN_AREA => message,
        COMPRESSED => first,
        NAMES_METHOD => opens || (batch && head.message_len.get() > 0 && head.chunk_len.get() > 0),
        HAS_DEADLINE => opens,
        OBJECT => first && !has(COMPRESSED),
        SEGMENTED => first && pooled,
        _ => unreachable!("{flag}"),
    };
    (0..8).map(|bit| 1 << bit).filter(|flag| has(*flag)).all(is_allowed)
}

/// The table of fields; no control code that there is not.
fn is_frame(head: &FrameHead, sender: Role, pooled: bool) -> bool {
    let (code, chunk_len) = (head.code.get(), head.chunk_len.get());
    let [headers_len, trailers_len] = [head.headers_len.get(), head.trailers_len.get()];
    let message_len = head.message_len.get();
    let is_server = sender == Role::Server;
    let has = |event: u8| head.events & event != 0;
    let no_lengths = headers_len == 0 && chunk_len == 0;
    match head.events {
        0 => false,
        1..=15 => {
            !has(if is_server { HALF_CLOSE } else { TRAILERS })
                && has_allowed_flags(head, sender, pooled)
                && (code == 0 || has(if is_server { TRAILERS } else { HEADERS }))
                && (headers_len == 0 || has(HEADERS))
                && (trailers_len == 0 || has(TRAILERS))
                && (chunk_len == 0 || has(MESSAGE))
                && (message_len == 0 || (has(MESSAGE) && head.flags & FIRST != 0))
        }
        _ if trailers_len != 0 || message_len != 0 => false,
        CANCEL => (head.flags == 0 || head.flags == REFUSED) && no_lengths,
        _ if head.flags != 0 => false,
        CREDIT => code == 0 && headers_len == 0 && chunk_len != 0,
        DRAIN => code == 0 && no_lengths && is_server,
        CONTROL => match code {
            control::CLOSE => chunk_len == 0,
            control::AREA_ACCEPT | control::AREA_REFUSE | control::AREA_DROP => no_lengths,
            control::OBJECTS => headers_len == 0 && is_server,
            _ => headers_len == 0,
        },
        _ => false,
    }
}

fn record_len(head: &FrameHead) -> usize {
    let chunk_len = head.chunk_len.get() as usize;
    let chunk = match head.events {
        CONTROL if head.code.get() == control::SEGMENTED_BYTES => chunk_len,
        events if events & MESSAGE == 0 => 0,
        _ if head.flags & IN_AREA != 0 => AREA_RANGE_LEN,
        _ => chunk_len,
    };
    let deadline = if head.flags & HAS_DEADLINE != 0 { DEADLINE_LEN } else { 0 };
    let blocks = usize::from(head.headers_len.get()) + usize::from(head.trailers_len.get());
    FRAME_HEAD_LEN + deadline + blocks + chunk
}

/// All heads of these events, with each field that may be zero or not as either.
fn heads(event: u8, codes: &[u16]) -> impl Iterator<Item = FrameHead> {
    let fields = (0..16_u16).flat_map(move |bits| codes.iter().map(move |code| (bits, *code)));
    fields.flat_map(move |(bits, code)| {
        let field = move |at: u16| bits >> at & 1;
        (0..=255).map(move |flags| FrameHead {
            events: event,
            flags,
            code: code.into(),
            headers_len: (3 * field(0)).into(),
            trailers_len: (5 * field(1)).into(),
            stream: 1.into(),
            chunk_len: (7 * u32::from(field(2))).into(),
            message_len: (9 * u32::from(field(3))).into(),
        })
    })
}

#[test]
fn the_heads_that_are_taken_are_those_of_the_specification() {
    let control_codes: Vec<u16> = (control::AREA_OFFER..=control::OBJECTS).collect();
    let several = [CANCEL | CREDIT, CREDIT | MESSAGE, DRAIN | HEADERS, CONTROL | TRAILERS, 0xff];
    let mut taken = 0;
    for event in (0..=15).chain([CANCEL, CREDIT, DRAIN, CONTROL]).chain(several) {
        let codes = if event == CONTROL { &control_codes[..] } else { &[0, 1] };
        for head in heads(event, codes) {
            let mut record = head.as_bytes().to_vec();
            record.resize(record_len(&head), 0);
            let record = Record(record);
            for (sender, pooled) in
                [(Role::Client, false), (Role::Client, true), (Role::Server, false), (Role::Server, true)]
            {
                let is_taken = Frame::fetch(&record, sender, pooled).is_ok();
                assert_eq!(is_taken, is_frame(&head, sender, pooled), "{sender:?} {pooled} {head:?}");
                taken += u32::from(is_taken);
            }
        }
    }
    assert!(taken > 1000, "{taken}");
}

/// A frame that says all is read in one piece; a server looks for these, and an answer, before anything else.
#[test]
fn a_frame_that_says_all_is_known_by_its_head() {
    let may_be_beside = |flags: u8, beside: u8| {
        flags & (FIRST | LAST) == FIRST | LAST && { flags & !(FIRST | LAST | beside) == 0 }
    };
    for event in 1..=15 {
        for head in heads(event, &[0, 1])
            .flat_map(|head| [head, FrameHead { message_len: head.chunk_len.get().into(), ..head }])
        {
            let mut record = head.as_bytes().to_vec();
            record.resize(record_len(&head), 0);
            let record = Record(record);
            let same_len = head.chunk_len == head.message_len;
            if let Ok(request) = Frame::fetch(&record, Role::Client, true) {
                let all = event == HEADERS | MESSAGE | HALF_CLOSE;
                let whole = all && same_len && may_be_beside(head.flags, HAS_DEADLINE | OBJECT);
                assert_eq!(request.is_whole_request(), whole, "{head:?}");
            }
            if let Ok(answer) = Frame::fetch(&record, Role::Server, true) {
                let all = event == HEADERS | MESSAGE | TRAILERS && head.code.get() == 0;
                assert_eq!(
                    answer.is_whole_answer(),
                    all && same_len && may_be_beside(head.flags, OBJECT),
                    "{head:?}"
                );
            }
        }
    }
}
