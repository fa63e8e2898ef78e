//! The floor: the least that two processes can do to exchange bytes through memory.
//!
//! Two rings, each in a region that its writer created, and a process spinning at each end. No frames, no credits, no
//! checks, no tasks: what any transport adds, it adds to this.
//!
//! # Layout
//! A ring is a row of slots, a slot starts on a cache line of its own:
//!
//! ```text
//! 0        8                       64                     64 + size
//! +--------+-----------------------+----------------------+---------
//! | number | body up to 56 bytes,  | or a longer body     | unused, up to the next line
//! +--------+-----------------------+----------------------+---------
//! ```
//!
//! The number of the record, from 1, is stored last and with release, in the slot's own first line: the reader polls
//! that line and nothing else. A longer body starts on a line, as copying from and to lines is faster. Nobody writes
//! that a slot is free again: with no more records under way than there are slots, the reply says so.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use tollfree_region::{PeerRegion, ReadMemory, Region, WriteMemory};

use crate::latency::Latencies;
use crate::load::body_of;
use crate::order::{Load, Measured, Serve, Serving};
use crate::plan::{Case, Placement};

/// A cache line.
const LINE_LEN: usize = 64;

/// Bytes of the number before the body.
const NUMBER_LEN: usize = 8;

/// A ring larger than this is refused: it would measure main memory.
const RING_LEN_MAX: usize = 1 << 30;

/// Polls before the core is offered to others, where both ends have cores of their own. A reply is there long before,
/// unless the other process lost its core.
pub(super) const PATIENT_POLLS: u32 = 10_000;

/// Sizes that both processes derive from the case.
#[derive(Clone, Copy)]
struct Shape {
    body_len: usize,
    /// Where in its slot the body begins.
    body_at: usize,
    slot_len: usize,
    slot_count: usize,
    polls: u32,
}

impl Shape {
    fn of(case: Case) -> Result<Self, String> {
        let body_at = if NUMBER_LEN + case.size <= LINE_LEN { NUMBER_LEN } else { LINE_LEN };
        let shape = Self {
            body_len: case.size,
            body_at,
            slot_len: (body_at + case.size).next_multiple_of(LINE_LEN),
            slot_count: case.inflight.next_power_of_two().max(2),
            polls: if case.placement == Placement::SameCore { 0 } else { PATIENT_POLLS },
        };
        if shape.ring_len() > RING_LEN_MAX {
            return Err(format!(
                "a ring for {} records of {} bytes would need more than {} MiB",
                case.inflight,
                case.size,
                RING_LEN_MAX >> 20
            ));
        }
        Ok(shape)
    }

    fn ring_len(self) -> usize {
        // A region is a whole number of pages of 4 KiB.
        (self.slot_len * self.slot_count).next_multiple_of(4096)
    }

    fn slot_at(self, number: u64) -> usize {
        (number as usize & (self.slot_count - 1)) * self.slot_len
    }
}

/// Both rings, seen from one end.
pub(crate) struct Ends {
    shape: Shape,
    ours: Region,
    theirs: PeerRegion,
}

impl Ends {
    /// Makes this end's ring and swaps it for the other end's.
    pub(crate) fn exchange(socket: &UnixStream, case: Case) -> Result<Self, String> {
        let shape = Shape::of(case)?;
        let ours = Region::create("tollfree-floor", shape.ring_len())
            .map_err(|error| format!("cannot make the ring: {error}"))?;
        let trouble = |error| format!("cannot exchange the rings: {error}");
        send_fd(socket, &ours).map_err(trouble)?;
        let fd = receive_fd(socket).map_err(trouble)?;
        let theirs = PeerRegion::map(fd, shape.ring_len())
            .map_err(|error| format!("cannot map the other ring: {error}"))?;
        Ok(Self { shape, ours, theirs })
    }

    #[inline]
    pub(crate) fn send(&self, number: u64, body: &[u8]) {
        let at = self.shape.slot_at(number);
        self.ours.copy_in(at + self.shape.body_at, body);
        self.ours.store_u64(at, number, Ordering::Release);
    }

    #[inline]
    pub(crate) fn receive(&self, number: u64, body: &mut [u8]) {
        let at = self.shape.slot_at(number);
        let mut polls_left = self.shape.polls;
        while self.theirs.load_u64(at, Ordering::Acquire) != number {
            if polls_left == 0 {
                std::thread::yield_now();
            } else {
                polls_left -= 1;
                std::hint::spin_loop();
            }
        }
        self.theirs.copy_out(at + self.shape.body_at, body);
    }
}

/// Echoes until the process ends.
pub(super) fn serve(order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), String> {
    let path = order.dir.join("floor.sock");
    let trouble = |error| format!("cannot accept on {}: {error}", path.display());
    let listener = UnixListener::bind(&path).map_err(trouble)?;
    ready(Serving { address: path.display().to_string() });
    let (socket, _) = listener.accept().map_err(trouble)?;
    let ends = Ends::exchange(&socket, order.case)?;
    let mut body = vec![0; ends.shape.body_len];
    for number in 1.. {
        ends.receive(number, &mut body);
        ends.send(number, &body);
    }
    Ok(())
}

/// Keeps as many records under way as the case has calls in flight, and times each from its sending to its reply.
pub(super) fn measure(load: &Load) -> Result<Measured, String> {
    let socket = UnixStream::connect(Path::new(&load.address))
        .map_err(|error| format!("cannot connect to {}: {error}", load.address))?;
    let ends = Ends::exchange(&socket, load.case)?;
    let sent = body_of(load.case.size);
    let mut body = vec![0; sent.len()];
    ends.send(1, &sent);
    ends.receive(1, &mut body);
    if body != sent {
        return Err("the reply is not what was sent".to_owned());
    }

    let inflight = load.case.inflight as u64;
    let from = Instant::now() + load.warm_up;
    let until = from + load.measure;
    let mut ended = until;
    let mut latencies = Latencies::default();
    let mut sent_at = VecDeque::with_capacity(load.case.inflight);
    for number in 2..2 + inflight {
        sent_at.push_back(Instant::now());
        ends.send(number, &body);
    }
    for number in 2.. {
        ends.receive(number, &mut body);
        let now = Instant::now();
        if now >= until {
            if latencies.count() > 0 {
                break;
            }
            // None came back inside the window, which is stretched to the first.
            ended = now;
        }
        ends.send(number + inflight, &body);
        if let Some(began) = sent_at.pop_front()
            && now >= from
        {
            latencies.record(now - began);
        }
        sent_at.push_back(now);
    }
    Ok(Measured {
        latencies,
        used: None,
        elapsed_ns: (ended - from).as_nanos().try_into().unwrap_or(u64::MAX),
    })
}

fn send_fd(socket: &UnixStream, region: &Region) -> std::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [region.fd()];
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(std::io::Error::other("no room for the descriptor"));
    }
    rustix::net::sendmsg(socket.as_fd(), &[IoSlice::new(b"r")], &mut control, SendFlags::empty())?;
    Ok(())
}

fn receive_fd(socket: &UnixStream) -> std::io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let parts = &mut [IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(socket.as_fd(), parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    fds.flatten().next().ok_or_else(|| std::io::Error::other("the other end sent no ring"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Message, RuntimeKind, Side};

    fn case(size: usize, inflight: usize) -> Case {
        let (placement, runtime) = (Placement::SameCore, RuntimeKind::Current);
        Case { side: Side::Floor, message: Message::Probe, size, metadata: 0, inflight, placement, runtime }
    }

    #[test]
    fn a_slot_holds_its_number_and_body_and_shares_no_line() {
        for (size, slot_len) in [(0, 64), (56, 64), (57, 128), (64, 128), (4096, 4160), (65, 192)] {
            assert_eq!(Shape::of(case(size, 1)).unwrap().slot_len, slot_len, "size {size}");
        }
        assert_eq!(Shape::of(case(64, 65)).unwrap().slot_count, 128);
        assert!(Shape::of(case(256 << 20, 64)).is_err());
    }

    #[test]
    fn two_ends_echo_round_the_ring() {
        let (near, far) = UnixStream::pair().unwrap();
        let case = case(100, 3);
        let echo = std::thread::spawn(move || {
            let ends = Ends::exchange(&far, case).unwrap();
            let mut body = vec![0; 100];
            for number in 1..=50 {
                ends.receive(number, &mut body);
                ends.send(number, &body);
            }
        });
        let ends = Ends::exchange(&near, case).unwrap();
        for number in 1..=50 {
            let sent = [number as u8; 100];
            let mut body = [0; 100];
            ends.send(number, &sent);
            ends.receive(number, &mut body);
            assert_eq!(body, sent);
        }
        echo.join().unwrap();
    }
}
