//! Short messages that are at hand together, put into batches: encoded ones as they lie in a body, objects as they wait beside it.
//!
//! Objects of a batch are copied once, behind each other. What is long, is to go by ref, or may not go at all goes by itself.

use bytes::{BufMut, BytesMut};
use tollfree_driver_tokio::{GRPC_PREFIX_LEN, OBJECT_PREFIX, OutgoingMessage};

use crate::message::aside::Worked;
use crate::message::converter::Converter;
use crate::message::framing::Deframer;
use crate::message::out_of_band::{OutOfBand, Takes};
use crate::message::payloads::Sharing;

/// A row of this length is failed over.
const ROW_LEN: usize = 32 * 1024;

/// Objects of a batch that is being put together.
pub(crate) struct Row<'h> {
    bytes: BytesMut,
    longest: usize,
    /// What was verified or converted on this thread since its sender has waited.
    worked: &'h mut Worked,
}

impl<'h> Row<'h> {
    pub(crate) fn new(longest: usize, worked: &'h mut Worked) -> Row<'h> {
        Row { bytes: BytesMut::new(), longest, worked }
    }

    /// Makes room for so many objects of that length.
    pub(crate) fn reserve(&mut self, count: usize, len: usize) {
        self.bytes.reserve(count.saturating_mul(GRPC_PREFIX_LEN + len).min(ROW_LEN + self.longest));
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() >= ROW_LEN
    }

    /// Whether an object of this length is short enough to go with others.
    pub(crate) fn takes(&self, len: usize) -> bool {
        len <= self.longest
    }

    /// Whether a message of `len` bytes may be worked on before others have a turn. It is counted then.
    pub(crate) fn may_work_on(&mut self, len: usize) -> bool {
        self.worked.takes(len)
    }

    /// Appends an object, if it is short enough.
    pub(crate) fn push(&mut self, object: &[u8]) -> bool {
        let takes = self.takes(object.len());
        if takes {
            self.append(object);
        }
        takes
    }

    fn append(&mut self, object: &[u8]) {
        self.bytes.put_u8(OBJECT_PREFIX);
        self.bytes.put_u32(object.len() as u32);
        self.bytes.put_slice(object);
    }

    /// Appends the object of an encoded message, of whatever length. `false`: it has none, or is not to be made here.
    fn convert(&mut self, message: &[u8], reader: &dyn Converter) -> bool {
        let may = self.takes(message.len()) && self.may_work_on(message.len());
        may && reader.put_flat(message, &mut |object| self.append(object))
    }

    fn into_outgoing(self) -> Option<OutgoingMessage> {
        OutgoingMessage::objects(self.bytes.freeze())
    }
}

/// Takes the next messages off the front of what is at hand, where several of one sort can go together, or the next is a short object.
/// `number` is that of the next message; says how many were taken.
pub(crate) fn next_batch(
    deframer: &mut Deframer,
    out_of_band: Option<&OutOfBand>,
    takes: Takes<'_>,
    sharing: &Sharing,
    number: u64,
    worked: &mut Worked,
) -> Option<(OutgoingMessage, usize)> {
    let longest = sharing.batched_len_max();
    let count_max = match (out_of_band, takes) {
        (None, _) => usize::MAX,
        // Each is made an object first.
        (_, Takes::ObjectsOf(_)) => 0,
        (Some(out_of_band), _) => out_of_band.out_distance(number),
    };
    if count_max > 0 {
        let batch = deframer.next_batch(longest, count_max)?;
        let count = batch.lens().count();
        return Some((batch, count));
    }
    let (Some(out_of_band), false) = (out_of_band, matches!(takes, Takes::Bytes)) else { return None };
    let mut row = Row::new(sharing.batched_object_len_max(), worked);
    let mut count = 0;
    while !row.is_full() {
        let next = number + count as u64;
        let taken = if out_of_band.out_distance(next) == 0 {
            out_of_band.take_out_to(&mut row, next, deframer.empty_count(), takes)
        } else if let Takes::ObjectsOf(reader) = takes {
            usize::from(deframer.front().is_some_and(|message| row.convert(message, &**reader)))
        } else {
            0
        };
        if taken == 0 {
            break;
        }
        deframer.skip(taken);
        count += taken;
    }
    sharing.payloads.sent_objects(count);
    Some((row.into_outgoing()?, count))
}
