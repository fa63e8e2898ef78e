//! Numbers of errors, for programs that have no types of ours: a C ABI, logs, other languages. `spec/errors.md` says what each means.
//!
//! The hundred says where an error arises: 1 at an address, 2 while two processes become a session, 3 at the end of a session (from 311 on:
//! the peer broke the protocol), 4 at a call.

/// Declares the numbers, and the list of all.
macro_rules! numbers {
    ($($name:ident = $number:literal),* $(,)?) => {
        $(#[doc = concat!("See number ", $number, " in `spec/errors.md`.")] pub const $name: u16 = $number;)*
        /// All numbers with their names, in order.
        pub const ALL: &[(u16, &str)] = &[$(($number, stringify!($name))),*];
    };
}

numbers! {
    // An address, and listening there.
    ADDRESS_SCHEME = 101,
    ADDRESS_NOT_ABSOLUTE = 102,
    ADDRESS_TOO_LONG = 103,
    ADDRESS_EMPTY = 104,
    NEEDS_LINUX = 105,
    BIND_IN_USE = 111,
    BIND_NOT_A_SOCKET = 112,
    BIND_DIRECTORY = 113,
    BIND_PASSED_SOCKET = 114,
    BIND_NO_MEMORY = 115,
    BIND_FAILED = 116,
    // Becoming a session.
    CONNECT_NO_SOCKET = 201,
    CONNECT_NOBODY_LISTENS = 202,
    CONNECT_NOT_A_SOCKET = 203,
    CONNECT_NO_PERMISSION = 204,
    CONNECT_FAILED = 205,
    HANDSHAKE_SOCKET = 211,
    HANDSHAKE_TIMEOUT = 212,
    HANDSHAKE_HUNG_UP = 213,
    HANDSHAKE_PEER_DIED = 214,
    HANDSHAKE_CROWDED = 215,
    HANDSHAKE_QUOTA = 216,
    HANDSHAKE_DESCRIPTORS = 217,
    HANDSHAKE_CLOSING = 218,
    HANDSHAKE_HTTP2 = 219,
    HANDSHAKE_OTHER_PROTOCOL = 220,
    HANDSHAKE_MALFORMED = 221,
    HANDSHAKE_VERSION = 222,
    HANDSHAKE_FEATURE = 223,
    HANDSHAKE_USER = 224,
    HANDSHAKE_MEMORY = 225,
    HANDSHAKE_SIZE = 226,
    HANDSHAKE_TOKEN = 227,
    HANDSHAKE_TLS = 228,
    HANDSHAKE_CERTIFICATES = 229,
    HANDSHAKE_NO_CERTIFICATE = 230,
    HANDSHAKE_NO_ANSWER = 231,
    HANDSHAKE_NO_GATEWAY = 232,
    HANDSHAKE_GATEWAY = 233,
    HANDSHAKE_REFUSED = 234,
    // The end of a session.
    SESSION_CLOSED_BY_PEER = 301,
    SESSION_HUNG_UP = 302,
    SESSION_CLOSED_HERE = 303,
    VIOLATION_FRAME_LEN = 311,
    VIOLATION_FRAME_KIND = 312,
    VIOLATION_STREAM_ID = 313,
    VIOLATION_STREAM_COUNT = 314,
    VIOLATION_METHOD_INDEX = 315,
    VIOLATION_METHOD_PATH = 316,
    VIOLATION_ORDER = 317,
    VIOLATION_CHUNK = 318,
    VIOLATION_OVERDRAWN = 319,
    VIOLATION_CREDIT_OVERFLOW = 320,
    VIOLATION_METADATA_LEN = 321,
    VIOLATION_METADATA = 322,
    VIOLATION_AREA_RANGE = 323,
    VIOLATION_CONTROL = 324,
    VIOLATION_RING = 325,
    VIOLATION_SOCKET = 326,
    // A call.
    CALL_ENDED = 401,
    CALL_DRAINING = 402,
    CALL_STREAM_COUNT = 403,
    CALL_METADATA_LEN = 404,
    CALL_METHOD_PATH = 405,
    CALL_MESSAGE_LEN = 406,
    CALL_MISENCODED = 407,
    CALL_OUT_OF_ORDER = 408,
    CALL_HEADERS_SAID = 409,
    CALL_NO_SESSION = 410,
    CALL_NOT_A_CLIENT = 411,
    CALL_NOT_A_SERVER = 412,
}

#[cfg(test)]
mod tests {
    use super::ALL;

    #[test]
    fn numbers_go_up_and_are_those_of_the_specification() {
        assert!(ALL.windows(2).all(|pair| pair[0].0 < pair[1].0), "in order, none twice");
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/errors.md");
        let text = std::fs::read_to_string(path).unwrap();
        let rows = text.lines().filter_map(|line| {
            let mut cells = line.strip_prefix("| ")?.split(" | ");
            let number: u16 = cells.next()?.parse().ok()?;
            let name = cells.next()?.trim_matches('`').to_owned();
            assert!(cells.clone().count() == 2 && cells.all(|cell| cell.len() > 3), "{line}");
            Some((number, name))
        });
        let said: Vec<_> = ALL.iter().map(|(number, name)| (*number, (*name).to_owned())).collect();
        assert_eq!(rows.collect::<Vec<_>>(), said);
    }
}
