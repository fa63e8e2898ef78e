//! What servers do to clients. The client has called, and waits for an answer on stream 1.

use tollfree_layout::frame::{events, flags};
use tollfree_layout::limits;

use super::{Lie, lie, lies_of_both, say};
use crate::frames::Frame;

/// Acts of a server that end its session.
pub fn lies_of_servers() -> Vec<Lie> {
    const WHOLE: u8 = flags::FIRST | flags::LAST;
    let mut lies = lies_of_both();
    lies.extend([
        lie("all flags", "frame", "flags 0xff", |peer| say(peer, &Frame::new(events::HEADERS, 0xff, 1))),
        lie("a client's event", "frame", "events", |peer| {
            say(peer, &Frame::new(events::HALF_CLOSE, 0, 1));
        }),
        lie("a client's flag", "frame", "flags", |peer| {
            say(peer, &Frame::new(events::HEADERS, flags::NAMES_METHOD, 1).headers(&[1, 0, b'/']));
        }),
        lie("answer to what was not asked", "stream", "stream 2", |peer| {
            say(peer, &Frame::new(events::TRAILERS, 0, 2));
        }),
        lie("answer to stream 0", "stream|frame", "stream 0", |peer| {
            say(peer, &Frame::new(events::HEADERS, 0, 0));
        }),
        lie("headers twice", "stream", "", |peer| {
            (0..2).for_each(|_| say(peer, &Frame::new(events::HEADERS, 0, 1)));
        }),
        lie("message before headers", "stream", "", |peer| {
            say(peer, &Frame::new(events::MESSAGE, WHOLE, 1));
        }),
        lie("chunk longer than its message", "message", "does not fit", |peer| {
            let answer = Frame::new(events::HEADERS | events::MESSAGE, WHOLE, 1);
            say(peer, &answer.message_len(1).chunk(b"hi"));
        }),
        lie("frame longer than it says", "frame", "announces", |peer| {
            say(peer, &Frame::new(events::TRAILERS, 0, 1).bytes(b"!"));
        }),
        lie("metadata cut", "metadata", "metadata", |peer| {
            say(peer, &Frame::new(events::HEADERS, 0, 1).headers(&[1]));
        }),
        lie("metadata over the limit", "metadata", "were allowed", |peer| {
            say(peer, &Frame::new(events::TRAILERS, 0, 1).trailers(&vec![1; limits::METADATA_LEN_MAX + 1]));
        }),
        lie("chunk in an area that is not", "area", "outside the payload area", |peer| {
            let frame = Frame::new(events::HEADERS | events::MESSAGE, WHOLE | flags::IN_AREA, 1);
            say(peer, &frame.chunk_len(10_000).message_len(10_000).bytes(&[0; 16]));
        }),
        lie("more than the credit", "credit", "credit", |peer| {
            say(peer, &Frame::new(events::HEADERS, 0, 1));
            // The call's reader takes nothing, so that the client grants nothing.
            for _ in 0..5000 {
                say(peer, &Frame::new(events::MESSAGE, WHOLE, 1).message_len(1000).chunk(&[1; 1000]));
                // A client in which nobody waits for anything looks when it is rung.
                peer.ring();
                if peer.door().is_closed() {
                    return;
                }
            }
        }),
        lie("credit for what was not asked", "stream", "stream 9", |peer| {
            say(peer, &Frame::new(events::CREDIT, 0, 9).chunk_len(u32::MAX));
        }),
        lie("drain above what was opened", "drain", "stream 9", |peer| {
            say(peer, &Frame::new(events::DRAIN, 0, 9));
        }),
        lie("drain that rises", "drain", "stream 1", |peer| {
            say(peer, &Frame::new(events::DRAIN, 0, 0));
            say(peer, &Frame::new(events::DRAIN, 0, 1));
        }),
    ]);
    lies
}
