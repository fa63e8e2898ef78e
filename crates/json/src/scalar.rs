//! Scalars: what JSON writes for them, and protobuf's bytes.

use crate::tree::Json;

/// A number that is written in a string: all of it, and as JSON would write it.
pub(crate) fn quoted_number(text: &str) -> Option<serde_json::Number> {
    let is_bare = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    serde_json::from_str(text).ok().filter(|_| is_bare)
}

/// A whole number, however it is written: `1`, `"1"`, `1.0`, `1e2`.
pub(crate) fn integer(json: &Json) -> Option<i128> {
    let number = match json {
        Json::Number(number) => number.clone(),
        Json::String(text) => quoted_number(text)?,
        _ => return None,
    };
    if let Some(value) = number.as_i64() {
        return Some(value.into());
    }
    if let Some(value) = number.as_u64() {
        return Some(value.into());
    }
    // Numbers beyond 64 bits come as doubles, too, and what is just below -2^63 has been rounded to it; whole
    // doubles above 2^64 are beyond every range.
    let in_range = -9_223_372_036_854_775_808.0..18_446_744_073_709_551_616.0;
    let is_whole = |value: &f64| value.fract() == 0.0 && in_range.contains(value) && *value != in_range.start;
    number.as_f64().filter(is_whole).map(|value| value as i128)
}

/// Bytes from base64, standard or URL-safe, padded or not (RFC 4648, sections 4 and 5).
pub(crate) fn base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=').as_bytes();
    if text.len() % 4 == 1 {
        return None;
    }
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for chunk in text.chunks(4) {
        let mut word = 0u32;
        for (idx, char) in chunk.iter().enumerate() {
            let sextet = match char {
                b'A'..=b'Z' => char - b'A',
                b'a'..=b'z' => char - b'a' + 26,
                b'0'..=b'9' => char - b'0' + 52,
                b'+' | b'-' => 62,
                b'/' | b'_' => 63,
                _ => return None,
            };
            word |= u32::from(sextet) << (18 - 6 * idx);
        }
        out.extend(&word.to_be_bytes()[1..chunk.len()]);
    }
    Some(out)
}

pub(crate) fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn tag(number: u32, wire_type: u32, out: &mut Vec<u8>) {
    varint(u64::from(number) << 3 | u64::from(wire_type), out);
}

/// A field of bytes.
pub(crate) fn delimited(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    tag(number, 2, out);
    varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_in_all_its_forms() {
        let cases: [(&str, Option<&[u8]>); 8] = [
            ("", Some(b"")),
            ("Zg==", Some(b"f")),
            ("Zg", Some(b"f")),
            ("Zm8=", Some(b"fo")),
            ("Zm9v", Some(b"foo")),
            ("//79-w", Some(&[0xff, 0xfe, 0xfd, 0xfb])),
            ("Z", None),
            ("Zm 9v", None),
        ];
        for (text, bytes) in cases {
            assert_eq!(base64(text).as_deref(), bytes, "{text}");
        }
    }

    #[test]
    fn whole_numbers_in_all_their_forms() {
        let string = |text: &str| integer(&Json::String(text.into()));
        assert_eq!(string("18446744073709551615"), Some(u64::MAX.into()));
        assert_eq!(string("-9223372036854775808"), Some(i64::MIN.into()));
        assert_eq!(string("1e2"), Some(100));
        assert_eq!(string("-1.0"), Some(-1));
        for text in
            ["", " 1", "1 ", "01", "+1", "1.5", "1e-1", "x", "0x1", "1e400", "NaN", "-9223372036854775809"]
        {
            assert_eq!(string(text), None, "{text:?}");
        }
    }
}
