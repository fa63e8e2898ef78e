//! Objects: flat messages that are known to be sound.
use crate::plan::Plan;

/// A flat message that the decoder made or the verifier accepted: every offset in it leads to what the table
/// says lies there.
#[derive(Debug, Clone, Copy)]
pub struct Object<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) bytes: &'a [u8],
    pub(crate) root_off: u32,
    pub(crate) type_idx: u32,
}

impl<'a> Object<'a> {
    pub(crate) fn made(plan: &'a Plan, bytes: &'a [u8], root_off: u32, type_idx: u32) -> Object<'a> {
        Object { plan, bytes, root_off, type_idx }
    }

    /// The object's bytes, header first.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}
