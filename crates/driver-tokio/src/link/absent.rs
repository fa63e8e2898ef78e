//! Without the feature `tls` there is no byte-stream engine: a stand-in that no value can be made of.

use std::convert::Infallible;
use std::sync::Arc;

use tollfree_layout::RingPos;
use tollfree_os::fd::AsFd;
use tollfree_region::Region;
use tollfree_ring::Geometry;
use tollfree_session::Violation;

use crate::remote::RemoteIdentity;
use tollfree_host::SocketEvent;

/// See the engine's.
pub(crate) struct Seed {
    pub(crate) remote: Option<RemoteIdentity>,
    never: Infallible,
}

/// See the engine's.
#[derive(Debug)]
pub(crate) struct Link(Infallible);

impl Link {
    pub(crate) fn new(seed: Seed, _own: Arc<Region>, _own_ring: Geometry) -> Link {
        match seed.never {}
    }

    pub(crate) fn flush(&mut self, _socket: impl AsFd, _published: RingPos) {
        match self.0 {}
    }

    pub(crate) fn unblock(&mut self) {
        match self.0 {}
    }

    pub(crate) fn owes(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn hear(&mut self, _socket: impl AsFd) -> Result<SocketEvent, Violation> {
        match self.0 {}
    }

    pub(crate) fn beat(&mut self, _socket: impl AsFd, _published: RingPos) -> bool {
        match self.0 {}
    }

    pub(crate) fn close(&mut self, _socket: impl AsFd, _published: RingPos) {
        match self.0 {}
    }
}
