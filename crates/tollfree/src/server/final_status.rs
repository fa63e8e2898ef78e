//! A failed call's status, made to fit what its client takes: the code always arrives, whatever the handler says beside it.

use bytes::Bytes;
use tollfree_layout::metadata;

const MESSAGE: &str = "grpc-message";
const DETAILS: &str = "grpc-status-details-bin";
/// What a pair with a name of the protocol's table takes beside its value.
const PAIR_LEN: usize = 3;

/// Packs the trailers of a failed call into a block of at most `max` bytes: without the details where they don't fit, without
/// the application's metadata where those take more than half of it, and with a message that is cut at the end of a
/// character. The message says what was left out.
///
/// `pairs` are names and values as HTTP/2 would carry them.
pub(crate) fn fit<'a>(pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>, max: usize) -> Bytes {
    let (mut message, mut details, mut block) = (&[][..], &[][..], Vec::new());
    let mut is_whole = true;
    for (name, value) in pairs {
        match std::str::from_utf8(name) {
            Ok(MESSAGE) => message = value,
            Ok(DETAILS) => details = value,
            Ok(name) => is_whole &= metadata::pack(&mut block, name, value).is_ok(),
            Err(_) => is_whole = false,
        }
    }
    let mut left_out = Vec::new();
    if !is_whole || block.len() > max / 2 {
        block.clear();
        left_out.push("the metadata");
    }
    let len = |value: &[u8]| if value.is_empty() { 0 } else { PAIR_LEN + value.len() };
    let note_len_max = note(max, &["the details", "the metadata"]).len();
    let keeps_details = block.len() + len(message) + len(details) + note_len_max <= max;
    if !keeps_details && !details.is_empty() {
        left_out.push("the details");
    }
    let note = note(max, &left_out);
    let room = max.saturating_sub(block.len() + PAIR_LEN + if keeps_details { len(details) } else { 0 });
    let mut text = cut(message, room.saturating_sub(note.len())).to_vec();
    text.extend_from_slice(cut(note.as_bytes(), room));
    // Neither is longer than a pair can carry, for the block is not.
    let _ = metadata::pack(&mut block, MESSAGE, &text);
    if keeps_details && !details.is_empty() {
        let _ = metadata::pack(&mut block, DETAILS, details);
    }
    block.into()
}

fn note(max: usize, left_out: &[&str]) -> String {
    let left_out = if left_out.is_empty() { "the end of this".to_owned() } else { left_out.join(" and ") };
    format!(" [the client takes {max} bytes of status and metadata; left out: {left_out}]")
}

/// The longest part of a percent-encoded text that has at most `len` bytes and ends where a character does.
fn cut(encoded: &[u8], len: usize) -> &[u8] {
    if encoded.len() <= len {
        return encoded;
    }
    let (mut at, mut end) = (0, 0);
    while at <= len {
        let escaped = encoded.get(at + 1..at + 3).filter(|_| encoded[at] == b'%');
        let escaped =
            escaped.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        let (byte, step) = escaped.map_or((encoded[at], 1), |byte| (byte, 3));
        if byte & 0xc0 != 0x80 {
            end = at;
        }
        at += step;
    }
    &encoded[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted(pairs: &[(&str, &str)], max: usize) -> Vec<(String, String)> {
        let block = fit(pairs.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())), max);
        assert!(block.len() <= max, "{} of {max} bytes", block.len());
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        metadata::pairs(&block)
            .map(|pair| pair.map(|(name, value)| (text(name.as_bytes()), text(value))).unwrap())
            .collect()
    }

    #[test]
    fn details_that_do_not_fit_are_left_out_and_the_message_says_so() {
        let details = "A".repeat(16_000);
        let got = fitted(&[(MESSAGE, "no"), (DETAILS, &details), ("x-a", "1")], 15_360);
        assert_eq!(got[0], ("x-a".into(), "1".into()));
        assert_eq!((got.len(), &*got[1].0), (2, MESSAGE));
        assert!(
            got[1].1.starts_with("no [") && got[1].1.contains("15360") && got[1].1.contains("the details")
        );
    }

    #[test]
    fn metadata_that_do_not_fit_are_left_out_and_the_details_stay() {
        let long = "m".repeat(70_000);
        for metadata in [&long[..9_000], &long] {
            let got = fitted(&[(MESSAGE, "no"), (DETAILS, "AAE"), ("x-a", metadata)], 15_360);
            assert_eq!(got[1], (DETAILS.into(), "AAE".into()));
            assert!(got[0].1.starts_with("no [") && got[0].1.contains("the metadata"), "{got:?}");
        }
    }

    #[test]
    fn a_message_ends_with_a_character_wherever_it_is_cut() {
        let encoded = "a%C3%BC%E6%BC%A2b%F0%9F%9A%97%41";
        let wholes = [0, 1, 7, 16, 17, 29, 32];
        for len in 0..=encoded.len() + 2 {
            let wanted = wholes.iter().rev().find(|whole| **whole <= len).unwrap();
            assert_eq!(cut(encoded.as_bytes(), len).len(), *wanted, "at most {len} bytes");
        }
        for odd in ["%", "%4", "%zz", "%%%%", "plain"] {
            for len in 0..6 {
                assert!(cut(odd.as_bytes(), len).len() <= len);
            }
        }
    }

    #[test]
    fn the_least_that_a_client_may_take_is_kept() {
        let long = "%E6%BC%A2".repeat(10_000);
        for max in 256..600 {
            let got = fitted(&[(MESSAGE, &long), (DETAILS, &long), ("x-a", &long)], max);
            assert!(got.len() == 1 && got[0].1.contains("left out"), "{got:?}");
        }
    }
}
