//! Named places on a call's way at which a test has its own process killed; nothing in any other build.
//!
//! A part that shares memory, or a socket, with another process calls [`here`] at each step after which it could die. In a
//! build without the feature `armed` that is an empty function. With it (only the tests of `transport` and `gateway` ask for it) a
//! process can `arm` one point for itself, and is gone by SIGKILL when it gets there for the n-th time: no destructor, no
//! flush, no word to the peer. `crates/driver-tokio/tests/suite/kill_points.rs` does so at every point of [`Point::ALL`], on each
//! side that can get there, and fails for a point that was never reached.
//!
//! Nothing of this can be reached from outside: arming is a call in the process itself, not a variable or a message.
//!
//! # Example
//! ```
//! use tollfree_kill_points::{Point, here};
//!
//! here(Point::Published); // Not armed: goes on.
//! assert!(Point::ALL.iter().any(|(point, _)| *point == Point::Published));
//! ```
#![forbid(unsafe_code)]

/// Which side of a session gets to a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sides {
    /// The client only.
    Client,
    /// The server only.
    Server,
    /// Each of them.
    Both,
}

impl Sides {
    /// Whether a client gets there.
    pub fn has_client(self) -> bool {
        self != Sides::Server
    }

    /// Whether a server gets there.
    pub fn has_server(self) -> bool {
        self != Sides::Client
    }
}

macro_rules! points {
    ($($(#[doc = $doc:literal])+ $name:ident: $sides:ident,)+) => {
        /// A step after which a process may be gone.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Point {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Point {
            /// All points, and who gets there.
            pub const ALL: &[(Point, Sides)] = &[$((Point::$name, Sides::$sides),)+];
        }
    };
}

points! {
    // Meeting.
    /// The lock on the socket's directory is held.
    DirectoryLocked: Server,
    /// The socket is bound and listens.
    SocketBound: Server,
    /// The socket's file is about to be removed.
    SocketUnbinding: Server,
    // Handshake.
    /// Connected; nothing sent.
    Connected: Client,
    /// Accepted; nothing read.
    Accepted: Server,
    /// This side's region is made and sealed.
    RegionMade: Both,
    /// HELLO or WELCOME is sent, with the region's descriptor.
    HandshakeSent: Both,
    /// HELLO or WELCOME has come, with the peer's descriptor.
    HandshakeHeard: Both,
    /// The peer's region is mapped.
    PeerMapped: Both,
    /// This side's doorbell is given to the peer.
    DoorbellGiven: Both,
    /// The session has begun and its driver runs.
    SessionBegun: Both,
    // Sending.
    /// There is room for a record, and nothing of it is written.
    RoomReserved: Both,
    /// A part of a record is written.
    MidRecord: Both,
    /// A record is written and not visible.
    RecordStaged: Both,
    /// All is written but the head word that makes it visible.
    Publishing: Both,
    /// The head word is stored.
    Published: Both,
    /// The peer sleeps, and the doorbell is not rung yet.
    DoorbellDue: Both,
    /// The doorbell is rung.
    DoorbellRung: Both,
    // Receiving.
    /// A record was seen and its head found good.
    RecordSeen: Both,
    /// What a record says is done.
    RecordHandled: Both,
    /// A record is passed, and its room not given back.
    RecordConsumed: Both,
    /// The cursor is about to be stored.
    Releasing: Both,
    /// The cursor is stored.
    Released: Both,
    /// This side has said that it sleeps.
    Parked: Both,
    /// The doorbell was heard.
    DoorbellHeard: Both,
    // Credit and other notices.
    /// CREDIT is staged.
    CreditStaged: Both,
    /// CREDIT has come.
    CreditTaken: Both,
    /// Another frame that a session owes (CANCEL, DRAIN, an area's answer) is staged.
    NoticeStaged: Both,
    // SegmentedMessages.
    /// Hold was taken of a segmented message's parts, and its sender not told.
    SegmentedTaken: Both,
    // Payload areas.
    /// A payload area is made, and its descriptor not sent.
    AreaMade: Both,
    /// Its descriptor is sent, and nothing said about it.
    AreaSent: Both,
    /// The offer waits to be staged.
    AreaOffered: Both,
    /// The peer's descriptor was taken from the socket.
    AreaTaken: Both,
    /// The peer's area is mapped, and not accepted.
    AreaMapped: Both,
    /// The peer has accepted the area.
    AreaAccepted: Both,
    /// A chunk lies in the area, and no record refers to it.
    ChunkPlaced: Both,
    /// A chunk was copied out of the peer's area.
    ChunkCopied: Both,
    /// The area is given up, and the peer not told.
    AreaDropping: Both,
    /// The peer was told.
    AreaDropped: Both,
    /// The peer's area is unmapped.
    AreaUnmapped: Both,
    // Ends.
    /// A stream is let go of.
    StreamForgotten: Both,
    /// The server has told that it takes no more calls.
    DrainSent: Server,
    /// The client was told so.
    DrainTaken: Client,
    /// CLOSE is staged.
    CloseStaged: Both,
    /// CLOSE is published.
    ClosePublished: Both,
    /// The socket is shut down.
    SocketShutDown: Both,
    /// The peer's end was noticed.
    HangUpHeard: Both,
}

/// A step is done. Kills this process where a test has asked for that.
#[cfg(not(feature = "armed"))]
#[inline(always)]
pub fn here(_: Point) {}

#[cfg(feature = "armed")]
pub use armed::{arm, here};

#[cfg(feature = "armed")]
mod armed {
    use std::sync::atomic::{AtomicU32, Ordering};

    use rustix::process::{Signal, getpid, kill_process};

    use super::Point;

    const NONE: u32 = u32::MAX;
    static POINT: AtomicU32 = AtomicU32::new(NONE);
    static LEFT: AtomicU32 = AtomicU32::new(0);

    /// From now on this process is killed when any of its threads gets to `point` for the `nth` time (1 is the next).
    pub fn arm(point: Point, nth: u32) {
        LEFT.store(nth, Ordering::SeqCst);
        POINT.store(point as u32, Ordering::SeqCst);
    }

    /// A step is done. Kills this process where a test has asked for that.
    #[inline]
    pub fn here(point: Point) {
        if POINT.load(Ordering::Relaxed) == point as u32 {
            reached();
        }
    }

    #[cold]
    fn reached() {
        if LEFT.fetch_sub(1, Ordering::SeqCst) == 1 {
            // A signal that kills the sender is delivered before the call returns to it.
            let sent = kill_process(getpid(), Signal::KILL);
            unreachable!("outlived SIGKILL: {sent:?}");
        }
    }
}
