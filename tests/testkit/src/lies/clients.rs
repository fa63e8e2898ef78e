//! What clients do to servers.

use tollfree_layout::frame::{events, flags};
use tollfree_layout::limits;

use super::{ECHO, Lie, lie, lies_of_both, say};
use crate::frames::{Frame, opening_of};
use crate::peer::HostilePeer;

/// Acts of a client that end its session.
pub fn lies_of_clients() -> Vec<Lie> {
    let mut lies = lies_of_both();
    lies.extend([
        lie("cursor ahead", "ring", "cursor out of range", |peer| {
            peer.forge_cursor(1 << 40);
            answers(peer, 1..100, false);
        }),
        lie("cursor back", "ring", "cursor out of range", |peer| {
            // The server has to look at the cursor, and to see it further on, before it can go back.
            answers(peer, 1..100, true);
            peer.forge_cursor(1);
            answers(peer, 100..200, false);
        }),
        lie("all flags", "frame", "flags 0xff", |peer| say(peer, &Frame::new(events::HEADERS, 0xff, 1))),
        lie("stream 0", "stream", "stream 0", |peer| say(peer, &opening_of(0, 0, ECHO, b""))),
        lie("stream 2 first", "stream", "stream 2", |peer| say(peer, &opening_of(2, 0, ECHO, b""))),
        lie("stream 2^64-1", "stream", "stream 18446744073709551615", |peer| {
            say(peer, &opening_of(u64::MAX, 0, ECHO, b""));
        }),
        lie("stream twice", "stream", "stream 1", |peer| (0..2).for_each(|_| open(peer, 1))),
        lie("method never named", "method", "method index 7", |peer| {
            say(peer, &Frame::new(events::HEADERS, 0, 1).code(7));
        }),
        lie("method out of turn", "method", "method index 5", |peer| say(peer, &opening_of(1, 5, ECHO, b""))),
        lie("path longer than its block", "method", "method path of 9", |peer| {
            say(peer, &Frame::new(events::HEADERS, flags::NAMES_METHOD, 1).headers(&[9, 0, b'/']));
        }),
        lie("frame shorter than it says", "frame", "announces", |peer| {
            say(peer, &opening_of(1, 0, ECHO, b"hi").chunk_len(3));
        }),
        lie("frame longer than it says", "frame", "announces", |peer| {
            say(peer, &opening_of(1, 0, ECHO, b"hi").bytes(b"!"));
        }),
        lie("chunk longer than its message", "message", "does not fit", |peer| {
            say(peer, &opening_of(1, 0, ECHO, b"hi").message_len(1));
        }),
        lie("metadata cut", "metadata", "metadata", |peer| {
            say(peer, &opening_of(1, 0, ECHO, b"").headers(&[1]));
        }),
        lie("metadata over the limit", "metadata", "were allowed", |peer| {
            say(peer, &opening_of(1, 0, ECHO, b"").headers(&vec![1; limits::METADATA_LEN_MAX + 1]));
        }),
        lie("chunk in an area that is not", "area", "outside the payload area", |peer| {
            let whole = flags::FIRST | flags::LAST | flags::IN_AREA | flags::NAMES_METHOD;
            let path_len = (ECHO.len() as u16).to_le_bytes();
            let frame = Frame::new(events::HEADERS | events::MESSAGE, whole, 1)
                .headers(&path_len)
                .headers(ECHO.as_bytes());
            say(peer, &frame.chunk_len(10_000).message_len(10_000).bytes(&[0; 16]));
        }),
    ]);
    lies
}

fn open(peer: &mut HostilePeer, stream: u64) {
    say(peer, &opening_of(stream, stream as u16 - 1, &format!("{ECHO}{stream}"), b"hi"));
}

/// Asks for more than the server's ring holds, so that it looks at the cursor; reads the answers or does not.
fn answers(peer: &mut HostilePeer, streams: std::ops::Range<u64>, read: bool) {
    for stream in streams {
        let events = events::HEADERS | events::MESSAGE | events::HALF_CLOSE;
        let named = if stream == 1 { flags::NAMES_METHOD } else { 0 };
        let mut frame = Frame::new(events, flags::FIRST | flags::LAST | named, stream);
        if stream == 1 {
            frame = frame.headers(&(ECHO.len() as u16).to_le_bytes()).headers(ECHO.as_bytes());
        }
        let _ = peer.send(&frame.message_len(2000).chunk(&[1; 2000]));
        if read {
            let _ = peer.read();
        }
        if peer.door().is_closed() {
            return;
        }
    }
}
