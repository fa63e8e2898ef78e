//! Messages that are encoded while they are sent: range by range, each where it is to lie.
//!
//! What encodes is code of the application's, in part: it may panic, or write another length than it has promised. Both end the
//! call with an error, and nothing of such a range is sent.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;

use crate::encoded::Encoded;

/// A message of which any range of its encoding can be written, as often as that is asked for.
pub trait DeferredEncoding: Send + Sync {
    /// Writes the bytes from `from` on into `range`, until that is full; `len` are promised in all.
    fn write_range(&self, len: usize, from: usize, range: &mut [u8]) -> Written;

    /// Encodes all of it.
    fn encode(&self, len: usize) -> Bytes;
}

/// What writing a range has shown.
#[derive(Debug)]
pub struct Written {
    /// Length of all the encoding.
    pub len: usize,
    /// It consists of so many short parts that a range costs more than its copy.
    pub is_crumbly: bool,
    /// All the encoding, where it was gathered on the way.
    pub whole: Option<Bytes>,
}

/// Why a message can't be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misencoded {
    /// It is not as long as it says.
    #[error(
        "the message said that it takes {promised} bytes, and wrote {written}: its type's `encoded_len` and `encode_raw` \
         have to agree, and it must not change while it is sent"
    )]
    Len {
        /// What it said.
        promised: usize,
        /// What it wrote.
        written: usize,
    },
    /// Its type's code panicked.
    #[error("the message's type panicked while it was encoded: look for the panic in this process's output")]
    Panicked,
}

/// The bytes of a message on its way out, or what they are made of.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    Encoded(Encoded),
    /// Boxed, for few messages are.
    DeferredEncoding(Box<Source>),
}

/// A message that is not encoded.
#[derive(Clone)]
pub(crate) struct Source {
    message: Arc<dyn DeferredEncoding>,
    len: usize,
    is_crumbly: bool,
}

impl Data {
    pub(crate) fn deferred(message: Arc<dyn DeferredEncoding>, len: usize) -> Data {
        Data::DeferredEncoding(Box::new(Source { message, len, is_crumbly: false }))
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Data::Encoded(bytes) => bytes.len(),
            Data::DeferredEncoding(source) => source.len,
        }
    }

    /// All the bytes.
    pub(crate) fn into_bytes(self) -> Bytes {
        match self {
            Data::Encoded(bytes) => bytes.into_bytes(),
            Data::DeferredEncoding(source) => source.message.encode(source.len),
        }
    }

    /// Fills `range` with the bytes from `from` on. There are as many.
    ///
    /// # Errors
    /// [`Misencoded`]; the range is zeroed then where it is not the message's.
    pub(crate) fn fill(&mut self, from: usize, range: &mut [u8]) -> Result<(), Misencoded> {
        if let Data::DeferredEncoding(source) = self {
            if !source.is_crumbly {
                if let Some(whole) = source.fill(from, range)? {
                    *self = Data::Encoded(whole.into());
                }
                return Ok(());
            }
            *self = Data::Encoded(source.encode()?.into());
        }
        if let Data::Encoded(bytes) = self {
            range.copy_from_slice(&bytes[from..from + range.len()]);
        }
        Ok(())
    }
}

impl Source {
    /// `Some`: all of the message, which is to be sent instead of the message from now on.
    fn fill(&mut self, from: usize, range: &mut [u8]) -> Result<Option<Bytes>, Misencoded> {
        let Source { message, len, .. } = &*self;
        let written = catch_unwind(AssertUnwindSafe(|| message.write_range(*len, from, range)));
        let checked = written.map_err(|_| Misencoded::Panicked).and_then(|written| {
            check(*len, written.len)?;
            Ok(written)
        });
        match checked {
            Ok(Written { is_crumbly, whole, .. }) => {
                self.is_crumbly = is_crumbly;
                Ok(whole)
            }
            Err(misencoded) => {
                range.fill(0);
                Err(misencoded)
            }
        }
    }

    fn encode(&self) -> Result<Bytes, Misencoded> {
        let encoded = catch_unwind(AssertUnwindSafe(|| self.message.encode(self.len)));
        let bytes = encoded.map_err(|_| Misencoded::Panicked)?;
        check(self.len, bytes.len())?;
        Ok(bytes)
    }
}

fn check(promised: usize, written: usize) -> Result<(), Misencoded> {
    if promised == written { Ok(()) } else { Err(Misencoded::Len { promised, written }) }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("len", &self.len).finish_non_exhaustive()
    }
}
