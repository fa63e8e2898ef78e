//! Ring records and session frames from a hostile peer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use tollfree_layout::control::CONSUMED_OFF;
use tollfree_layout::limits::PAGE_LEN;
use tollfree_layout::record::head_word;
use tollfree_layout::{AreaIdx, ByteOff, StreamId};
use tollfree_region::{HeapMemory, WriteMemory};
use tollfree_ring::{Geometry, RecordRead, RecordReceiver, RecordSender, RingReceiver, RingSender};
use tollfree_session::{
    AreaFault, End, Ending, Full, Inbound, Incoming, Limits, Opening, Outbound, Outgoing, OutgoingMessage,
    Progress, Role, Session, Violation,
};

const RING_LEN: usize = 4096;

/// Reads a ring whose words the peer has written as it likes, and writes one whose reader's cursor it forges. Each step
/// of the input is a place and a word; a place's high bit makes the word a well-formed head for the receiver's position.
pub fn ring(data: &[u8]) {
    let geometry = Geometry::new(PAGE_LEN, RING_LEN).expect("a power of two");
    let memory = || Arc::new(HeapMemory::new(geometry.end()));
    let (own, peer) = (memory(), memory());
    let mut receiver = RingReceiver::new(own.clone(), peer.clone(), geometry);
    let mut sender = RingSender::new(own, peer.clone(), geometry);
    let mut reason = None;
    for step in data.chunks_exact(10) {
        let (place, word) = step.split_at(2);
        let place = u16::from_le_bytes([place[0], place[1]]);
        let mut forged = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        let mut off = usize::from(place & 0x1ff) * 8;
        if place & 0x8000 != 0 {
            forged = head_word(receiver.pos(), forged as u32);
            off = PAGE_LEN + (receiver.pos().0 as usize * 64) % RING_LEN;
        } else if place & 0x4000 != 0 {
            off = CONSUMED_OFF;
        } else {
            off += PAGE_LEN;
        }
        peer.store_u64(off, forged, Ordering::Relaxed);
        match receiver.peek() {
            Ok(Some(record)) => {
                assert!(record.len() <= geometry.record_len_max());
                let mut copy = vec![0; record.len()];
                record.read(0, &mut copy);
                receiver.advance();
                if place & 0x2000 != 0 {
                    receiver.release();
                }
            }
            Ok(None) => assert!(reason.is_none(), "a violation stays"),
            Err(violation) => {
                assert_eq!(*reason.get_or_insert(violation), violation, "the first violation stays");
            }
        }
        assert!(receiver.unreleased_lines() <= RING_LEN / 64);
        if sender.stage(&[&forged.to_le_bytes()[..usize::from(place % 9)]]).is_ok() {
            sender.publish();
        }
    }
}

const LIMITS: Limits =
    Limits { stream_window: 4096, session_window: 20_000, stream_count: 4, metadata_len_max: 200 };

/// A record of the input, beside an area of which only the first 16 KiB exist.
struct Forged<'d>(&'d [u8]);

impl Inbound for Forged<'_> {
    fn record_len(&self) -> usize {
        self.0.len()
    }

    fn read(&self, at: usize, dst: &mut [u8]) {
        dst.copy_from_slice(&self.0[at..at + dst.len()]);
    }

    fn append_to(&self, at: usize, len: usize, dst: &mut BytesMut) {
        dst.extend_from_slice(&self.0[at..at + len]);
    }

    fn append_area(
        &self,
        area: AreaIdx,
        at: ByteOff,
        len: usize,
        dst: &mut BytesMut,
    ) -> Result<(), AreaFault> {
        const AREA_LEN: usize = 16_384;
        let end = (at.0 as usize).checked_add(len);
        if area != AreaIdx(0) || end.is_none_or(|end| end > AREA_LEN) {
            return Err(AreaFault);
        }
        dst.resize(dst.len() + len, 7);
        Ok(())
    }

    fn pass_over_area(&self) {}
}

/// Takes every record, and keeps none.
struct Sent;

impl Outbound for Sent {
    fn record_len_max(&self) -> usize {
        4024
    }

    fn stage(&mut self, _: &[&[u8]]) -> Result<(), Full> {
        Ok(())
    }

    fn area_chunk_max(&mut self, _: usize) -> usize {
        0
    }

    fn fill_in_area(&mut self, _: usize, _: impl FnOnce(&mut [u8])) -> Option<(AreaIdx, ByteOff)> {
        None
    }

    fn take_back(&mut self) {}
}

/// Feeds a session the records of the input, each behind its length in two bytes. The first byte says which side the
/// session is, and whether what arrives is read after each record and answered; a client has two calls open, one of which says more. The first violation stays; what the session keeps stays within its limits.
pub fn session(data: &[u8]) {
    violation_by(data);
}

/// The violation that an input of [`session`] commits, if it commits one.
pub fn violation_by(data: &[u8]) -> Option<Violation> {
    let (first, mut rest) = data.split_first()?;
    let role = if first & 1 == 0 { Role::Server } else { Role::Client };
    let mut session: Session<()> = Session::new(role, LIMITS, LIMITS).with_segmented(first & 4 != 0);
    let mut calls = Vec::new();
    if role == Role::Client {
        for ending in [Some(Ending::HalfClose), None] {
            let mut outgoing = Outgoing { ending, ..Outgoing::default() };
            let opening = Opening { path: "/a.B/C", deadline_ns: 0 };
            let opened = session.open(&mut Sent, opening, &mut outgoing).expect("it may");
            calls.push(opened.expect("there is room for a call"));
        }
    }
    let mut reason = None;
    while let Some((len, more)) = rest.split_first_chunk::<2>() {
        let (record, more) = more.split_at(usize::from(u16::from_le_bytes(*len)).min(more.len()));
        rest = more;
        let received = session.receive(&Forged(record));
        if let Err(violation) = received {
            assert!(reason.replace(violation).is_none(), "a session ends once");
        }
        assert!(reason.is_none() || session.closed().is_some(), "a violation closes the session");
        assert!(session.live_count() <= LIMITS.stream_count);
        assert!(session.stream_count() <= 2 * LIMITS.stream_count as usize);
        if first & 2 != 0 {
            take_all(&mut session, &mut calls);
        }
    }
    take_all(&mut session, &mut calls);
    reason
}

/// Reads what has come on each call, and answers those that have said everything, as the transport does.
fn take_all(session: &mut Session<()>, calls: &mut Vec<StreamId>) {
    while let Some(accepted) = session.accept() {
        calls.push(accepted.id);
    }
    while session.next_ready().is_some() {}
    calls.retain(|id| !is_over(session, *id));
    session.stage_pending(&mut Sent).expect("there is room");
}

/// Whether a call is over, and the session has forgotten it.
fn is_over(session: &mut Session<()>, id: StreamId) -> bool {
    let mut taken = 0;
    while let Some(incoming) = session.take(id) {
        taken += 1;
        assert!(taken < 100_000, "a stream does not end");
        if let Incoming::Request(whole) | Incoming::Answer(whole) = &incoming {
            assert!(whole.message().len() <= LIMITS.stream_window as usize);
            assert!(whole.headers().len().max(whole.trailers().len()) <= LIMITS.metadata_len_max);
        }
        let incoming = incoming.into_part();
        if let Some(segmented) = incoming.chunk.as_ref().and_then(|chunk| chunk.segmented) {
            session.take_segmented(segmented);
        }
        match incoming.end {
            Some(_) if incoming.forgotten => return true,
            Some(End::HalfClosed) => return answer(session, id),
            Some(end) => panic!("{id} has ended by {end:?}, and is not forgotten"),
            None => {}
        }
    }
    false
}

fn answer(session: &mut Session<()>, id: StreamId) -> bool {
    let ending = Some(Ending::Trailers { code: 0, block: Bytes::new() });
    let message = Some(OutgoingMessage::new(Bytes::from_static(b"answer"), false));
    let mut outgoing = Outgoing { headers: Some(Bytes::new()), message, ending };
    let staged = session.send(&mut Sent, id, &mut outgoing);
    assert!(staged.is_ok(), "{id} is open: {staged:?}");
    // Without credit the answer does not go out, and the call is let go of.
    assert_eq!(session.settle(id), staged == Ok(Progress::Done), "an answered call that was read is over");
    session.forget(id, 1);
    true
}
