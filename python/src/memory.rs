//! Memory that Python programs fill and read in place: who may write it, and when it may be sent.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use pyo3::exceptions::{PyBufferError, PyRuntimeError};
use pyo3::prelude::*;
use tollfree_pool::{Buffer, Pool};

/// See the module. Any thread may use it, with or without the interpreter's lock.
pub(crate) struct Memory {
    state: Mutex<State>,
    /// Where it lies, for as long as this lives: freezing does not move it.
    address: usize,
    len: usize,
    /// The pool that it lies in. A child of fork does not have the memory.
    pool: Option<Pool>,
}

enum State {
    /// This process alone has it; so many arrays and other views can write it.
    Writable { buffer: Buffer, views: usize },
    /// Nobody changes it any more.
    Frozen(Bytes),
}

impl Memory {
    /// New memory of a pool.
    pub(crate) fn writable(mut buffer: Buffer, pool: Pool) -> Memory {
        let address = buffer.as_mut_ptr().expose_provenance();
        let len = buffer.len();
        Memory { state: Mutex::new(State::Writable { buffer, views: 0 }), address, len, pool: Some(pool) }
    }

    /// Bytes that nobody changes. `pool`: the one that they may lie in.
    pub(crate) fn frozen(bytes: Bytes, pool: Option<&Pool>) -> Memory {
        let pool = pool.filter(|pool| pool.ref_of(&bytes).is_some()).cloned();
        let (address, len) = (bytes.as_ptr().expose_provenance(), bytes.len());
        Memory { state: Mutex::new(State::Frozen(bytes)), address, len, pool }
    }

    pub(crate) fn address(&self) -> usize {
        self.address
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn pool(&self) -> Option<&Pool> {
        self.pool.as_ref()
    }

    /// # Errors
    /// `RuntimeError`: this process was forked from the one that has the memory.
    pub(crate) fn check(&self) -> PyResult<()> {
        check_pool(self.pool.as_ref())
    }

    /// Lends the memory to a view: whether that may write it. What may be written is to be [returned](Self::returned).
    pub(crate) fn lend(&self) -> bool {
        match &mut *self.state.lock() {
            State::Writable { views, .. } => {
                *views += 1;
                true
            }
            State::Frozen(_) => false,
        }
    }

    /// A view that could write the memory is gone.
    pub(crate) fn returned(&self) {
        if let State::Writable { views, .. } = &mut *self.state.lock() {
            *views = views.saturating_sub(1);
        }
    }

    pub(crate) fn is_frozen(&self) -> bool {
        matches!(&*self.state.lock(), State::Frozen(_))
    }

    /// Its bytes, which nobody can change from now on.
    ///
    /// # Errors
    /// `BufferError`: there are views that can write it.
    pub(crate) fn freeze(&self) -> PyResult<Bytes> {
        self.check()?;
        let mut state = self.state.lock();
        if let State::Writable { views: views @ 1.., .. } = &*state {
            return Err(PyBufferError::new_err(format!(
                "the buffer can be written through {views} array(s) or other view(s) of it: delete these, or release the memoryview, before the buffer is frozen or sent"
            )));
        }
        let bytes = match std::mem::replace(&mut *state, State::Frozen(Bytes::new())) {
            State::Frozen(bytes) => bytes,
            State::Writable { buffer, .. } => buffer
                .freeze()
                .map(Bytes::from)
                .map_err(|error| PyBufferError::new_err(format!("the buffer can't be frozen: {error}")))?,
        };
        *state = State::Frozen(bytes.clone());
        Ok(bytes)
    }
}

/// # Errors
/// `RuntimeError`: this process was forked from the pool's member.
pub(crate) fn check_pool(pool: Option<&Pool>) -> PyResult<()> {
    match pool.is_some_and(Pool::is_inherited) {
        false => Ok(()),
        true => Err(PyRuntimeError::new_err(
            "this process was forked, and the pool's memory is its parent's: join the pool in the child",
        )),
    }
}

/// A view that lives outside of Python's objects.
pub(crate) struct Lease {
    memory: Arc<Memory>,
    is_writable: bool,
}

impl Lease {
    pub(crate) fn new(memory: &Arc<Memory>) -> Lease {
        Lease { is_writable: memory.lend(), memory: memory.clone() }
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.is_writable
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.is_writable {
            self.memory.returned();
        }
    }
}
