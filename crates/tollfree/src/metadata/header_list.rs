//! Header lists in HTTP/2's count: how long they may be for the other end, and what a client gets instead of a longer one.
//!
//! One that is sent a much longer list than it takes ends its whole connection, with all other calls on it. A session counts
//! metadata otherwise: a pair of a few bytes there is 32 bytes more here.

use http::header::{CONTENT_TYPE, HeaderMap};
use tonic::{Code, Status};

/// What HTTP/2 counts for each field beside its name and value (RFC 9113, section 6.5.2).
const FIELD_LEN: usize = 32;
/// `:status` and `date`, which the HTTP library adds.
const OWN_LEN: usize = FIELD_LEN + ":status200".len() + FIELD_LEN + "dateThu, 26 Nov 2026 00:00:00 GMT".len();
/// A client that takes less can't be told how a call ended.
const MIN: u32 = 1024;

/// The length of some fields in bytes.
pub fn len_of(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD_LEN).sum()
}

/// The length of a request's head in bytes.
pub fn len_of_request(uri: &http::Uri, headers: &HeaderMap) -> usize {
    let target = uri.path_and_query().map_or(0, |path| path.as_str().len());
    let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
    len_of(headers) + target + authority + 4 * FIELD_LEN + ":method:scheme:path:authorityPOSThttp".len()
}

/// Whether a client that takes lists of `max` bytes gets these headers or trailers.
///
/// # Errors
/// What it gets instead: the same code and as much of the message as there is room for, where they end a call that has failed; else
/// RESOURCE_EXHAUSTED.
pub fn check(headers: &HeaderMap, max: u32) -> Result<(), Status> {
    let (len, max) = (OWN_LEN + len_of(headers), max.max(MIN) as usize);
    if len <= max {
        return Ok(());
    }
    let note = format!("the client takes {max} bytes of headers by HTTP/2's count, and these have {len}");
    match Status::from_header_map(headers).filter(|status| status.code() != Code::Ok) {
        None => Err(Status::resource_exhausted(format!("an answer's metadata: {note}"))),
        Some(status) => {
            let note = format!(" [the metadata are left out: {note}]");
            let others = OWN_LEN + 3 * FIELD_LEN + CONTENT_TYPE.as_str().len() + "application/grpc".len();
            let room = max.saturating_sub(others + "grpc-status00grpc-message".len() + encoded_len(&note));
            Err(Status::new(status.code(), format!("{}{note}", cut(status.message(), room))))
        }
    }
}

/// The length of a message as `grpc-message` has it.
fn encoded_len(text: &str) -> usize {
    text.bytes().map(encoded_byte_len).sum()
}

/// The most that one byte takes, percent-encoded.
fn encoded_byte_len(byte: u8) -> usize {
    if byte.is_ascii_alphanumeric() { 1 } else { 3 }
}

/// The longest beginning of a message that takes at most `room` bytes, percent-encoded.
fn cut(text: &str, room: usize) -> &str {
    let mut left = room;
    for (at, letter) in text.char_indices() {
        let len = encoded_len(letter.encode_utf8(&mut [0; 4]));
        let Some(rest) = left.checked_sub(len) else { return &text[..at] };
        left = rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn many_pairs(code: &'static str, message: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for number in 0..5_000 {
            headers.append("x", HeaderValue::from(number % 10));
        }
        headers.insert("grpc-status", HeaderValue::from_static(code));
        headers.insert("grpc-message", HeaderValue::from_str(message).unwrap());
        headers
    }

    #[test]
    fn short_pairs_count_as_http2_counts_them() {
        let headers = many_pairs("0", "");
        assert_eq!(len_of(&headers), 5_000 * 34 + 44 + 44);
        assert!(check(&headers, 200_000).is_ok());
        let status = check(&headers, 16 << 10).unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().contains("16384 bytes"), "{status}");
    }

    #[test]
    fn a_call_that_has_failed_keeps_its_code_and_what_there_is_room_for() {
        let long = "%E6%BC%A2".repeat(5_000);
        for (message, max) in [("no", 16 << 10), (&*long, 16 << 10), (&*long, 1024), ("no", 0)] {
            let status = check(&many_pairs("5", message), max).unwrap_err();
            assert_eq!(status.code(), Code::NotFound);
            assert!(status.message().contains("the metadata are left out"), "{status}");
            let told = status.into_http::<tonic::body::Body>();
            assert!(check(told.headers(), max).is_ok(), "{message:.10} {max}: {}", len_of(told.headers()));
        }
        let status = check(&many_pairs("5", "no"), 16 << 10).unwrap_err();
        assert!(status.message().starts_with("no ["), "{status}");
    }
}
