//! The part of Tollfree for Python that is in Rust: loops that threads of an interpreter share, calls by bytes, and metadata.
//!
//! What users of gRPC know (channels, stubs' callables, servers, contexts) is in Python, in `python/tollfree`.

mod buffer;
mod call;
mod channels;
mod client;
mod dlpack;
mod events;
mod fields;
mod flat;
mod memory;
mod metadata;
mod pieces;
mod pool;
mod serving;
mod sharing;
mod wire;

use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::prelude::*;

/// How often this process was forked from one that had this module, as Python tells.
static FORK_COUNT: AtomicU32 = AtomicU32::new(0);

fn fork_count() -> u32 {
    FORK_COUNT.load(Ordering::Relaxed)
}

#[pymodule]
mod _native {
    use std::sync::atomic::Ordering;

    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::buffer::Buffer;
    #[pymodule_export]
    use crate::call::Call;
    #[pymodule_export]
    use crate::client::{Client, Method, Retry};
    #[pymodule_export]
    use crate::fields::Shape;
    #[pymodule_export]
    use crate::flat::{Elements, Record, Table};
    #[pymodule_export]
    use crate::metadata::{pack, unpack};
    #[pymodule_export]
    use crate::pieces::Pieces;
    #[pymodule_export]
    use crate::pool::Pool;
    #[pymodule_export]
    use crate::serving::{Loop, Served};

    /// The clock of deadlines, in nanoseconds.
    #[pyfunction]
    fn now_ns() -> u64 {
        tollfree_os::clock::now_ns()
    }

    /// This process was forked: what it has of its parent's loops is of no use to it.
    #[pyfunction]
    fn forked() {
        crate::FORK_COUNT.fetch_add(1, Ordering::Relaxed);
    }
}
