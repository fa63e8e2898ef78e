//! Receiving: one record in, checked, and what changes because of it.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tollfree_events::{SessionEvent, Side, Text};
use tollfree_kill_points::{Point, here};
use tollfree_layout::frame::{events, flags};
use tollfree_layout::limits::METHOD_PATH_LEN_MAX;
use tollfree_layout::metadata;
use tollfree_layout::{AreaIdx, MethodIdx, StreamId};

use crate::batch;
use crate::buffer::message_buffer;
use crate::credit::charge;
use crate::ending::stop;
use crate::error::Violation;
use crate::frame::Frame;
use crate::incoming::{Chunk, End};
use crate::session::{UNAVAILABLE, Unseen, mark};
use crate::single_frame::SingleFrame;
use crate::stream::{Inbox, Stream, Watched};
use crate::stream_state::{ChunkHead, OutOfOrder, StreamState};
use crate::{GRPC_PREFIX_LEN, Inbound, Role, Session};

/// What the transport must do about the session's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AreaEvent {
    /// The peer made an area; its fd comes over the socket. Map it and [`answer`](Session::answer_area).
    Offered {
        /// Its index.
        area: AreaIdx,
        /// Its length in bytes, unchecked.
        len: u32,
    },
    /// The peer has mapped the area offered.
    Accepted(AreaIdx),
    /// The peer could not map the area offered.
    Refused(AreaIdx),
    /// The peer will not refer to its area again: unmap it.
    Dropped(AreaIdx),
}

/// What a record was about, beyond what the session keeps to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Streams: see [`Session::next_ready`] and [`Session::accept`].
    Frame,
    /// Payload areas.
    Area(AreaEvent),
    /// The peer has ended the session.
    Closed,
}

impl<T: Watched> Session<T> {
    /// Takes one record that the peer has sent.
    ///
    /// # Errors
    /// A [`Violation`], which is also latched as the reason of the session's end.
    pub fn receive(&mut self, record: &impl Inbound) -> Result<Received, Violation> {
        if self.closed.is_some() {
            return Ok(Received::Closed);
        }
        let received = self.receive_frame(record);
        received.map_err(|violation| self.violation(violation))
    }

    #[inline]
    fn receive_frame(&mut self, record: &impl Inbound) -> Result<Received, Violation> {
        let frame = Frame::fetch(record, self.role.peer(), self.segmented_messages.agreed)?;
        let id = StreamId(frame.stream);
        self.recording.log().received(&frame);
        match frame.events {
            events::CONTROL => return self.receive_control(&frame, record),
            events::CREDIT => self.receive_credit(id, u64::from(frame.chunk_len))?,
            events::DRAIN => self.receive_drain(frame.stream)?,
            events::CANCEL => self.receive_cancel(&frame)?,
            _ if frame.has(events::HEADERS) && self.role == Role::Server => {
                self.receive_opening(&frame, record)?
            }
            _ => self.receive_events(&frame, record)?,
        }
        Ok(Received::Frame)
    }

    /// A frame may be for a stream that has ended here; never for one that was not opened.
    fn check_id(&self, stream: u64) -> Result<(), Violation> {
        if stream == 0 || stream > self.last_id {
            return Err(Violation::StreamId { stream, expected: self.last_id + 1 });
        }
        Ok(())
    }

    fn receive_opening(&mut self, frame: &Frame, record: &impl Inbound) -> Result<(), Violation> {
        let expected = self.last_id + 1;
        if frame.stream != expected {
            return Err(Violation::StreamId { stream: frame.stream, expected });
        }
        let id = StreamId(frame.stream);
        let affordable = charge(frame.chunk_len as usize) <= self.recv_credit.min(self.local.stream_window);
        let (mut whole, mut block) = (None, Bytes::new());
        if frame.is_whole_request() && affordable {
            whole = Some(SingleFrame::copy(frame, record, self.local.metadata_len_max)?);
        } else {
            block = copy_out(record, frame.headers_at(), frame.headers_len);
        }
        let path = self.receive_method(frame, &mut block)?;
        check_block(&block, self.local.metadata_len_max)?;
        self.last_id = expected;
        if self.drain.is_some() {
            // The client learns from DRAIN that this call was not looked at; its bytes count all the same.
            return self.receive_for_nobody(frame, record);
        }
        if self.live_count >= self.stream_count_max {
            return Err(Violation::StreamCount { max: self.stream_count_max });
        }
        // Calls that a client opens and cancels faster than they are forgotten here must not pile up.
        if self.streams.len() >= 2 * self.stream_count_max as usize {
            self.push_cancel(id, UNAVAILABLE, flags::REFUSED);
            return self.receive_for_nobody(frame, record);
        }
        self.live_count += 1;
        let (send, recv) = (self.peer.stream_window, self.local.stream_window);
        let log = self.recording.log().of(id);
        let stream =
            self.streams.insert_with(id, || Stream::new(StreamState::opened_by_peer(log), send, recv));
        let is_whole = whole.is_some();
        if let Some(whole) = whole {
            // Nothing has come before that could be unfinished.
            let _ = stream.state.on_half_close(log);
            stream.recv_credit -= charge(frame.chunk_len as usize);
            stream.inbox = Inbox::Whole(whole);
            stream.end = Some(End::HalfClosed);
            mark(&mut self.ready, id, stream, true, false);
        } else {
            stream.headers = Some(block);
        }
        let method = Some(MethodIdx(frame.code)).filter(|idx| self.methods.path(*idx).is_some());
        if self.recording.is_on() {
            let interned = method.and_then(|method| self.methods.path(method));
            let path = Text::new(path.as_ref().or(interned).map_or(&[][..], |path| path));
            self.recording.record(|| SessionEvent::Call { stream: id.0, path });
        }
        let deadline_ns = frame.deadline_ns(record);
        self.unseen.push_back(Unseen { id, method, deadline_ns, path: path.map(Box::new) });
        if is_whole { self.charge_session(frame) } else { self.receive_rest(frame, record) }
    }

    /// The path of the method that a call names, unless it is interned; splits it off the headers block where it is
    /// spelled out.
    fn receive_method(&mut self, frame: &Frame, block: &mut Bytes) -> Result<Option<Bytes>, Violation> {
        let known = self.methods.count();
        if !frame.flag(flags::NAMES_METHOD) {
            if usize::from(frame.code) < known {
                return Ok(None);
            }
            return Err(Violation::MethodIdx { idx: frame.code, known });
        }
        if block.len() < 2 {
            return Err(Violation::MethodPath { len: 0 });
        }
        let len = usize::from(u16::from_le_bytes([block[0], block[1]]));
        if len == 0 || len > METHOD_PATH_LEN_MAX || block.len() < 2 + len {
            return Err(Violation::MethodPath { len });
        }
        // The table outlives the call: it must not keep the whole block.
        let path = Bytes::copy_from_slice(&block[2..2 + len]);
        block.advance(2 + len);
        let next = self.methods.next_index(len);
        if next == Some(MethodIdx(frame.code)) {
            self.methods.named_by_peer(path);
            return Ok(None);
        }
        if frame.code != u16::MAX || next.is_some() {
            return Err(Violation::MethodIdx { idx: frame.code, known });
        }
        Ok(Some(path))
    }

    /// HEADERS, MESSAGE, HALF_CLOSE, TRAILERS on a stream that exists, or did.
    fn receive_events(&mut self, frame: &Frame, record: &impl Inbound) -> Result<(), Violation> {
        self.check_id(frame.stream)?;
        self.segmented_messages.heard_of(frame.stream);
        let id = StreamId(frame.stream);
        let Some(stream) = self.streams.get_mut(id).filter(|stream| stream.is_live()) else {
            return self.receive_for_nobody(frame, record);
        };
        let cost = charge(frame.chunk_len as usize);
        if frame.is_whole_answer()
            && stream.state.awaits_headers()
            && cost <= self.recv_credit.min(stream.recv_credit)
        {
            stream.inbox = Inbox::Whole(SingleFrame::copy(frame, record, self.local.metadata_len_max)?);
            // The trailers themselves are in the whole.
            let end = End::Trailers { code: 0, block: Bytes::new() };
            let stopped = stop(
                stream,
                id,
                end,
                true,
                &mut self.ready,
                &mut self.segmented_messages,
                self.recording.log(),
            );
            self.charge_session(frame)?;
            self.stopped(&stopped);
            return Ok(());
        }
        if frame.has(events::HEADERS) {
            let order = Violation::Order { event: "HEADERS", stream: id.0 };
            stream.state.on_headers(self.recording.log().of(id)).map_err(|OutOfOrder| order)?;
            let block = copy_out(record, frame.headers_at(), frame.headers_len);
            check_block(&block, self.local.metadata_len_max)?;
            stream.headers = Some(block);
        }
        self.receive_rest(frame, record)
    }

    /// What follows the headers in a frame.
    fn receive_rest(&mut self, frame: &Frame, record: &impl Inbound) -> Result<(), Violation> {
        let id = StreamId(frame.stream);
        if frame.has(events::MESSAGE) {
            self.receive_chunk(frame, record)?;
        }
        let Some(stream) = self.streams.get_mut(id) else { return Ok(()) };
        if frame.has(events::HALF_CLOSE) {
            let order = Violation::Order { event: "HALF_CLOSE", stream: id.0 };
            stream.state.on_half_close(self.recording.log().of(id)).map_err(|OutOfOrder| order)?;
            stream.end = Some(End::HalfClosed);
        }
        if frame.has(events::TRAILERS) {
            let order = Violation::Order { event: "TRAILERS", stream: id.0 };
            stream.state.on_trailers(frame.code).map_err(|OutOfOrder| order)?;
            let block = copy_out(record, frame.trailers_at(), frame.trailers_len);
            check_block(&block, self.local.metadata_len_max)?;
            self.end_stream(id, End::Trailers { code: frame.code, block });
            return Ok(());
        }
        mark(&mut self.ready, id, stream, true, false);
        Ok(())
    }

    fn receive_chunk(&mut self, frame: &Frame, record: &impl Inbound) -> Result<(), Violation> {
        let id = StreamId(frame.stream);
        self.charge_session(frame)?;
        let stream = self.streams.get_mut(id).expect("the caller has looked it up");
        if !stream.state.awaits_messages() {
            return Err(Violation::Order { event: "MESSAGE", stream: id.0 });
        }
        let len = frame.chunk_len as usize;
        let cost = charge(len);
        stream.recv_credit =
            stream.recv_credit.checked_sub(cost).ok_or(Violation::Overdrawn { stream: id.0 })?;
        let misfit = Violation::Chunk { stream: id.0, chunk_len: frame.chunk_len };
        if frame.is_batch(self.role.peer()) {
            return receive_batch(stream, frame, record);
        }
        let first = frame.flag(flags::FIRST);
        let last = frame.flag(flags::LAST);
        let begins = first.then_some(frame.message_len);
        let head = ChunkHead { begins, len: frame.chunk_len, is_last: last };
        let after = stream.state.on_chunk(head, self.recording.log().of(id)).map_err(|OutOfOrder| misfit)?;
        // The sender would stop until somebody has read this much: it need not, where there is a reserve.
        let is_short = first && u64::from(after) > stream.recv_credit && !stream.is_short;
        stream.is_short |= is_short;
        if is_short {
            self.short.push_back(id);
            self.lend();
        }
        let stream = self.streams.get_mut(id).expect("it was there");
        let mut bytes = match stream.room.take() {
            // Room is kept only within a message.
            Some(room) if room.capacity() >= len => *room,
            // No more than the peer may send before anybody has read this, whatever it says that it will.
            _ => {
                let rest = u64::from(after).min(stream.recv_credit) as usize;
                message_buffer(len + if first { GRPC_PREFIX_LEN } else { 0 } + rest)
            }
        };
        if first {
            bytes.put_u8(frame.prefix());
            bytes.put_u32(frame.message_len);
        }
        append_chunk(frame, record, &mut bytes)?;
        let segmented = frame.flag(flags::SEGMENTED).then(|| self.segmented_messages.received());
        if !last {
            let room = bytes.split_off(bytes.len());
            stream.room = Some(Box::new(room)).filter(|room| room.capacity() > 0);
        }
        stream.inbox.push(Chunk { bytes, first, last, batch_count: 0, segmented });
        Ok(())
    }

    fn charge_session(&mut self, frame: &Frame) -> Result<(), Violation> {
        let cost = charge(frame.chunk_len as usize);
        self.recv_credit = self.recv_credit.checked_sub(cost).ok_or(Violation::Overdrawn { stream: 0 })?;
        self.grant_session();
        Ok(())
    }

    /// A chunk of a stream that has ended: only its cost matters, and that is given back at once, as are a segmented message's parts
    /// and the room in a payload area.
    fn receive_for_nobody(&mut self, frame: &Frame, record: &impl Inbound) -> Result<(), Violation> {
        if frame.has(events::MESSAGE) {
            if frame.flag(flags::IN_AREA) {
                record.pass_over_area();
            }
            self.charge_session(frame)?;
            self.owe_session(charge(frame.chunk_len as usize));
            if frame.flag(flags::SEGMENTED) {
                let segmented = self.segmented_messages.received();
                self.segmented_messages.take(segmented);
            }
        }
        Ok(())
    }

    fn receive_credit(&mut self, id: StreamId, amount: u64) -> Result<(), Violation> {
        here(Point::CreditTaken);
        let overflow = Violation::CreditOverflow { stream: id.0 };
        if id == StreamId::SESSION {
            self.send_credit = self.send_credit.checked_add(amount).ok_or(overflow)?;
            self.recording.record(|| SessionEvent::Credit { by: Side::Peer, stream: 0, amount });
            if std::mem::take(&mut self.session_is_short) {
                for (id, stream) in self.streams.iter_mut() {
                    if std::mem::take(&mut stream.wants_credit) {
                        mark(&mut self.ready, id, stream, false, true);
                    }
                }
            }
            return Ok(());
        }
        self.check_id(id.0)?;
        if let Some(stream) = self.streams.get_mut(id) {
            stream.send_credit = stream.send_credit.checked_add(amount).ok_or(overflow)?;
            self.recording.record(|| SessionEvent::Credit { by: Side::Peer, stream: id.0, amount });
            if std::mem::take(&mut stream.wants_credit) {
                mark(&mut self.ready, id, stream, false, true);
            }
        }
        Ok(())
    }

    fn receive_drain(&mut self, last: u64) -> Result<(), Violation> {
        if last > self.last_id || self.drain.is_some_and(|before| last > before) {
            return Err(Violation::StreamId { stream: last, expected: self.last_id + 1 });
        }
        self.drain = Some(last);
        self.recording.record(|| SessionEvent::Draining { by: Side::Peer, last });
        here(Point::DrainTaken);
        let refused: Vec<StreamId> = self.streams.ids().filter(|id| id.0 > last).collect();
        for id in refused {
            self.end_stream(id, End::Cancelled { code: UNAVAILABLE, refused: true });
        }
        Ok(())
    }

    fn receive_cancel(&mut self, frame: &Frame) -> Result<(), Violation> {
        self.check_id(frame.stream)?;
        let id = StreamId(frame.stream);
        if self.streams.get(id).is_some_and(|stream| stream.is_live()) {
            let refused = frame.flag(flags::REFUSED);
            self.end_stream(id, End::Cancelled { code: frame.code, refused });
        }
        Ok(())
    }
}

/// Appends a frame's chunk, wherever it lies.
fn append_chunk(frame: &Frame, record: &impl Inbound, bytes: &mut BytesMut) -> Result<(), Violation> {
    let len = frame.chunk_len as usize;
    if frame.flag(flags::IN_AREA) {
        let outside = Violation::AreaRange { stream: frame.stream };
        let (area, at) = frame.area_range(record).ok_or(outside)?;
        record.append_area(area, at, len, bytes).map_err(|_| outside)?;
    } else {
        record.append_to(frame.chunk_at(), len, bytes);
    }
    Ok(())
}

/// Several messages in one frame, copied before their prefixes are looked at.
fn receive_batch<T>(stream: &mut Stream<T>, frame: &Frame, record: &impl Inbound) -> Result<(), Violation> {
    let misfit = Violation::Chunk { stream: frame.stream, chunk_len: frame.chunk_len };
    stream.state.on_whole_messages().map_err(|OutOfOrder| misfit)?;
    let mut bytes = BytesMut::with_capacity(frame.chunk_len as usize);
    append_chunk(frame, record, &mut bytes)?;
    if !batch::holds(&bytes, frame.message_len, frame.flag(flags::OBJECT)) {
        return Err(misfit);
    }
    stream.inbox.push(Chunk {
        bytes,
        first: true,
        last: true,
        batch_count: frame.message_len,
        segmented: None,
    });
    Ok(())
}

/// A private copy of part of a record, in an allocation of just that length.
pub(crate) fn copy_out(record: &impl Inbound, at: usize, len: usize) -> Bytes {
    if len == 0 {
        return Bytes::new();
    }
    let mut bytes = BytesMut::with_capacity(len);
    record.append_to(at, len, &mut bytes);
    bytes.freeze()
}

pub(crate) fn check_block(block: &[u8], max: usize) -> Result<(), Violation> {
    if block.len() > max {
        return Err(Violation::MetadataLen { len: block.len(), max });
    }
    for pair in metadata::pairs(block) {
        pair?;
    }
    Ok(())
}
