//! Overlays: plain memory over a payload, of which the kernel copies a page at the first store to it.
//!
//! This is copy-on-write without asking: code that knows nothing of a pool gets a `&mut [u8]` of the whole, stores where it
//! likes, and pays for the pages that it touches. [`Payload::make_mut`] is cheaper for each page
//! and has to be told beforehand which range will be written.
//!
//! # Layout
//! Pages of the overlay lie over pages of the pool, so that the payload begins as far behind a page's beginning as its first
//! byte does in its block:
//!
//! ```text
//!             | lead |  payload ...                                              ...  |      |
//! overlay     | page 0       | page 1       | page 2       | page 3       | page 4          |
//! shows       └───────── a piece: a ref's pages ──┘  copied └───────── another ────────────┘
//! ```
//!
//! A page in which two refs meet, or a ref that begins elsewhere in a page, is copied when the overlay is made. A payload
//! that was written by `make_mut` consists of whole pages in the middle and has none of these, unless it begins within a page.
//!
//! # Trust
//! A page that was not stored to shows its owner's memory. It stays as it is for the same reason as under a [`Ref`]: the
//! overlay keeps a hold of the block, and an owner stores to nothing that anybody holds or that it ever passed on. Pages that
//! were stored to are this process's own, whatever anybody does.
//!
//! # Crash
//! What was stored dies with its process; nobody else has seen it. Holds go as those of refs do. A forked child has
//! neither the memory nor the holds.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};

use smallvec::SmallVec;
use tollfree_layout::limits::PAGE_LEN;
use tollfree_region::{Patch, PrivateView, RegionError};

use crate::error::AllocError;
use crate::payload::Payload;
use crate::pool::Pool;
use crate::refs::Ref;

/// Why a payload has no overlay.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OverlayError {
    /// Its bytes are private.
    #[error("private bytes need no overlay: write them as they are, or share them with a pool first")]
    Private,
    /// The kernel gives no memory or addresses.
    #[error("no overlay of the payload can be made: {0}")]
    Region(#[from] RegionError),
    /// This process was forked from the member, and isn't one.
    #[error("a forked child is no member of its parent's pool; join it anew")]
    Forked,
}

/// The bytes of a payload as plain memory of this process, to be read and written as a slice.
///
/// Nothing is copied until a page is stored to, and then that page, by the kernel; so may be the target of `read(2)`, of other
/// threads (`split_at_mut`) and of code in other languages. Everybody else keeps what they saw, the payload's creator and
/// the payload itself included. [`share`](Self::share) makes a payload of what is there now. Pages stored to are this process's
/// own memory and don't count against the pool's quota until they are shared.
///
/// Making one takes two system calls, and more where the payload is in several segments; the kernel takes some
/// microseconds for each page that is stored to. To write few pages that are known beforehand,
/// [`Payload::make_mut`] is faster.
///
/// # Example
/// ```
/// use tollfree_pool::{Address, Capacity, Config, Payload, Pool};
///
/// /// Code that knows nothing of pools.
/// fn darken(pixels: &mut [u8]) {
///     pixels.iter_mut().for_each(|pixel| *pixel /= 2);
/// }
///
/// # let directory = tempfile::tempdir()?;
/// # let address: Address = format!("shm://{}/pool.sock", directory.path().display()).parse()?;
/// let pool = Pool::create(&address, Capacity::default(), Config::default())?;
/// let image = Payload::from(pool.copy_from_slice(&[100; 40_960])?);
/// let mut plain = image.overlay()?;
/// darken(&mut plain[4096..8192]); // the kernel copies this page
/// let darker = plain.share()?;
/// assert_eq!((plain[4095], plain[4096], image.to_vec()[4096]), (100, 50, 100));
/// assert_eq!(darker.segments().map(<[u8]>::len).collect::<Vec<_>>(), [4096, 4096, 32_768]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Overlay {
    // Before the refs: what shows their bytes goes before the holds do.
    view: PrivateView,
    pool: Pool,
    /// In order; pages between them were copied.
    pieces: SmallVec<[Piece; 1]>,
    lead: usize,
    len: usize,
}

/// Pages that show what a ref is to.
struct Piece {
    pages: Range<usize>,
    /// Exactly the payload's bytes in these pages.
    shown: Ref,
}

impl Piece {
    fn patch(&self) -> Patch<'_> {
        let (fd, off) = self.shown.held.file_at(self.shown.off / PAGE_LEN * PAGE_LEN);
        Patch { at: self.pages.start * PAGE_LEN, fd, off, len: self.pages.len() * PAGE_LEN }
    }
}

/// Bytes of a ref that have to be copied in, and where to.
type Loose<'r> = (usize, &'r [u8]);

impl Overlay {
    pub(crate) fn of(refs: &[Ref]) -> Result<Overlay, OverlayError> {
        let (first, last) = refs.first().zip(refs.last()).ok_or(OverlayError::Private)?;
        let pool = first.pool();
        if pool.is_inherited() {
            return Err(OverlayError::Forked);
        }
        let lead = first.off % PAGE_LEN;
        let mut pieces: SmallVec<[Piece; 1]> = SmallVec::new();
        let mut loose: SmallVec<[Loose<'_>; 2]> = SmallVec::new();
        let mut at = lead;
        for bytes in refs {
            let end = at + bytes.len();
            let shown = match (bytes.off % PAGE_LEN == at % PAGE_LEN).then(|| {
                // Pages with bytes of this ref alone; at the ends of the payload, whatever else the block has there.
                let start = if std::ptr::eq(bytes, first) { 0 } else { at.div_ceil(PAGE_LEN) };
                let stop = if std::ptr::eq(bytes, last) { end.div_ceil(PAGE_LEN) } else { end / PAGE_LEN };
                start..stop
            }) {
                Some(pages) if !pages.is_empty() => {
                    let shown = (pages.start * PAGE_LEN).max(at)..(pages.end * PAGE_LEN).min(end);
                    let part = bytes.slice(shown.start - at..shown.end - at);
                    pieces.push(Piece { pages, shown: part.expect("not empty, and within the ref") });
                    shown
                }
                _ => end..end,
            };
            let (before, behind) = (&bytes[..shown.start - at], &bytes[shown.end - at..]);
            loose.extend(
                [(at, before), (shown.end, behind)].into_iter().filter(|(_, bytes)| !bytes.is_empty()),
            );
            at = end;
        }
        let view = {
            let patches: SmallVec<[Patch<'_>; 1]> = pieces.iter().map(Piece::patch).collect();
            PrivateView::new(at, &patches)?
        };
        let mut overlay = Overlay { view, pool, pieces, lead, len: at - lead };
        for (to, bytes) in loose {
            overlay[to - lead..][..bytes.len()].copy_from_slice(bytes);
            overlay.pool.count_copied(bytes.len());
        }
        crate::steps::reached("overlaid");
        Ok(overlay)
    }

    /// A payload of what is there now. Pages that were stored to are copied into the pool, into memory of this process's
    /// member; the others are the refs that they were. The overlay goes on as it is, and what is stored to it afterwards
    /// nobody sees.
    ///
    /// Waits as [`Pool::buffer`] does.
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn share(&self) -> Result<Payload, AllocError> {
        if self.view.is_inherited() {
            return Err(AllocError::Forked);
        }
        // Where the kernel doesn't say, looking tells as well, and takes longer.
        let stored = self.view.stored().unwrap_or_else(|_| self.compare());
        self.share_but(&stored)
    }

    /// Of each page, whether it is another than the one it showed.
    fn compare(&self) -> Vec<bool> {
        let mut differs = vec![true; self.page_count()];
        for Piece { pages, shown } in &self.pieces {
            let mut left = &shown[..];
            for page in pages.clone() {
                let now = &self[self.bytes_in(page..page + 1)];
                let (then, later) = left.split_at(now.len());
                differs[page] = now != then;
                left = later;
            }
        }
        differs
    }

    fn share_but(&self, stored: &[bool]) -> Result<Payload, AllocError> {
        let runs = self.runs(stored);
        let copied = runs.iter().filter(|(_, shown)| shown.is_none());
        let mut copied_len: usize = copied.clone().map(|(pages, _)| self.bytes_in(pages.clone()).len()).sum();
        // A page has to lie in a block as it does here, so that it can be shown again.
        let lead = if runs.first().is_some_and(|(_, shown)| shown.is_none()) { self.lead } else { 0 };
        let mut copy = None;
        if copied_len > 0 {
            copied_len += lead;
            let mut buffer = self.pool.buffer(copied_len)?;
            buffer.resize(lead);
            copied.for_each(|(pages, _)| buffer.extend_from_slice(&self[self.bytes_in(pages.clone())]));
            copy = Some(buffer.freeze().expect("it was filled just now"));
        }
        crate::steps::reached("overlay-copied");
        let mut at = lead;
        let refs = runs.into_iter().map(|(pages, shown)| {
            let len = self.bytes_in(pages).len();
            let part = match (shown, &copy) {
                (Some(shown), _) => return shown,
                (None, Some(copy)) => copy.slice(at..at + len),
                (None, None) => unreachable!("what has to be copied was"),
            };
            at += len;
            part.expect("as much as was put there")
        });
        Ok(Payload::of_refs(refs.collect()))
    }

    /// The pages from first to last, in runs of those that are to be copied and those that show a part of one ref.
    fn runs(&self, stored: &[bool]) -> Vec<(Range<usize>, Option<Ref>)> {
        let mut runs: Vec<(Range<usize>, Option<Ref>)> = Vec::new();
        let mut page = 0;
        for piece in &self.pieces {
            push_copy(&mut runs, page..piece.pages.start);
            page = piece.pages.start;
            while page < piece.pages.end {
                let is_stored = stored[page];
                let rest = &stored[page..piece.pages.end];
                let run = page..page + rest.iter().take_while(|stored| **stored == is_stored).count();
                page = run.end;
                if is_stored {
                    push_copy(&mut runs, run);
                } else {
                    let begin = self.bytes_in(piece.pages.clone()).start;
                    let bytes = self.bytes_in(run.clone());
                    let part = piece.shown.slice(bytes.start - begin..bytes.end - begin);
                    runs.push((run, Some(part.expect("not empty, and within the ref"))));
                }
            }
        }
        push_copy(&mut runs, page..self.page_count());
        runs
    }

    fn page_count(&self) -> usize {
        (self.lead + self.len).div_ceil(PAGE_LEN)
    }

    /// The payload's bytes in these pages.
    fn bytes_in(&self, pages: Range<usize>) -> Range<usize> {
        let from = (pages.start * PAGE_LEN).max(self.lead);
        let to = (pages.end * PAGE_LEN).min(self.lead + self.len);
        from - self.lead..to - self.lead
    }

    /// # Panics
    /// In a forked child, which doesn't have the memory.
    #[inline]
    fn check(&self) {
        assert!(!self.view.is_inherited(), "a forked child does not have its parent's overlays");
    }
}

/// Adds pages to be copied to the runs.
fn push_copy(runs: &mut Vec<(Range<usize>, Option<Ref>)>, pages: Range<usize>) {
    match runs.last_mut() {
        _ if pages.is_empty() => {}
        Some((last, None)) => last.end = pages.end,
        _ => runs.push((pages, None)),
    }
}

impl Deref for Overlay {
    type Target = [u8];

    /// # Panics
    /// In a child forked from the member, which doesn't have the memory.
    #[inline]
    fn deref(&self) -> &[u8] {
        self.check();
        let base = self.view.ptr(self.lead, self.len);
        // SAFETY: within the view (`ptr` checks), which is mapped while `self` lives, and always readable. Pages that were
        // stored to are this process's own and written through `&mut self` alone; nobody writes what the others show while
        // the holds in `pieces` live (module's head). `overlays_behave_like_vectors` would notice reuse under an overlay.
        unsafe { std::slice::from_raw_parts(base.as_ptr(), self.len) }
    }
}

impl DerefMut for Overlay {
    /// # Panics
    /// As `deref`.
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.check();
        let base = self.view.ptr(self.lead, self.len);
        // SAFETY: as in `deref`; the view is mapped writable, and private: a store is seen by this process alone, where
        // `&mut self` says that nobody else looks. `what_is_stored_nobody_else_sees` would notice.
        unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overlay").field("len", &self.len).field("pieces", &self.pieces.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Capacity, Config};
    use tollfree_rendezvous::Address;

    #[test]
    fn where_the_kernel_tells_nothing_looking_does() {
        let directory = tempfile::tempdir().unwrap();
        let address: Address = format!("shm://{}/pool.sock", directory.path().display()).parse().unwrap();
        let pool = Pool::create(&address, Capacity::default(), Config::default()).unwrap();
        let bytes: Vec<u8> = (0..50_000).map(|at| (at / 100) as u8).collect();
        let whole = Payload::from(pool.copy_from_slice(&bytes).unwrap());
        let mut overlay = whole.slice(100..45_000).unwrap().overlay().unwrap();
        for at in [0, 5_000, 30_000, 44_899] {
            overlay[at] ^= 0xff;
        }
        let stored = overlay.view.stored().unwrap();
        assert_eq!(overlay.compare(), stored);
        assert_eq!(stored.iter().filter(|stored| **stored).count(), 4);
        let copied = pool.counts().copied_bytes;
        let shared = overlay.share_but(&overlay.compare()).unwrap();
        assert_eq!(shared, overlay[..]);
        // The first page has 3,996 bytes of the payload, the last 4,040.
        assert_eq!(pool.counts().copied_bytes - copied, 3_996 + 2 * 4_096 + 4_040);
    }
}
