//! Encoded messages in pieces: reading their fields, and putting them together.

use std::ops::Range;

use bytes::Bytes;
use tollfree_driver_blocking::Message;

/// Shorter bytes are copied rather than kept as a piece of their own.
const PIECE_LEN_MIN: usize = 4 << 10;
/// As protobuf's decoders have it.
pub(crate) const DEPTH_MAX: usize = 100;

/// The bytes are no message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Bytes in pieces, by their places in the whole.
pub(crate) struct Source {
    pieces: Vec<Bytes>,
    /// Where each piece begins.
    starts: Vec<usize>,
    len: usize,
}

impl Source {
    pub(crate) fn new(pieces: Vec<Bytes>) -> Source {
        let mut len = 0;
        let starts = pieces.iter().map(|piece| {
            let start = len;
            len += piece.len();
            start
        });
        let starts = starts.collect();
        Source { pieces, starts, len }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The parts of pieces that a range is made of.
    fn parts(&self, range: Range<usize>) -> impl Iterator<Item = Bytes> {
        let first = self.starts.partition_point(|start| *start <= range.start).saturating_sub(1);
        self.pieces[first..].iter().zip(&self.starts[first..]).map_while(move |(piece, start)| {
            let from = range.start.max(*start) - start;
            let to = range.end.min(start + piece.len()).checked_sub(*start)?;
            (from < to || piece.is_empty()).then(|| piece.slice(from.min(to)..to))
        })
    }

    /// The bytes of a range: a copy, if they are in several pieces.
    pub(crate) fn bytes(&self, range: Range<usize>) -> Bytes {
        let parts: Vec<_> = self.parts(range).filter(|part| !part.is_empty()).collect();
        Message::of_pieces(parts).into_bytes()
    }

    fn byte(&self, at: usize) -> Option<u8> {
        let idx = self.starts.partition_point(|start| *start <= at).checked_sub(1)?;
        self.pieces[idx].get(at - self.starts[idx]).copied()
    }
}

/// A field whose content is bytes.
pub(crate) struct Found {
    pub(crate) number: u32,
    pub(crate) content: Range<usize>,
    /// Where its length stands; a group has none.
    pub(crate) len_at: Option<usize>,
}

/// A place in the fields of a message.
pub(crate) struct Cursor<'a> {
    source: &'a Source,
    at: usize,
    end: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(source: &'a Source, range: Range<usize>) -> Cursor<'a> {
        Cursor { source, at: range.start, end: range.end }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at >= self.end
    }

    /// Passes a field: what it is, if its content is bytes or fields.
    pub(crate) fn next_field(&mut self) -> Result<Option<Found>, Malformed> {
        match self.pass(0)? {
            Passed::Found(found) => Ok(Some(found)),
            Passed::Scalar => Ok(None),
            Passed::GroupEnd(_) => Err(Malformed),
        }
    }

    /// Whether all fields are those of a map's entry: keys of this wire type, and values behind their lengths.
    pub(crate) fn reads_entry(mut self, key_wire: u8) -> Result<bool, Malformed> {
        while !self.is_at_end() {
            let at = self.at;
            let key = self.varint()?;
            if key != (1 << 3 | u64::from(key_wire)) && key != (2 << 3 | 2) {
                return Ok(false);
            }
            self.at = at;
            self.pass(0)?;
        }
        Ok(true)
    }

    fn pass(&mut self, depth: usize) -> Result<Passed, Malformed> {
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).map_err(|_| Malformed)?;
        if number == 0 {
            return Err(Malformed);
        }
        match key & 7 {
            0 => self.varint().map(|_| Passed::Scalar),
            1 => self.skip(8).map(|_| Passed::Scalar),
            5 => self.skip(4).map(|_| Passed::Scalar),
            2 => {
                let len_at = self.at;
                let len = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                let content = self.skip(len)?;
                Ok(Passed::Found(Found { number, content, len_at: Some(len_at) }))
            }
            3 => {
                let start = self.at;
                let end = self.pass_group(number, depth)?;
                Ok(Passed::Found(Found { number, content: start..end, len_at: None }))
            }
            4 => Ok(Passed::GroupEnd(number)),
            _ => Err(Malformed),
        }
    }

    /// Passes the fields of a group, and the tag behind: where that stands.
    fn pass_group(&mut self, number: u32, depth: usize) -> Result<usize, Malformed> {
        if depth >= DEPTH_MAX {
            return Err(Malformed);
        }
        loop {
            let at = self.at;
            if let Passed::GroupEnd(ended) = self.pass(depth + 1)? {
                return if ended == number { Ok(at) } else { Err(Malformed) };
            }
        }
    }

    fn skip(&mut self, len: usize) -> Result<Range<usize>, Malformed> {
        if len > self.end.saturating_sub(self.at) {
            return Err(Malformed);
        }
        let start = self.at;
        self.at += len;
        Ok(start..self.at)
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let at = self.skip(1)?.start;
            let byte = self.source.byte(at).ok_or(Malformed)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }
}

enum Passed {
    /// A field of bytes or fields.
    Found(Found),
    /// Any other field.
    Scalar,
    /// The end of a group of this number.
    GroupEnd(u32),
}

/// Bytes that are put together: long ones as they are, others copied.
#[derive(Default)]
pub(crate) struct Assembly {
    pieces: Vec<Bytes>,
    /// What comes behind these.
    tail: Vec<u8>,
    len: usize,
}

impl Assembly {
    pub(crate) fn of(bytes: Bytes) -> Assembly {
        let mut assembly = Assembly::default();
        assembly.push(bytes);
        assembly
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn push(&mut self, bytes: Bytes) {
        self.len += bytes.len();
        if bytes.len() < PIECE_LEN_MIN {
            return self.tail.extend_from_slice(&bytes);
        }
        self.end_tail();
        self.pieces.push(bytes);
    }

    /// What a range of a source holds.
    pub(crate) fn copy(&mut self, source: &Source, range: Range<usize>) {
        source.parts(range).for_each(|part| self.push(part));
    }

    pub(crate) fn varint(&mut self, mut value: u64) {
        let before = self.tail.len();
        while value >= 0x80 {
            self.tail.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.tail.push(value as u8);
        self.len += self.tail.len() - before;
    }

    pub(crate) fn append(&mut self, other: Assembly) {
        other.finish().pieces().for_each(|piece| self.push(piece.clone()));
    }

    fn end_tail(&mut self) {
        if !self.tail.is_empty() {
            self.pieces.push(std::mem::take(&mut self.tail).into());
        }
    }

    pub(crate) fn finish(mut self) -> Message {
        self.end_tail();
        Message::of_pieces(self.pieces)
    }
}
