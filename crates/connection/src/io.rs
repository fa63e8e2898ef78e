//! What a connection asks of its driver: the socket to the peer, and the time.

use tollfree_layout::RingPos;
use tollfree_os::fd::BorrowedFd;
use tollfree_region::{GivenFd, RegionError};
use tollfree_session::{Closed, Violation};

/// The socket to the peer and a clock, as a driver lends them to a connection for one step. Nothing here may wait.
pub trait PeerIo {
    /// Now, in nanoseconds of a monotonic clock.
    fn now_ns(&self) -> u64;

    /// Wakes the peer. All records up to `published` are in the ring; a driver whose peer has no memory in common with this side sends them.
    fn ring(&mut self, published: RingPos);

    /// A record of the peer's has come. Its doorbell comes before its first record.
    ///
    /// # Errors
    /// What the peer has done on the socket that no peer does.
    #[inline]
    fn record_came(&mut self) -> Result<(), Violation> {
        Ok(())
    }

    /// Sends the peer the descriptor of a payload area. It is announced in the ring afterwards.
    ///
    /// # Errors
    /// Why it was not sent, for people; the session goes on without.
    fn send_area(&mut self, area: BorrowedFd<'_>) -> Result<(), String>;

    /// The descriptor of a payload area that the peer has announced, in the order in which they came.
    fn take_area(&mut self) -> AreaFd;

    /// Nothing is said any more: ends the socket in both directions. `published` is as in [`ring`](PeerIo::ring); `is_new`: the peer has
    /// not been rung for the last of it.
    fn hang_up(&mut self, published: RingPos, is_new: bool);

    /// Something that people may want to know.
    fn report(&mut self, report: Report<'_>);
}

/// Where the descriptor of a payload area is.
#[derive(Debug)]
pub enum AreaFd {
    /// Here.
    Came(GivenFd),
    /// It came, and this process had no number free for it.
    NoNumber,
    /// It did not come.
    Missing,
    /// The peer has done on the socket what no peer does.
    Violation(Violation),
}

/// What a connection tells people of. It changes nothing for calls.
#[derive(Clone, Copy, Debug)]
pub enum Report<'a> {
    /// The session ends for this reason.
    Closing(&'a Closed),
    /// The peer may not have another payload area now.
    AreaWithheld,
    /// No payload area could be made, for this reason.
    AreaNotMade(&'a str),
    /// The peer has refused a payload area.
    AreaRefused,
    /// A payload area of the peer's is not what it announced.
    AreaForged(&'a RegionError),
    /// A payload area of the peer's can't be mapped.
    AreaNotMapped(&'a RegionError),
}
