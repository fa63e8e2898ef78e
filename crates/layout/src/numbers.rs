//! Numbers that cross processes, each a type of its own so that none is taken for another.

use core::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub $int);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// A byte offset from the start of a region or payload area.
    ByteOff(u64)
}
number! {
    /// A position in a ring: lines written since the session began. It never wraps in practice (2^64 lines).
    RingPos(u64)
}
number! {
    /// A call within a session. The client counts up from 1; 0 means the session itself.
    StreamId(u64)
}
number! {
    /// A method interned in a session. The client counts up from 0.
    MethodIdx(u16)
}
number! {
    /// A payload area of one direction of a session. Its creator counts up from 0.
    AreaIdx(u32)
}
number! {
    /// A segmented message of one direction of a session, in the order of their first chunks. Both sides count up from 0.
    SegmentedIdx(u64)
}
number! {
    /// A member of a pool. Chosen at random by the coordinator, never 0, and not used again in a pool's life.
    MemberIdx(u32)
}
number! {
    /// An extent of one member. Its owner counts up from 1; never used again.
    ExtentIdx(u32)
}
number! {
    /// A page of an extent, counted from its first data page.
    PageIdx(u32)
}
number! {
    /// How often the block that begins at a page has been given up after refs to it were passed on; 45 bits are in use.
    Generation(u64)
}

impl PageIdx {
    /// As an index.
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }
}

impl StreamId {
    /// The session as a whole, in frames that can concern it.
    pub const SESSION: StreamId = StreamId(0);
}
