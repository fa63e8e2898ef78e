//! Metadata between HTTP's header maps and packed blocks.
//!
//! What every gRPC call carries (`content-type: application/grpc`, `te: trailers`) does not travel; the receiver puts it
//! back. Deadlines and status travel as numbers, and what is about an HTTP connection not at all. Everything else goes through as it is, in order, duplicates too.

pub(crate) mod greeting;
pub mod header_list;
pub(crate) mod names;
pub(crate) mod template;

use std::cell::RefCell;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, TE};
use http_body::Frame;
use tollfree_driver_tokio::Encoded;
use tollfree_layout::limits::METADATA_LEN_MAX;
use tollfree_layout::metadata::{self, BlockError};
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use crate::metadata::names::name_of;

/// gRPC's content type, which goes without saying.
pub(crate) const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
/// The trailer that holds the status over HTTP/2.
pub(crate) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// The trailer that holds the status's message, percent-encoded.
pub(crate) const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// The trailer that holds the status's details over HTTP/2, in base64.
const GRPC_STATUS_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
/// The header that holds the timeout over HTTP/2.
pub(crate) const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

thread_local! {
    /// Where blocks are packed, so that each takes as much memory as it needs, and that once.
    static PACKING: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Packs a header map.
///
/// # Errors
/// [`BlockError`] for a name or value longer than a pair can carry.
pub(crate) fn pack(headers: &HeaderMap) -> Result<Bytes, BlockError> {
    pack_but(headers, |_| false)
}

/// The same without some, all of which [may be special](may_be_special).
///
/// # Errors
/// As [`pack`].
pub(crate) fn pack_but(
    headers: &HeaderMap,
    skips: impl Fn(&HeaderName) -> bool,
) -> Result<Bytes, BlockError> {
    packed(headers, skips, Bytes::copy_from_slice)
}

/// As [`pack_but`], for a block that is kept while it is sent: a second handle of it takes no memory.
///
/// # Errors
/// As [`pack`].
pub(crate) fn pack_to_keep(
    headers: &HeaderMap,
    skips: impl Fn(&HeaderName) -> bool,
) -> Result<Bytes, BlockError> {
    let copy = |block: &[u8]| Encoded::write(block.len(), |copy| copy.extend_from_slice(block));
    packed(headers, skips, |block| Bytes::from_owner(copy(block)))
}

fn packed(
    headers: &HeaderMap,
    skips: impl Fn(&HeaderName) -> bool,
    copy: impl FnOnce(&[u8]) -> Bytes,
) -> Result<Bytes, BlockError> {
    if headers.is_empty() {
        return Ok(Bytes::new());
    }
    PACKING.with_borrow_mut(|block| {
        block.clear();
        let packed = pack_into(block, headers, skips);
        if block.len() > METADATA_LEN_MAX {
            // It can't be sent, and its length is the application's: its memory is not kept.
            let large = std::mem::take(block);
            return packed.map(|()| large.into());
        }
        packed.map(|()| copy(block))
    })
}

/// Whether a name may be one of those that don't travel as they are. Most can't, by their first letter.
#[inline]
fn may_be_special(name: &HeaderName) -> bool {
    matches!(name.as_str().as_bytes().first(), Some(b'c' | b'g' | b'k' | b'p' | b't' | b'u') | None)
}

fn pack_into(
    block: &mut Vec<u8>,
    headers: &HeaderMap,
    skips: impl Fn(&HeaderName) -> bool,
) -> Result<(), BlockError> {
    for (name, value) in headers {
        if !may_be_special(name) || !skips(name) && travels(name, value) {
            metadata::pack(block, name.as_str(), value.as_bytes())?;
        }
    }
    Ok(())
}

/// Whether a pair whose name [may be special](may_be_special) travels as it is.
fn travels(name: &HeaderName, value: &HeaderValue) -> bool {
    let implied =
        name == CONTENT_TYPE && value == GRPC || name == TE || name == GRPC_TIMEOUT || name == GRPC_STATUS;
    !implied && !belongs_to_a_connection(name)
}

/// Those pairs of a header map that [`pack`] would pack.
pub(crate) fn travelling(headers: &HeaderMap) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
    headers.iter().filter(|(name, value)| travels(name, value))
}

/// Fields that are about one HTTP connection (RFC 9113, 8.2.2). HTTP/2 doesn't carry them, so neither does a session.
fn belongs_to_a_connection(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection" | "keep-alive" | "proxy-connection" | "transfer-encoding" | "upgrade"
    )
}

/// Adds the pairs of a block to a header map. Pairs that HTTP would not allow are left out, as an HTTP/2 stack does with
/// a header it can't hold; the session has checked that the block is well formed.
pub(crate) fn unpack(block: &[u8], headers: &mut HeaderMap) {
    unpack_but(block, headers, |_| false);
}

/// The same without some.
pub(crate) fn unpack_but(block: &[u8], headers: &mut HeaderMap, skips: impl Fn(&HeaderName) -> bool) {
    headers.reserve(metadata::pairs(block).count());
    for (name, value) in metadata::pairs(block).flatten() {
        let Some(name) = name_of(name).filter(|name| !skips(name)) else { continue };
        // A copy takes no longer than counting who shares the block, and a caller that keeps it doesn't keep the block.
        let Ok(value) = HeaderValue::from_bytes(value) else { continue };
        // The one that goes without saying is put in beforehand; an unusual one takes its place.
        if name == CONTENT_TYPE {
            headers.insert(name, value);
        } else {
            headers.append(name, value);
        }
    }
}

/// The `grpc-status` of a header map. A value that is no code means UNKNOWN, as in tonic.
pub(crate) fn status_code(headers: &HeaderMap) -> Option<u16> {
    headers.get(GRPC_STATUS).map(|value| Code::from_bytes(value.as_bytes()) as u16)
}

/// A status code as a header value; the usual ones without an allocation.
pub(crate) fn status_value(code: u16) -> HeaderValue {
    match code {
        0 => HeaderValue::from_static("0"),
        code => HeaderValue::from(code),
    }
}

/// The timeout that a `grpc-timeout` header asks for.
///
/// # Errors
/// INVALID_ARGUMENT for a value that is none. A call that asked for a time must not go on without a limit.
pub fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    let Some(value) = headers.get(GRPC_TIMEOUT) else { return Ok(None) };
    timeout_of(value.as_bytes()).map(Some).ok_or_else(|| malformed_timeout(value))
}

/// Up to eight digits and a unit.
fn timeout_of(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count = digits.iter().fold(0, |count: u64, digit| count * 10 + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(count * 3600),
        b'M' => Duration::from_secs(count * 60),
        b'S' => Duration::from_secs(count),
        b'm' => Duration::from_millis(count),
        b'u' => Duration::from_micros(count),
        b'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cold]
fn malformed_timeout(value: &HeaderValue) -> Status {
    // As long as the longest that is one, and a little more: the words go back to its sender.
    let shown = &value.as_bytes()[..value.len().min(16)];
    let words = format!(
        "malformed grpc-timeout {:?}: it has one to eight digits and a unit, which is H, M, S, m, u or n",
        String::from_utf8_lossy(shown)
    );
    crate::status::of_content(Code::InvalidArgument, words)
}

/// Takes out the details of a status that can't be read, for tonic panics over them. Code and words of the status stay.
pub(crate) fn drop_malformed_details(headers: &mut HeaderMap) {
    if let Some(details) = headers.get(GRPC_STATUS_DETAILS) {
        // tonic reads the first value, with the same decoder.
        let mut alone = HeaderMap::new();
        alone.insert(GRPC_STATUS_DETAILS, details.clone());
        let alone = MetadataMap::from_headers(alone);
        if alone.get_bin(GRPC_STATUS_DETAILS.as_str()).is_none_or(|details| details.to_bytes().is_err()) {
            headers.remove(GRPC_STATUS_DETAILS);
        }
    }
}

/// A timeout as a `grpc-timeout` header, in the finest unit whose eight digits suffice.
pub fn timeout_value(timeout: Duration) -> HeaderValue {
    const MAX: u128 = 99_999_999;
    let units = [(1, "n"), (1_000, "u"), (1_000_000, "m"), (1_000_000_000, "S"), (60_000_000_000, "M")];
    let nanos = timeout.as_nanos();
    let fits = units.into_iter().find(|(unit, _)| nanos / unit <= MAX);
    let (unit, letter) = fits.unwrap_or((3_600_000_000_000, "H"));
    let text = format!("{}{letter}", (nanos / unit).min(MAX));
    HeaderValue::from_str(&text).expect("digits and a letter")
}

/// The least that a side of a session may say that it takes.
const METADATA_LEN_MIN: usize = 256;

/// A limit for metadata, as a session can have it.
pub(crate) fn metadata_len_max(len: u32) -> usize {
    (len as usize).clamp(METADATA_LEN_MIN, tollfree_layout::limits::METADATA_LEN_MAX)
}

/// The application's metadata of a block.
pub(crate) fn unpack_custom(block: &[u8], headers: &mut HeaderMap) {
    if !block.is_empty() {
        unpack_but(block, headers, |name| *name == CONTENT_TYPE || *name == GRPC_STATUS);
    }
}

/// How a call has ended whose body gives this next; `None`: it goes on.
pub(crate) fn ended_with(frame: &Option<Result<Frame<Bytes>, Status>>) -> Option<Code> {
    match frame {
        Some(Ok(frame)) if frame.is_data() => None,
        Some(Ok(frame)) => {
            let code = frame.trailers_ref().and_then(status_code);
            Some(code.map_or(Code::Unknown, |code| Code::from_i32(code.into())))
        }
        Some(Err(status)) => Some(status.code()),
        None => Some(Code::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_go_there_and_back_with_order_and_duplicates() {
        let mut sent = HeaderMap::new();
        sent.insert(CONTENT_TYPE, GRPC);
        sent.insert(TE, HeaderValue::from_static("trailers"));
        for (name, value) in
            [("x-a", "1"), ("x-a", "2"), ("authorization", "b"), ("k-bin", "AAE"), ("x-a", "3")]
        {
            sent.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let mut got = HeaderMap::new();
        unpack(&pack(&sent).unwrap(), &mut got);
        sent.remove(CONTENT_TYPE);
        sent.remove(TE);
        assert_eq!(got, sent);
        assert_eq!(got.get_all("x-a").iter().collect::<Vec<_>>(), ["1", "2", "3"]);
    }

    #[test]
    fn what_is_about_a_connection_stays_here() {
        let mut sent = HeaderMap::new();
        for name in ["connection", "x-a", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"] {
            sent.append(HeaderName::from_static(name), HeaderValue::from_static("1"));
        }
        let mut got = HeaderMap::new();
        unpack(&pack(&sent).unwrap(), &mut got);
        assert_eq!(got.keys().collect::<Vec<_>>(), ["x-a"]);
    }

    #[test]
    fn special_names_are_known_by_their_first_letter() {
        for name in ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"] {
            assert!(may_be_special(&HeaderName::from_static(name)), "{name}");
        }
        for name in ["content-type", "te", "grpc-timeout", "grpc-status", "grpc-message", "grpc-message-type"]
        {
            assert!(may_be_special(&HeaderName::from_static(name)), "{name}");
        }
    }

    #[test]
    fn an_unusual_content_type_is_kept() {
        let mut sent = HeaderMap::new();
        sent.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc+json"));
        let mut got = HeaderMap::new();
        unpack(&pack(&sent).unwrap(), &mut got);
        assert_eq!(got, sent);
    }

    #[test]
    fn timeouts_are_read_as_grpc_writes_them() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(GRPC_TIMEOUT, HeaderValue::from_str(text).unwrap());
            timeout(&headers)
        };
        let is = |text: &str| read(text).unwrap().unwrap();
        assert_eq!(is("50m"), Duration::from_millis(50));
        assert_eq!(is("0n"), Duration::ZERO);
        assert_eq!(is("99999999H"), Duration::from_secs(99_999_999 * 3600));
        assert_eq!(timeout(&HeaderMap::new()).unwrap(), None);
        for bad in ["", "m", "5", "123456789n", "+5m", "5x", "5s", "-1S", "1 S", "é"] {
            let status = read(bad).unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{bad}");
            assert!(status.message().contains("grpc-timeout"), "{status}");
        }
        for nanos in [0, 1, 99_999_999, 100_000_000, 123_456_789_012, u64::MAX] {
            let wanted = Duration::from_nanos(nanos);
            let got = is(timeout_value(wanted).to_str().unwrap());
            assert!(got <= wanted && wanted - got <= wanted / 100_000, "{wanted:?} became {got:?}");
        }
    }

    #[test]
    fn details_that_cant_be_read_are_left_out_and_others_stay() {
        let left = |details: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(GRPC_STATUS, HeaderValue::from_static("5"));
            headers.insert(GRPC_STATUS_DETAILS, HeaderValue::from_bytes(details).unwrap());
            drop_malformed_details(&mut headers);
            Status::from_header_map(&headers).unwrap().details().to_vec()
        };
        assert_eq!((left(b"AQI="), left(b"AQI"), left(b"")), (vec![1, 2], vec![1, 2], vec![]));
        for bad in [&b"!"[..], b"AQI==", b"A", b"AQ\xff", b"AQI=AQI=", b"AQJ"] {
            assert_eq!(left(bad), [0; 0], "{bad:?}");
        }
    }
}
