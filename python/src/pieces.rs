//! Messages in pieces, some of which lie in a pool: as they are sent, and as they came.

use bytes::Bytes;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyTuple};
use tollfree_driver_blocking::Message;
use tollfree_pool::Pool;

use crate::buffer::Buffer;
use crate::memory::check_pool;

/// From this length on, a message that is sent is not copied but kept as Python has it until it is on its way; and one that came is not copied before Python asks for its bytes.
const KEPT_LEN: usize = 16 << 10;

/// A message's bytes, without a copy of what lies in a pool. Nobody changes them.
#[pyclass(frozen, module = "tollfree")]
pub(crate) struct Pieces {
    message: Message,
    /// The pool that some may lie in.
    pool: Option<Pool>,
}

impl Pieces {
    pub(crate) fn new(message: Message, pool: Option<Pool>) -> Pieces {
        Pieces { message, pool }
    }

    pub(crate) fn pieces(&self) -> Vec<Bytes> {
        self.message.pieces().cloned().collect()
    }

    pub(crate) fn pool(&self) -> Option<&Pool> {
        self.pool.as_ref()
    }
}

#[pymethods]
impl Pieces {
    /// Of bytes.
    #[new]
    fn of(bytes: Outgoing) -> Pieces {
        Pieces { message: bytes.message, pool: bytes.pool }
    }

    fn __len__(&self) -> usize {
        self.message.len()
    }

    /// A copy of them.
    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        check_pool(self.pool.as_ref())?;
        joined(py, &self.message)
    }

    /// All of them as one buffer. They are copied if they are in several pieces.
    fn buffer(&self) -> PyResult<Buffer> {
        check_pool(self.pool.as_ref())?;
        Ok(Buffer::frozen(self.message.clone().into_bytes(), self.pool.as_ref()))
    }

    /// How many they are.
    #[getter]
    fn count(&self) -> usize {
        self.message.pieces().filter(|piece| !piece.is_empty()).count()
    }
}

fn joined<'py>(py: Python<'py>, message: &Message) -> PyResult<Bound<'py, PyBytes>> {
    if message.more.is_empty() {
        return Ok(PyBytes::new(py, &message.bytes));
    }
    PyBytes::new_with(py, message.len(), |mut place| {
        for piece in message.pieces() {
            let (now, later) = place.split_at_mut(piece.len());
            now.copy_from_slice(piece);
            place = later;
        }
        Ok(())
    })
}

/// A message as Python sends it: `bytes`, a [`Buffer`], or [`Pieces`].
pub(crate) struct Outgoing {
    message: Message,
    pool: Option<Pool>,
}

impl Outgoing {
    /// The pool that some of it may lie in.
    pub(crate) fn pool(&self) -> Option<Pool> {
        self.pool.clone()
    }

    pub(crate) fn message(self, compressed: bool) -> Message {
        Message { compressed, ..self.message }
    }
}

impl<'py> FromPyObject<'_, 'py> for Outgoing {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Outgoing> {
        if let Ok(bytes) = given.cast::<PyBytes>() {
            let bytes = match bytes.as_bytes() {
                short if short.len() < KEPT_LEN => Bytes::copy_from_slice(short),
                _ => Bytes::from_owner(PyBackedBytes::from(bytes.to_owned())),
            };
            return Ok(Outgoing { message: Message::from(bytes), pool: None });
        }
        if let Ok(buffer) = given.cast::<Buffer>() {
            let buffer = buffer.get();
            return Ok(Outgoing { message: Message::from(buffer.bytes()?), pool: buffer.pool().cloned() });
        }
        if let Ok(pieces) = given.cast::<Pieces>() {
            let pieces = pieces.get();
            check_pool(pieces.pool())?;
            return Ok(Outgoing { message: pieces.message.clone(), pool: pieces.pool.clone() });
        }
        let kind = given.get_type().name()?;
        Err(PyTypeError::new_err(format!(
            "a message has to be bytes, a tollfree.Buffer or what tollfree.message returns, not {kind}"
        )))
    }
}

/// A message for Python: bytes; [`Pieces`], if it is long or in several; a tuple of either, if it is compressed.
pub(crate) fn received<'py>(
    py: Python<'py>,
    message: &Message,
    pool: Option<&Pool>,
) -> PyResult<Bound<'py, PyAny>> {
    let is_short = message.more.is_empty() && message.bytes.len() < KEPT_LEN;
    let shown = match is_short {
        true => PyBytes::new(py, &message.bytes).into_any(),
        false => {
            let message = Message { compressed: false, ..message.clone() };
            Bound::new(py, Pieces::new(message, pool.cloned()))?.into_any()
        }
    };
    match message.compressed {
        false => Ok(shown),
        true => Ok(PyTuple::new(py, [shown])?.into_any()),
    }
}
