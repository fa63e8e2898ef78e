//! What a gateway holds of others, counted by who runs it.

use std::fmt;
use std::sync::Arc;

/// Counts what others make a gateway hold: of a backend connection, tables as they came and as they are made ready, and methods that take objects; of a
/// call, objects of its answer that are put together, or wait to be verified.
pub trait Holdings: Send + Sync {
    /// `bytes` more are to be held. Asked before they are.
    ///
    /// # Errors
    /// Why there is no room for so many; nothing was counted then.
    fn add(&self, bytes: usize) -> Result<(), String>;

    /// `bytes` are held no more.
    fn remove(&self, bytes: usize);
}

/// What is counted of one thing, until it is dropped.
pub struct Held {
    holdings: Option<Arc<dyn Holdings>>,
    bytes: usize,
}

impl Held {
    /// Nothing yet.
    pub fn nothing(holdings: Option<&Arc<dyn Holdings>>) -> Held {
        Held { holdings: holdings.cloned(), bytes: 0 }
    }

    /// `bytes` more.
    ///
    /// # Errors
    /// As [`Holdings::add`].
    pub fn add(&mut self, bytes: usize) -> Result<(), String> {
        if let Some(holdings) = &self.holdings {
            holdings.add(bytes)?;
        }
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(holdings) = &self.holdings {
            holdings.remove(self.bytes);
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Held({} bytes)", self.bytes)
    }
}
