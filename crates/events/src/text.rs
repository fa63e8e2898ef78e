//! Text that somebody else chose.

use std::fmt;

/// The longest text that is kept, in bytes.
const LEN_MAX: usize = 80;

/// Printable ASCII of at most 80 bytes. Other characters become `?`, and three dots stand for what is cut off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "lines", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "lines", serde(from = "String"))]
pub struct Text(Box<str>);

impl Text {
    /// What is kept of these bytes.
    pub fn new(bytes: &[u8]) -> Text {
        const DOTS: &str = "...";
        let is_long = bytes.len() > LEN_MAX;
        let kept = if is_long { LEN_MAX - DOTS.len() } else { bytes.len() };
        // A quote or a backslash would be two characters in JSON.
        let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
        let plain = bytes[..kept].iter().map(|byte| if is_plain(*byte) { char::from(*byte) } else { '?' });
        let mut text: String = plain.collect();
        if is_long {
            text.push_str(DOTS);
        }
        Text(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text::new(text.as_bytes())
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text::new(text.as_bytes())
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_short_printable_text_is_kept() {
        assert_eq!(Text::from("/test.Echo/Call").as_str(), "/test.Echo/Call");
        assert_eq!(Text::new(b"\x1b[31m\"a\\b\"\n\xff").as_str(), "?[31m?a?b???");
        let long = Text::new(&[b'x'; 1000]);
        assert_eq!((long.as_str().len(), &long.as_str()[75..]), (LEN_MAX, "xx..."));
        assert_eq!(Text::new(&[b'x'; LEN_MAX]).as_str(), "x".repeat(LEN_MAX));
    }
}
