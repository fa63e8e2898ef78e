//! Metadata as they travel: a block of pairs, in order, duplicates kept.
//!
//! # Layout
//! ```text
//! pair:  | name_idx u8 | [name_len u8, name bytes]  only when name_idx is 0 | value_len u16 | value bytes |
//! ```
//! Names are lower case as in HTTP/2. Values are the bytes that gRPC over HTTP/2 would send; those of names that
//! end in `-bin` are base64 there and here. The table of [`STATIC_NAMES`] is part of the protocol version.

pub use crate::constants::metadata::*;

/// Names that travel as one byte: the index into this table plus one. Append only.
pub const STATIC_NAMES: [&str; 32] = [
    "grpc-message",
    "grpc-status-details-bin",
    "grpc-encoding",
    "grpc-accept-encoding",
    "content-type",
    "user-agent",
    "te",
    "authorization",
    "traceparent",
    "tracestate",
    "baggage",
    "grpc-trace-bin",
    "grpc-tags-bin",
    "x-request-id",
    "x-b3-traceid",
    "x-b3-spanid",
    "x-b3-parentspanid",
    "x-b3-sampled",
    "x-b3-flags",
    "b3",
    "x-forwarded-for",
    "x-forwarded-proto",
    "forwarded",
    "x-real-ip",
    "x-correlation-id",
    "x-user-id",
    "x-tenant-id",
    "grpc-previous-rpc-attempts",
    "grpc-retry-pushback-ms",
    "date",
    "server",
    "host",
];

/// Why a block was not packed or not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BlockError {
    /// A name is empty or longer than a pair can carry.
    #[error("metadata name of {0} bytes: 1 to {NAME_LEN_MAX} are possible")]
    NameLen(usize),
    /// A value is longer than a pair can carry.
    #[error("metadata value of {0} bytes: at most {VALUE_LEN_MAX} are possible")]
    ValueLen(usize),
    /// The block ends in the middle of a pair.
    #[error("metadata block ends in the middle of a pair")]
    Truncated,
    /// A name index outside the table.
    #[error("metadata name index {0} is not in the table")]
    NameIdx(u8),
}

/// A name in a parsed pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name<'a> {
    /// `STATIC_NAMES[idx]`.
    Static(usize),
    /// Spelled out; any bytes a peer liked to send.
    Literal(&'a [u8]),
}

impl<'a> Name<'a> {
    /// The name's bytes.
    #[inline]
    pub fn as_bytes(self) -> &'a [u8] {
        match self {
            Name::Static(idx) => STATIC_NAMES[idx].as_bytes(),
            Name::Literal(bytes) => bytes,
        }
    }
}

/// For each length, the names of the table that have it, a bit each.
const BY_LEN: [u64; 32] = {
    let mut by_len = [0; 32];
    let mut idx = 0;
    while idx < STATIC_NAMES.len() {
        by_len[STATIC_NAMES[idx].len()] |= 1 << idx;
        idx += 1;
    }
    by_len
};

/// The table index of a name, if it has one.
#[inline]
pub fn static_idx(name: &str) -> Option<usize> {
    // Most names differ in length from most entries, or else in their last letter: comparing is cheaper than hashing.
    let mut left = *BY_LEN.get(name.len())?;
    while left != 0 {
        let idx = left.trailing_zeros() as usize;
        if STATIC_NAMES[idx].as_bytes().last() == name.as_bytes().last() && STATIC_NAMES[idx] == name {
            return Some(idx);
        }
        left &= left - 1;
    }
    None
}

/// Appends one pair to a block.
///
/// # Errors
/// When name or value is longer than a pair can carry; nothing is appended then.
#[inline]
pub fn pack(block: &mut Vec<u8>, name: &str, value: &[u8]) -> Result<(), BlockError> {
    if name.is_empty() || name.len() > NAME_LEN_MAX {
        return Err(BlockError::NameLen(name.len()));
    }
    if value.len() > VALUE_LEN_MAX {
        return Err(BlockError::ValueLen(value.len()));
    }
    block.reserve(4 + name.len() + value.len());
    match static_idx(name) {
        Some(idx) => block.push(idx as u8 + 1),
        None => {
            block.extend_from_slice(&[0, name.len() as u8]);
            block.extend_from_slice(name.as_bytes());
        }
    }
    block.extend_from_slice(&(value.len() as u16).to_le_bytes());
    block.extend_from_slice(value);
    Ok(())
}

/// Reads the pairs of a block one after the other; ends after the first error.
#[derive(Clone, Debug)]
pub struct Pairs<'a> {
    rest: &'a [u8],
}

/// The pairs of a block.
pub fn pairs(block: &[u8]) -> Pairs<'_> {
    Pairs { rest: block }
}

impl<'a> Pairs<'a> {
    #[inline]
    fn take(&mut self, len: usize) -> Result<&'a [u8], BlockError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(BlockError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn pair(&mut self) -> Result<(Name<'a>, &'a [u8]), BlockError> {
        let name = match self.take(1)?[0] {
            0 => {
                let len = self.take(1)?[0] as usize;
                if len == 0 {
                    return Err(BlockError::NameLen(0));
                }
                Name::Literal(self.take(len)?)
            }
            idx if (idx as usize) <= STATIC_NAMES.len() => Name::Static(idx as usize - 1),
            idx => return Err(BlockError::NameIdx(idx)),
        };
        let len = self.take(2)?;
        let len = u16::from_le_bytes([len[0], len[1]]) as usize;
        Ok((name, self.take(len)?))
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = Result<(Name<'a>, &'a [u8]), BlockError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let pair = self.pair();
        if pair.is_err() {
            self.rest = &[];
        }
        Some(pair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_keep_order_and_duplicates() {
        let mut block = Vec::new();
        let sent = [("x-a", "1"), ("authorization", "Bearer t"), ("x-a", ""), ("k-bin", "AAE")];
        for (name, value) in sent {
            pack(&mut block, name, value.as_bytes()).unwrap();
        }
        let got: Vec<_> = pairs(&block).map(|pair| pair.unwrap()).collect();
        assert_eq!(got.len(), sent.len());
        for ((name, value), (got_name, got_value)) in sent.iter().zip(got) {
            assert_eq!((name.as_bytes(), value.as_bytes()), (got_name.as_bytes(), got_value));
        }
    }

    #[test]
    fn every_name_of_the_table_is_found_and_no_other() {
        for (idx, name) in STATIC_NAMES.iter().enumerate() {
            assert_eq!(static_idx(name), Some(idx));
            assert_eq!(static_idx(&name.to_uppercase()), (*name == name.to_uppercase()).then_some(idx));
            assert_eq!(static_idx(&name[1..]), STATIC_NAMES.iter().position(|known| *known == &name[1..]));
        }
        for len in [0, 1, 31, 32, 33, NAME_LEN_MAX] {
            assert_eq!(static_idx(&"x".repeat(len)), None);
        }
    }

    #[test]
    fn every_cut_of_a_block_is_noticed() {
        let mut block = Vec::new();
        pack(&mut block, "x-long-name", b"value").unwrap();
        for len in 1..block.len() {
            assert_eq!(pairs(&block[..len]).last(), Some(Err(BlockError::Truncated)), "cut at {len}");
        }
        assert_eq!(pairs(&[200, 0, 0]).last(), Some(Err(BlockError::NameIdx(200))));
        assert_eq!(pairs(&[0, 0, 0, 0]).last(), Some(Err(BlockError::NameLen(0))));
    }

    #[test]
    fn the_longest_name_and_the_longest_value_fit() {
        let (name, value) = ("n".repeat(NAME_LEN_MAX), vec![7; VALUE_LEN_MAX]);
        let mut block = Vec::new();
        pack(&mut block, &name, &value).unwrap();
        let mut pairs = pairs(&block);
        assert_eq!(pairs.next(), Some(Ok((Name::Literal(name.as_bytes()), &value[..]))));
        assert_eq!(pairs.next(), None);
    }

    #[test]
    fn what_does_not_fit_is_refused_whole() {
        let mut block = Vec::new();
        assert_eq!(pack(&mut block, "", b""), Err(BlockError::NameLen(0)));
        assert_eq!(pack(&mut block, &"n".repeat(256), b""), Err(BlockError::NameLen(256)));
        assert_eq!(pack(&mut block, "n", &vec![0; 65536]), Err(BlockError::ValueLen(65536)));
        assert!(block.is_empty());
    }
}
