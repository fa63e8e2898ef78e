//! DLPack: capsules by which array libraries take memory without a copy.
//!
//! # Layout
//! As `dlpack.h` of DLPack 1.0 has it, and its form without a version that older consumers take.
//!
//! # Who writes what
//! The producer fills a tensor in before the capsule is given. A consumer renames the capsule, which makes the tensor its own, and calls the deleter once, in any
//! thread. A capsule that nobody took deletes the tensor itself.
use std::ffi::{CStr, c_void};

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::memory::Lease;

const VERSION: Version = Version { major: 1, minor: 0 };
const FLAG_READ_ONLY: u64 = 1;
const CPU: Device = Device { kind: 1, idx: 0 };
const UINT8: DataType = DataType { code: 1, bits: 8, lanes: 1 };

#[repr(C)]
struct Version {
    major: u32,
    minor: u32,
}

#[repr(C)]
struct Device {
    kind: i32,
    idx: i32,
}

#[repr(C)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    dimension_count: i32,
    data_type: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: unsafe extern "C" fn(*mut Managed),
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    version: Version,
    context: *mut c_void,
    deleter: unsafe extern "C" fn(*mut Versioned),
    flags: u64,
    tensor: Tensor,
}

/// What a tensor of either form keeps.
struct Kept {
    _lease: Lease,
    shape: [i64; 1],
    strides: [i64; 1],
}

/// A form of tensors that capsules carry.
trait Form: Sized {
    const NAME: &'static CStr;

    fn new(tensor: Tensor, context: *mut c_void, is_read_only: bool) -> Self;

    fn context(&self) -> *mut c_void;
}

impl Form for Managed {
    const NAME: &'static CStr = c"dltensor";

    fn new(tensor: Tensor, context: *mut c_void, _: bool) -> Managed {
        Managed { tensor, context, deleter: delete::<Managed> }
    }

    fn context(&self) -> *mut c_void {
        self.context
    }
}

impl Form for Versioned {
    const NAME: &'static CStr = c"dltensor_versioned";

    fn new(tensor: Tensor, context: *mut c_void, is_read_only: bool) -> Versioned {
        let flags = if is_read_only { FLAG_READ_ONLY } else { 0 };
        Versioned { version: VERSION, context, deleter: delete::<Versioned>, flags, tensor }
    }

    fn context(&self) -> *mut c_void {
        self.context
    }
}

/// A capsule of one dimension of bytes.
///
/// # Errors
/// `BufferError`: the memory is read-only, which the form without a version can't say.
pub(crate) fn capsule(py: Python<'_>, lease: Lease, is_versioned: bool) -> PyResult<Bound<'_, PyAny>> {
    match (is_versioned, lease.is_writable()) {
        (true, _) => made::<Versioned>(py, lease),
        (false, true) => made::<Managed>(py, lease),
        (false, false) => Err(PyBufferError::new_err(
            "the memory is read-only, which DLPack can say from its version 1.0 on only: use a newer version of the library that takes it, or the buffer protocol",
        )),
    }
}

fn made<F: Form>(py: Python<'_>, lease: Lease) -> PyResult<Bound<'_, PyAny>> {
    let (data, is_read_only) = (lease.memory().address(), !lease.is_writable());
    let len = lease.memory().len() as i64;
    let mut kept = Box::new(Kept { _lease: lease, shape: [len], strides: [1] });
    let tensor = Tensor {
        data: std::ptr::with_exposed_provenance_mut(data),
        device: CPU,
        dimension_count: 1,
        data_type: UINT8,
        shape: kept.shape.as_mut_ptr(),
        strides: kept.strides.as_mut_ptr(),
        byte_offset: 0,
    };
    let tensor = Box::into_raw(Box::new(F::new(tensor, Box::into_raw(kept).cast(), is_read_only)));
    // SAFETY: the interpreter is held, as `py` shows, the name is static, and the capsule's destructor has its type. The tensor lives until its deleter was
    // called. `arrays_by_dlpack_hold_the_memory` would fail.
    let capsule = unsafe { ffi::PyCapsule_New(tensor.cast(), F::NAME.as_ptr(), Some(forsake::<F>)) };
    if capsule.is_null() {
        // SAFETY: no capsule has it, and it is as `made` has made it.
        unsafe { delete(tensor) };
        return Err(PyErr::fetch(py));
    }
    // SAFETY: a new reference, of which this is the only owner.
    Ok(unsafe { Bound::from_owned_ptr(py, capsule) })
}

/// What a consumer calls once it needs a tensor no more. Needs no lock of the interpreter's.
///
/// # Safety
/// The tensor is one of [`made`], and was not deleted.
unsafe extern "C" fn delete<F: Form>(tensor: *mut F) {
    if tensor.is_null() {
        return;
    }
    // SAFETY: both boxes are those of `made`; DLPack has a tensor's owner call this once. `arrays_by_dlpack_hold_the_memory` would fail.
    unsafe {
        let tensor = Box::from_raw(tensor);
        drop(Box::from_raw(tensor.context().cast::<Kept>()));
    }
}

/// A capsule goes: its tensor too, if no consumer has taken that, which has changed the capsule's name.
///
/// # Safety
/// The capsule is one of [`made`], and the interpreter is held, as it is for all destructors.
unsafe extern "C" fn forsake<F: Form>(capsule: *mut ffi::PyObject) {
    // SAFETY: a capsule of the first name holds a tensor of `made` that nobody else has. `a_capsule_that_nobody_takes_is_freed` would fail.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, F::NAME.as_ptr()) == 1 {
            delete(ffi::PyCapsule_GetPointer(capsule, F::NAME.as_ptr()).cast::<F>());
        }
    }
}
