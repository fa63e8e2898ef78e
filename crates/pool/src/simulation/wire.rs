//! Connections between members and a coordinator: bytes and descriptors in order, until one end is closed.

use std::collections::VecDeque;

use tollfree_layout::pool::{POOL_MAGIC, POOL_MESSAGE_LEN, PoolMessage};
use tollfree_os::fd::{AsFd, OwnedFd};
use tollfree_region::GivenFd;
use zerocopy::{FromBytes, IntoBytes};

use super::rng::Rng;

/// A message on its way.
#[derive(Debug)]
pub(super) struct Parcel {
    bytes: [u8; POOL_MESSAGE_LEN],
    fds: Vec<OwnedFd>,
}

impl Parcel {
    pub(super) fn new(message: &PoolMessage, fds: Vec<OwnedFd>) -> Parcel {
        let mut bytes = [0; POOL_MESSAGE_LEN];
        bytes.copy_from_slice(message.as_bytes());
        Parcel { bytes, fds }
    }

    /// With copies of these descriptors.
    pub(super) fn of_copies(message: &PoolMessage, fds: &[impl AsFd]) -> Parcel {
        let copy = |fd: &_| AsFd::as_fd(fd).try_clone_to_owned().expect("there are descriptors left");
        Parcel::new(message, fds.iter().map(copy).collect())
    }

    pub(super) fn open(self) -> (PoolMessage, Vec<GivenFd>) {
        let message = PoolMessage::read_from_bytes(&self.bytes).expect("as long as a message");
        assert_eq!(message.magic, POOL_MAGIC);
        (message, self.fds.into_iter().map(GivenFd::from).collect())
    }
}

/// A connection, as both ends see it.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) to_coordinator: VecDeque<Parcel>,
    pub(super) to_member: VecDeque<Parcel>,
    pub(super) is_open_at_member: bool,
    pub(super) is_open_at_coordinator: bool,
}

impl Connection {
    pub(super) fn new() -> Connection {
        Connection {
            to_coordinator: VecDeque::new(),
            to_member: VecDeque::new(),
            is_open_at_member: true,
            is_open_at_coordinator: true,
        }
    }

    /// Loses some of what was said last, in both directions. The rest can still be read.
    pub(super) fn lose_some(&mut self, rng: &mut Rng) {
        for queue in [&mut self.to_coordinator, &mut self.to_member] {
            let kept = rng.below(queue.len() + 1);
            queue.truncate(kept);
        }
    }
}
