//! Buffers: memory of a pool, or of a received message, as Python's buffer protocol and DLPack show it.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use bytes::Bytes;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use tollfree_pool::Pool;

use crate::dlpack;
use crate::memory::{Lease, Memory};
use crate::pool::bytes_of;

/// DLPack's number of memory that the processor reads and writes, with the device's index.
const CPU: (i32, i32) = (1, 0);

/// Memory that is filled and read in place. New memory of a pool can be written until it is frozen; what was received can't.
#[pyclass(frozen, weakref, module = "tollfree")]
pub(crate) struct Buffer {
    memory: Arc<Memory>,
}

impl Buffer {
    pub(crate) fn of(memory: Memory) -> Buffer {
        Buffer { memory: Arc::new(memory) }
    }

    /// Bytes that nobody changes. `pool`: the one that they may lie in.
    pub(crate) fn frozen(bytes: Bytes, pool: Option<&Pool>) -> Buffer {
        Buffer::of(Memory::frozen(bytes, pool))
    }

    /// Its bytes to be sent, which nobody can change from now on.
    pub(crate) fn bytes(&self) -> PyResult<Bytes> {
        self.memory.freeze()
    }

    pub(crate) fn pool(&self) -> Option<&Pool> {
        self.memory.pool()
    }
}

#[pymethods]
impl Buffer {
    /// A read-only buffer with a copy, in private memory, of what an object holds that speaks the buffer protocol.
    ///
    /// BufferError: the object does not, or is not contiguous.
    #[staticmethod]
    fn copy(data: &Bound<'_, PyAny>) -> PyResult<Buffer> {
        let bytes = bytes_of(data)?.to_vec(data.py())?;
        Ok(Buffer::frozen(bytes.into(), None))
    }

    /// Makes the buffer read-only, so that it can be sent. Returns the buffer.
    ///
    /// BufferError: an array or another view of it can still write it.
    fn freeze(slf: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        slf.memory.freeze()?;
        Ok(slf)
    }

    /// Whether nobody can write it any more.
    #[getter]
    fn readonly(&self) -> bool {
        self.memory.is_frozen()
    }

    /// Whether it lies in a pool, and goes to other members of the pool without a copy.
    #[getter]
    fn pooled(&self) -> bool {
        self.memory.pool().is_some()
    }

    fn __len__(&self) -> usize {
        self.memory.len()
    }

    fn __repr__(&self) -> String {
        let place = if self.pooled() { "in a pool" } else { "private" };
        let state = if self.readonly() { "read-only" } else { "writable" };
        format!("<tollfree.Buffer of {} bytes, {state}, {place}>", self.memory.len())
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        CPU
    }

    /// A DLPack capsule of the bytes, one dimension of uint8.
    ///
    /// BufferError: the consumer can't be told that the memory is read-only (`max_version` below 1.0), or wants another device.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if stream.is_some() {
            return Err(PyValueError::new_err("stream has to be None: the memory is no device's"));
        }
        if let Some(device) = dl_device.filter(|device| *device != CPU) {
            let words =
                format!("the memory is the processor's, {CPU:?}, and can't be given as device {device:?}");
            return Err(PyBufferError::new_err(words));
        }
        self.memory.check()?;
        if copy == Some(true) {
            return Err(PyBufferError::new_err(
                "the buffer is shown in place only: copy the array that was made of it",
            ));
        }
        let is_versioned = max_version.is_some_and(|(major, _)| major >= 1);
        dlpack::capsule(py, Lease::new(&self.memory), is_versioned)
    }

    /// Fills in a view of Python's buffer protocol: one dimension of bytes, writable until the buffer is frozen.
    ///
    /// # Safety
    /// `view` can be written, as the interpreter has it for each call of this kind.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let memory = &slf.get().memory;
        memory.check()?;
        let is_writable = memory.lend();
        let place = std::ptr::with_exposed_provenance_mut::<c_void>(memory.address());
        let (len, readonly) = (memory.len() as isize, c_int::from(!is_writable));
        // SAFETY: `view` is the interpreter's to be filled in. The memory lives as long as `slf`, which the view holds, and stays where it is; it
        // is freed or frozen only when no view can write it, which `lend` counts. `a_view_outlives_its_buffer` and
        // `a_buffer_with_an_array_is_not_frozen` would fail.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), place, len, readonly, flags) };
        if filled == 0 {
            return Ok(());
        }
        if is_writable {
            memory.returned();
        }
        Err(PyErr::fetch(slf.py()))
    }

    /// A view that `__getbuffer__` has filled in is gone.
    ///
    /// # Safety
    /// `view` is as that function has filled it in, as the interpreter has it.
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: the interpreter gives back what it was given, once. `a_buffer_is_frozen_once_its_arrays_are_gone` would fail.
        if unsafe { (*view).readonly } == 0 {
            self.memory.returned();
        }
    }
}
