//! Objects that are built where they are sent from.

use bytes::Bytes;
use tollfree_pool::{AllocError, Buffer, Pool};
use tollfree_processor::{Arena, Memory};

/// A buffer of a pool, of which all bytes can be written.
struct InPool(Buffer);

impl Memory for InPool {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    fn share(mut self: Box<Self>, len: usize) -> Bytes {
        self.0.resize(len);
        // Nothing but a buffer of no bytes has no ref, and no object is that short.
        self.0.freeze().map(Bytes::from).unwrap_or_default()
    }
}

/// An arena of `len` bytes in a pool, for one message: an object that is built there goes to other members of the pool by ref, and is
/// not copied, if it is as long as [`ChannelBuilder::ref_threshold`](crate::ChannelBuilder::ref_threshold) says. All `len` bytes are held until the message's last
/// reader lets go of it. A message that gets longer is an error when it is finished, which says how long it is.
///
/// Waits for memory as [`Pool::buffer`] does.
///
/// # Errors
/// [`AllocError`]: the pool has no room, or `len` is 0.
///
/// ```
/// # use tollfree::pool::Pool;
/// # use tollfree_processor::{Arena, BuildError};
/// # fn answer(pool: &Pool) -> Result<(), Box<dyn std::error::Error>> {
/// let arena: Arena<'static> = tollfree::arena_in_pool(pool, 256 * 1024)?;
/// // let mut reply = Builder::<Report>::new(arena)?;
/// # Ok(())
/// # }
/// ```
pub fn arena_in_pool(pool: &Pool, len: usize) -> Result<Arena<'static>, AllocError> {
    let mut buffer = pool.buffer(len)?;
    buffer.resize(len);
    Ok(Arena::in_memory(InPool(buffer)))
}
