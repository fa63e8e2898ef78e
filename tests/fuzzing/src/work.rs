//! How much work an input may make.

use tollfree_layout::steps;

/// Holds steps against the bytes that there were: of the input, of memory that was filled, of what was written.
pub(crate) fn hold(what: &str, taken: u64, bytes: usize) {
    assert!(taken <= 4 * bytes as u64 + 2000, "{what}: {taken} steps for {bytes} bytes");
}

/// Does the work, which may take no more steps than so many bytes are worth.
pub(crate) fn within<T>(what: &str, bytes: usize, work: impl FnOnce() -> T) -> T {
    let (done, taken) = steps::of(work);
    hold(what, taken, bytes);
    done
}
