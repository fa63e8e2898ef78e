//! The answer to one request: a `conformance.ConformanceResponse`.

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The message, encoded again.
    Message(Vec<u8>),
    /// The message in JSON.
    Json(String),
    /// The message was refused.
    ParseError(String),
    /// The message was read but could not be written.
    SerializeError(String),
    /// Something is wrong here; never right.
    RuntimeError(String),
    /// A form that is not read or written here.
    Skipped(&'static str),
}

impl Answer {
    /// The bytes on the wire. Each answer is one field of bytes, so there is nothing that a table would help with.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        let (number, body) = match self {
            Answer::ParseError(words) => (1, words.into_bytes()),
            Answer::RuntimeError(words) => (2, words.into_bytes()),
            Answer::Message(bytes) => (3, bytes),
            Answer::Json(text) => (4, text.into_bytes()),
            Answer::Skipped(why) => (5, why.as_bytes().to_vec()),
            Answer::SerializeError(words) => (6, words.into_bytes()),
        };
        let mut out = vec![number << 3 | 2];
        let mut len = body.len();
        while len >= 0x80 {
            out.push(len as u8 | 0x80);
            len >>= 7;
        }
        out.push(len as u8);
        out.extend(body);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_one_field() {
        assert_eq!(Answer::Message(vec![]).into_bytes(), [0x1a, 0]);
        assert_eq!(Answer::Skipped("no").into_bytes(), [0x2a, 2, b'n', b'o']);
        assert_eq!(Answer::ParseError("e".repeat(300)).into_bytes()[..3], [0x0a, 0xac, 0x02]);
    }
}
