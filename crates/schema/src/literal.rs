//! Default values as descriptors spell them: text that stands for a scalar, string, bytes or enum value.

use tollfree_layout::table::Kind;

/// The stored form of a default: see [`crate::Field::default`]. None if the text does not fit the kind.
pub(crate) fn parse(kind: Kind, text: &[u8], enum_number: impl Fn(&str) -> Option<i32>) -> Option<Vec<u8>> {
    if kind == Kind::String {
        return Some(text.to_vec());
    }
    if kind == Kind::Bytes {
        return unescape(text);
    }
    let text = std::str::from_utf8(text).ok()?;
    let bits = match kind {
        Kind::Double => float(text)?.to_bits(),
        Kind::Float => u64::from(narrow(text)?.to_bits()),
        Kind::Bool => u64::from(match text {
            "true" => true,
            "false" => false,
            _ => return None,
        }),
        Kind::Enum => i64::from(enum_number(text)?) as u64,
        Kind::Uint64 | Kind::Fixed64 => text.parse::<u64>().ok()?,
        Kind::Uint32 | Kind::Fixed32 => u64::from(text.parse::<u32>().ok()?),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => text.parse::<i64>().ok()? as u64,
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => i64::from(text.parse::<i32>().ok()?) as u64,
        Kind::I16 => i64::from(text.parse::<i16>().ok()?) as u64,
        Kind::I8 => i64::from(text.parse::<i8>().ok()?) as u64,
        Kind::String | Kind::Bytes | Kind::Message => return None,
    };
    Some(bits.to_le_bytes().to_vec())
}

fn float(text: &str) -> Option<f64> {
    match text {
        "inf" => Some(f64::INFINITY),
        "-inf" => Some(f64::NEG_INFINITY),
        "nan" | "-nan" => Some(f64::NAN),
        _ => text.parse().ok(),
    }
}

/// Parsed as the narrower type at once, so that it is rounded once.
fn narrow(text: &str) -> Option<f32> {
    match text {
        "inf" | "-inf" | "nan" | "-nan" => float(text).map(|value| value as f32),
        _ => text.parse().ok(),
    }
}

/// Undoes the C escapes of a bytes default.
fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'\\' {
            out.push(*first);
            continue;
        }
        let [code, tail @ ..] = rest else { return None };
        rest = tail;
        let byte = match code {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'v' => 11,
            b'\\' | b'\'' | b'"' | b'?' => *code,
            b'x' | b'X' => digits(&mut rest, 16, 2, 0)?,
            b'0'..=b'7' => digits(&mut rest, 8, 2, u32::from(code - b'0'))?,
            _ => return None,
        };
        out.push(byte);
    }
    Some(out)
}

/// Takes up to `most` digits; at least one if `start` says that none was read yet (hex).
fn digits(rest: &mut &[u8], radix: u32, most: usize, start: u32) -> Option<u8> {
    let mut value = start;
    let mut count = 0;
    while count < most {
        let Some(digit) = rest.first().and_then(|byte| char::from(*byte).to_digit(radix)) else { break };
        value = value * radix + digit;
        *rest = &rest[1..];
        count += 1;
    }
    if radix == 16 && count == 0 { None } else { u8::try_from(value).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(kind: Kind, text: &str) -> Option<u64> {
        let bytes = parse(kind, text.as_bytes(), |name| (name == "RED").then_some(-2))?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    #[test]
    fn scalars() {
        assert_eq!(bits(Kind::Int32, "-5"), Some(-5i64 as u64));
        assert_eq!(bits(Kind::Uint32, "4294967295"), Some(u64::from(u32::MAX)));
        assert_eq!(bits(Kind::Uint32, "-1"), None);
        assert_eq!(bits(Kind::Bool, "true"), Some(1));
        assert_eq!(bits(Kind::Float, "1.5"), Some(u64::from(1.5f32.to_bits())));
        assert_eq!(bits(Kind::Double, "-inf"), Some(f64::NEG_INFINITY.to_bits()));
        assert_eq!(bits(Kind::Enum, "RED"), Some(-2i64 as u64));
        assert_eq!(bits(Kind::Enum, "BLUE"), None);
    }

    #[test]
    fn bytes_are_unescaped() {
        let bytes = |text: &str| parse(Kind::Bytes, text.as_bytes(), |_| None);
        assert_eq!(bytes(r"\0\001\a\n\\\'\xfe\377z").unwrap(), b"\0\x01\x07\n\\'\xfe\xffz");
        assert_eq!(bytes(r"\1234").unwrap(), b"S4");
        assert_eq!(bytes(r"\777"), None);
        assert_eq!(bytes("\\"), None);
        assert_eq!(bytes(r"\xg"), None);
    }
}
