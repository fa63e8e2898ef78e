//! This process's membership of a pool.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use tollfree_layout::limits::PAGE_LEN;
use tollfree_pool::{AllocError, Capacity, Config, Invitation, Pool as Member};

use crate::buffer::Buffer;
use crate::memory::{Memory, check_pool};

/// Memory that is dealt out at once, at least and by default, in bytes.
const BATCH_MIN: u64 = 64 << 10;
const BATCH: u64 = 8 << 20;

/// A membership of a pool. Any thread may use it. It ends when this and all buffers, channels and servers with it are gone.
#[pyclass(frozen, module = "tollfree")]
pub(crate) struct Pool {
    member: Member,
}

impl Pool {
    pub(crate) fn member(&self) -> Member {
        self.member.clone()
    }
}

#[pymethods]
impl Pool {
    /// Makes a pool, which this process coordinates, and joins it.
    ///
    /// `address`: where others join, `shm:///path` or `shm-abstract:name`. `size`: what all members may have together, in bytes; `member_size`: what one may have, by
    /// default half of it.
    ///
    /// ValueError: the address or a size can't be used. OSError: it can't be made there; the message says why.
    #[staticmethod]
    #[pyo3(signature = (address, size = 1 << 30, member_size = None))]
    fn create(py: Python<'_>, address: &str, size: u64, member_size: Option<u64>) -> PyResult<Pool> {
        let address = crate::serving::parsed(address)?;
        let member_quota = member_size.unwrap_or(size / 2);
        if member_quota < BATCH_MIN || member_quota > size {
            let words = format!(
                "a member of a pool of {size} bytes can't have {member_quota}: {BATCH_MIN} at least, and the pool's size at most"
            );
            return Err(PyValueError::new_err(words));
        }
        let page = PAGE_LEN as u64;
        let capacity = Capacity { total: size, member_quota, batch: BATCH.min(member_quota / page * page) };
        let made = py.detach(|| Member::create(&address, capacity, Config::default()));
        made.map(|member| Pool { member }).map_err(|error| PyOSError::new_err(error.to_string()))
    }

    /// Joins the pool that is coordinated at an address. `invitation`: the text that a pool wants of its members which is joined by invitation.
    ///
    /// ValueError: the address or the invitation can't be read. OSError: it can't be joined; the message says why.
    #[staticmethod]
    #[pyo3(signature = (address, invitation = None))]
    fn join(py: Python<'_>, address: &str, invitation: Option<&str>) -> PyResult<Pool> {
        let address = crate::serving::parsed(address)?;
        let invitation = invitation.map(str::parse::<Invitation>).transpose();
        let invitation = invitation.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let joined = py.detach(|| match &invitation {
            None => Member::join(&address, Config::default()),
            Some(invitation) => Member::join_by_invitation(&address, invitation, Config::default()),
        });
        joined.map(|member| Pool { member }).map_err(|error| PyOSError::new_err(error.to_string()))
    }

    /// New memory of so many bytes, all zero. If there is none, waits up to a second for it, unless `wait` is false.
    ///
    /// MemoryError: there is none; the message says who has it. ValueError: no pool has buffers of this length.
    #[pyo3(signature = (len, wait = true))]
    fn buffer(&self, py: Python<'_>, len: usize, wait: bool) -> PyResult<Buffer> {
        let pool = self.checked()?;
        let made = py.detach(|| {
            let mut buffer = if wait { pool.buffer(len) } else { pool.try_buffer(len) }?;
            buffer.resize(len);
            Ok(buffer)
        });
        Ok(Buffer::of(Memory::writable(made.map_err(unallocated)?, pool.clone())))
    }

    /// A read-only buffer with a copy of what an object holds that speaks the buffer protocol, such as bytes or a contiguous array.
    ///
    /// BufferError: the object does not, or is not contiguous. Others as for `buffer`.
    #[pyo3(signature = (data, wait = true))]
    fn copy(&self, data: &Bound<'_, PyAny>, wait: bool) -> PyResult<Buffer> {
        let pool = self.checked()?;
        let (py, bytes) = (data.py(), bytes_of(data)?);
        let len = bytes.len_bytes();
        let made = py.detach(|| if wait { pool.buffer(len) } else { pool.try_buffer(len) });
        let mut buffer = made.map_err(unallocated)?;
        bytes.copy_to_slice(py, buffer.resize_zeroed(len))?;
        let frozen = buffer.freeze().map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Buffer::frozen(frozen.into(), Some(pool)))
    }

    /// Bytes of this member's memory that are in use.
    #[getter]
    fn used(&self) -> PyResult<u64> {
        let pool = self.checked()?;
        pool.sweep();
        Ok(pool.room().used)
    }

    fn __repr__(&self) -> String {
        format!("<tollfree.Pool {}>", self.member.id().map(|byte| format!("{byte:02x}")).concat())
    }
}

impl Pool {
    fn checked(&self) -> PyResult<&Member> {
        check_pool(Some(&self.member))?;
        Ok(&self.member)
    }
}

fn unallocated(error: AllocError) -> PyErr {
    match error {
        AllocError::TooLong { .. } | AllocError::Empty => PyValueError::new_err(error.to_string()),
        error => PyMemoryError::new_err(error.to_string()),
    }
}

/// The bytes of an object that speaks the buffer protocol.
pub(crate) fn bytes_of(data: &Bound<'_, PyAny>) -> PyResult<PyBuffer<u8>> {
    let kind = data.get_type().name()?;
    let bytes = PyMemoryView::from(data).and_then(|view| view.call_method1("cast", ("B",)));
    let bytes = bytes.map_err(|error| {
        PyBufferError::new_err(format!(
            "{kind} has no bytes in one piece: make a contiguous array of it ({error})"
        ))
    })?;
    PyBuffer::get(&bytes)
}
