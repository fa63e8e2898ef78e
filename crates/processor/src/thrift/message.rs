//! Message headers: what is called, and by which message.

use super::Protocol;
use super::encode::{BinaryWriter, CompactWriter, Emit, varint};
use crate::method_map::{Method, MethodMap};
use thiserror::Error;

/// First byte of a compact message.
const COMPACT_ID: u8 = 0x82;
const COMPACT_VERSION: u8 = 1;
/// First two bytes of a binary message with a version.
const BINARY_VERSION: [u8; 2] = [0x80, 0x01];

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MessageType {
    /// A call, to be answered.
    Call = 1,
    /// The result of a call.
    Reply = 2,
    /// The call failed before or beside the function: a `TApplicationException` follows.
    Exception = 3,
    /// A call that is not answered.
    Oneway = 4,
}

impl MessageType {
    fn from_number(number: u8) -> Option<MessageType> {
        [MessageType::Call, MessageType::Reply, MessageType::Exception, MessageType::Oneway]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }
}

/// The header before a message's struct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageHeader<'n> {
    /// The function's name; of multiplexed services `service:function`.
    pub name: &'n str,
    /// What the message is.
    pub kind: MessageType,
    /// Number that the reply repeats.
    pub seq_id: i32,
    /// The form in which it came, or is to be written: a reply answers in the form of its call.
    pub protocol: Protocol,
}

/// Why a message's header was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MessageHeaderError {
    /// The input ends inside the header.
    #[error("the message breaks off in its header, at byte {offset}")]
    Truncated {
        /// Byte of the input.
        offset: usize,
    },
    /// It is not a message of this protocol, or of another version.
    #[error("not a message of the {protocol:?} protocol: it begins with {first:#04x} {second:#04x}")]
    Version {
        /// The protocol that was expected.
        protocol: Protocol,
        /// The first byte.
        first: u8,
        /// The second byte.
        second: u8,
    },
    /// The message's type is none of Thrift's four.
    #[error("message type {found} does not exist")]
    Type {
        /// The type's number.
        found: u8,
    },
    /// A number of more than five bytes (compact).
    #[error("the number before byte {offset} of the message's header is too long")]
    Varint {
        /// Byte of the input.
        offset: usize,
    },
    /// The name's length is negative.
    #[error("the length of the function's name is negative")]
    Length,
    /// The name is not UTF-8.
    #[error("the function's name is not UTF-8")]
    Utf8,
}

type Read<T> = Result<T, MessageHeaderError>;

struct Reader<'i> {
    input: &'i [u8],
    at: usize,
}

impl<'i> Reader<'i> {
    fn bytes(&mut self, len: usize) -> Read<&'i [u8]> {
        let end = self.at.checked_add(len);
        let Some(bytes) = end.and_then(|end| self.input.get(self.at..end)) else {
            return Err(MessageHeaderError::Truncated { offset: self.input.len() });
        };
        self.at += len;
        Ok(bytes)
    }

    fn byte(&mut self) -> Read<u8> {
        self.bytes(1).map(|bytes| bytes[0])
    }

    fn varint(&mut self) -> Read<u32> {
        let mut value = 0u64;
        for idx in 0..5 {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << (7 * idx);
            if byte < 0x80 {
                return Ok(value as u32);
            }
        }
        Err(MessageHeaderError::Varint { offset: self.at })
    }

    fn word(&mut self) -> Read<u32> {
        let bytes = self.bytes(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn name(&mut self, len: u32) -> Read<&'i str> {
        let len = i32::try_from(len).map_err(|_| MessageHeaderError::Length)?;
        let bytes = self.bytes(len as usize)?;
        std::str::from_utf8(bytes).map_err(|_| MessageHeaderError::Utf8)
    }
}

fn kind(number: u8) -> Read<MessageType> {
    MessageType::from_number(number).ok_or(MessageHeaderError::Type { found: number })
}

impl<'n> MessageHeader<'n> {
    /// Reads the header at the start of `input`; gives it and where the struct behind it begins.
    ///
    /// # Errors
    /// [`MessageHeaderError`]; the connection cannot be used further, as nothing says where the message ends.
    pub fn read(protocol: Protocol, input: &'n [u8]) -> Result<(Self, usize), MessageHeaderError> {
        let mut reader = Reader { input, at: 0 };
        let header = match protocol {
            Protocol::Compact => Self::compact(&mut reader)?,
            _ => Self::binary(protocol, &mut reader)?,
        };
        Ok((header, reader.at))
    }

    fn compact(reader: &mut Reader<'n>) -> Read<Self> {
        let (first, second) = (reader.byte()?, reader.byte()?);
        if first != COMPACT_ID || second & 0x1f != COMPACT_VERSION {
            return Err(MessageHeaderError::Version { protocol: Protocol::Compact, first, second });
        }
        let kind = kind(second >> 5)?;
        let seq_id = reader.varint()? as i32;
        let len = reader.varint()?;
        Ok(MessageHeader { name: reader.name(len)?, kind, seq_id, protocol: Protocol::Compact })
    }

    fn binary(protocol: Protocol, reader: &mut Reader<'n>) -> Read<Self> {
        let first = reader.word()?;
        let [high, second, _, low] = first.to_be_bytes();
        if [high, second] == BINARY_VERSION {
            let kind = kind(low)?;
            let len = reader.word()?;
            let name = reader.name(len)?;
            let seq_id = reader.word()? as i32;
            return Ok(MessageHeader { name, kind, seq_id, protocol: Protocol::Binary });
        }
        if protocol == Protocol::Binary || high >= 0x80 {
            return Err(MessageHeaderError::Version { protocol, first: high, second });
        }
        let name = reader.name(first)?;
        let kind = kind(reader.byte()?)?;
        let seq_id = reader.word()? as i32;
        Ok(MessageHeader { name, kind, seq_id, protocol: Protocol::BinaryOld })
    }

    /// Appends the header to `out`.
    ///
    /// # Panics
    /// If the name is longer than 2^31 - 1 bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        let len = u32::try_from(self.name.len()).ok().filter(|len| *len <= i32::MAX as u32);
        let len = len.expect("a function's name is short");
        match self.protocol {
            Protocol::Compact => {
                out.extend_from_slice(&[COMPACT_ID, (self.kind as u8) << 5 | COMPACT_VERSION]);
                varint(out, u64::from(self.seq_id as u32));
                CompactWriter::length(out, len);
                out.extend_from_slice(self.name.as_bytes());
            }
            Protocol::Binary => {
                out.extend_from_slice(&[BINARY_VERSION[0], BINARY_VERSION[1], 0, self.kind as u8]);
                BinaryWriter::length(out, len);
                out.extend_from_slice(self.name.as_bytes());
                BinaryWriter::i32(out, self.seq_id);
            }
            Protocol::BinaryOld => {
                BinaryWriter::length(out, len);
                out.extend_from_slice(self.name.as_bytes());
                out.push(self.kind as u8);
                BinaryWriter::i32(out, self.seq_id);
            }
        }
    }
}

/// Where a message goes.
#[derive(Debug, Clone, Copy)]
pub struct Dispatch<'m, 'n> {
    /// The message's header.
    pub header: MessageHeader<'n>,
    /// Where in the input the struct begins.
    pub struct_at: usize,
    /// The function, with its table and handler; none if the map does not have it: hand the bytes on undecoded,
    /// or answer with an exception of type 1, "unknown method".
    pub method: Option<&'m Method>,
}

impl MethodMap {
    /// Reads a Thrift message's header and looks its function up.
    ///
    /// # Errors
    /// [`MessageHeaderError`].
    pub fn dispatch_thrift<'m, 'n>(
        &'m self,
        protocol: Protocol,
        input: &'n [u8],
    ) -> Result<Dispatch<'m, 'n>, MessageHeaderError> {
        let (header, struct_at) = MessageHeader::read(protocol, input)?;
        Ok(Dispatch { header, struct_at, method: self.by_name(header.name) })
    }
}
