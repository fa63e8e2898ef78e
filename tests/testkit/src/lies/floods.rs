//! What clients may do without end, within the protocol.

use std::io;
use std::time::{Duration, Instant};

use tollfree_layout::control::Waiting;
use tollfree_layout::frame::{events, flags};

use super::ECHO;
use crate::frames::{Frame, opening_of};
use crate::peer::HostilePeer;

/// One round of a flood, by its number from 0: whether it can go on.
pub type Flood = fn(&mut HostilePeer, u64) -> bool;

/// Floods by name.
pub const FLOODS: [(&str, Flood); 4] = [
    ("credit", |peer, _| peer.send(&Frame::new(events::CREDIT, 0, 0).chunk_len(1)).is_ok()),
    ("opens and cancels", |peer, idx| {
        let stream = idx + 1;
        let named = if stream == 1 { flags::NAMES_METHOD } else { 0 };
        let mut opening = Frame::new(events::HEADERS, named, stream);
        if stream == 1 {
            opening = opening.headers(&(ECHO.len() as u16).to_le_bytes()).headers(ECHO.as_bytes());
        }
        while peer.try_read().is_some() {}
        peer.send(&opening).is_ok() && peer.send(&Frame::new(events::CANCEL, 0, stream).code(1)).is_ok()
    }),
    ("empty messages", |peer, idx| {
        if idx == 0 {
            let opening = Frame::new(events::HEADERS, flags::NAMES_METHOD, 1);
            let path_len = (ECHO.len() as u16).to_le_bytes();
            return peer.send(&opening.headers(&path_len).headers(ECHO.as_bytes())).is_ok();
        }
        // Within the credit that the server gives, it goes on without end.
        let mut granted = 0;
        while let Some(record) = peer.try_read() {
            if record.first() == Some(&events::CREDIT) && record[8] == 1 {
                granted += u64::from(u32::from_le_bytes(record[16..20].try_into().unwrap_or_default()));
            }
        }
        let count = if idx == 1 { 900 } else { granted / 64 };
        (0..count).all(|_| peer.send(&Frame::new(events::MESSAGE, flags::FIRST | flags::LAST, 1)).is_ok())
    }),
    ("doorbells", |peer, _| {
        peer.ring();
        true
    }),
];

/// Calls for a tenth of a second while the ring is rewritten, and gives how many words were.
pub fn rewrite(peer: &mut HostilePeer, seed: u64) -> u64 {
    let flipper = peer.flip(seed);
    let began = Instant::now();
    for stream in 1..2000u64 {
        let message = vec![5; stream as usize % 900];
        let frame = opening_of(stream, stream as u16 - 1, &format!("{ECHO}{stream}"), &message);
        let left = Duration::from_millis(100).saturating_sub(began.elapsed());
        if left.is_zero() || peer.send_within(&frame, left).is_err() {
            break;
        }
        while peer.try_read().is_some() {}
    }
    flipper.stop()
}

/// Makes 500 calls with a forged waiting word and doorbells that nobody needs; the server answers each.
///
/// # Errors
/// The server has hung up, or does not answer.
pub fn restless(peer: &mut HostilePeer) -> io::Result<()> {
    let mut word = Waiting::default();
    for stream in 1..500u64 {
        word = if stream % 3 == 0 { Waiting(u32::MAX) } else { word.park(stream % 2 == 0) };
        peer.say_waiting(word);
        peer.ring();
        peer.send(&opening_of(stream, stream as u16 - 1, &format!("{ECHO}{stream}"), b"hi"))?;
        peer.read()?;
    }
    Ok(())
}
