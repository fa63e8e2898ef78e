//! A process that is a member, as a simulation has it.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tollfree_layout::MemberIdx;
use tollfree_layout::pool::{PoolMessage, REF_LEN};
use tollfree_region::Origin;

use crate::config::{Config, WhenShort};
use crate::error::{FetchFault, RefError};
use crate::handshake::Known;
use crate::inner::{Fetch, Inner};
use crate::link::Link;
use crate::member_protocol::MemberProtocol;
use crate::membership::DeskIdx;
use crate::refs::Ref;

/// Bytes that are held, and what they have to be.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) bytes: Ref,
    pub(super) expected: Arc<[u8]>,
}

impl Kept {
    pub(super) fn is_unchanged(&self) -> bool {
        self.bytes[..] == self.expected[..]
    }
}

/// Its way to the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Down,
    /// It has said JOIN.
    Greeting(DeskIdx),
    Up(DeskIdx),
}

/// How it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Here,
    /// It connects no more, as after exec.
    CutOff,
    /// It has dropped its pool; its process goes on.
    Left,
    /// Its process has ended.
    Dead,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) inner: Option<Arc<Inner>>,
    pub(super) member_protocol: MemberProtocol,
    pub(super) known: Known,
    pub(super) line: Line,
    pub(super) life: Life,
    pub(super) held: Vec<Kept>,
}

impl Member {
    pub(super) fn new(welcome: &PoolMessage, desk: DeskIdx) -> Member {
        let link = Arc::new(Link::new().expect("an eventfd"));
        let config = Config {
            when_short: WhenShort::Fail,
            low_watermark: 0,
            high_watermark: 0,
            reader_limit: None,
            patience: Duration::ZERO,
        };
        let origin = Origin::current().expect("a page to notice forks");
        Member {
            inner: Some(Arc::new(Inner::new(welcome, config, origin, link.clone()))),
            member_protocol: MemberProtocol::new(link),
            known: Known { pool: welcome.pool, member: welcome.member(), secret: welcome.secret },
            line: Line::Up(desk),
            life: Life::Here,
            held: Vec::new(),
        }
    }

    pub(super) fn number(&self) -> MemberIdx {
        self.known.member
    }

    /// Whether its process runs and has the pool.
    pub(super) fn is_in(&self) -> bool {
        matches!(self.life, Life::Here | Life::CutOff)
    }

    pub(super) fn inner(&self) -> Arc<Inner> {
        self.inner.clone().expect("it is in the pool")
    }
}

/// A ref on its way from one member to another. Its sender holds the block until it has arrived.
#[derive(Debug)]
pub(super) struct RefLetter {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) kept: Kept,
    pub(super) wire: [u8; REF_LEN],
    pub(super) fetch: Option<Arc<Fetch>>,
    /// So often it couldn't be had.
    pub(super) failed_count: u32,
}

/// How far a ref has come.
#[derive(Debug)]
pub(super) enum Taken {
    Held(Ref),
    NotYet,
    Failed(RefError),
}

impl RefLetter {
    pub(super) fn owner(&self) -> MemberIdx {
        MemberIdx(u32::from_le_bytes(self.wire[16..20].try_into().expect("four bytes")))
    }

    /// What its receiver does as it is woken: as `Pool::fetch`, one step.
    pub(super) fn take(&mut self, inner: &Arc<Inner>) -> Taken {
        if let Some(fetch) = &self.fetch {
            match fetch.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => return Taken::NotYet,
                Poll::Ready(Ok(())) => self.fetch = None,
                Poll::Ready(Err(fault)) => {
                    self.fetch = None;
                    return Taken::Failed(RefError::from(FetchFault::clone(&fault)));
                }
            }
        }
        match inner.try_map(&self.wire) {
            Ok(bytes) => Taken::Held(bytes),
            Err(RefError::NotHere) => match inner.fetch(&self.wire) {
                Ok(fetch) => {
                    self.fetch = Some(fetch);
                    Taken::NotYet
                }
                Err(error) => Taken::Failed(error),
            },
            Err(error) => Taken::Failed(error),
        }
    }
}
