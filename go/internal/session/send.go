package session

import (
	"encoding/binary"
	"fmt"

	"github.com/tollfree/tollfree/go/internal/ring"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// inlineLenMax is up to where a chunk is better sent in the record than in a payload area.
const inlineLenMax = 8192

// An Opening is how a client begins a call.
type Opening struct {
	// Path has 1 to wire.MethodPathLenMax bytes.
	Path string
	// DeadlineNS is on this side's clock; 0: none.
	DeadlineNS uint64
	// Headers is a block of metadata.
	Headers []byte
}

// CheckOpening says why a call can never be opened so: an error of the application.
func (s *Session) CheckOpening(opening *Opening, recordLenMax int) error {
	if n := len(opening.Path); n == 0 || n > wire.MethodPathLenMax {
		return fmt.Errorf("method %q: a path of %d bytes; 1 to %d can be sent", wire.CutText(opening.Path, 64), n, wire.MethodPathLenMax)
	}
	return s.checkSent(opening.Headers, recordLenMax-wire.FrameHeadLen-wire.DeadlineLen-2-len(opening.Path))
}

// CheckHeaders and CheckTrailers say why a block can never be sent.
func (s *Session) CheckHeaders(block []byte, recordLenMax int) error {
	return s.checkSent(block, recordLenMax-wire.FrameHeadLen)
}

func (s *Session) checkSent(block []byte, room int) error {
	if most := min(s.peer.MetadataLenMax, room); len(block) > most {
		return fmt.Errorf("metadata of %d bytes; the peer and its ring take %d", len(block), most)
	}
	return nil
}

// Open begins a call with an opening that CheckOpening lets pass. What of the message, if there is one, doesn't go along is sent by
// Flush.
// false: there is no room now, or too many calls are under way, and nothing was done; the caller asks again then.
func (s *Session) Open(out Outbound, st *Stream, opening *Opening, message *Message, last bool) bool {
	// A CANCEL that waits makes place for this call at the server: it must get there first.
	if !s.flushPending(out) || !s.MayOpen() {
		return false
	}
	builder := builder{
		head:  wire.Head{Events: wire.Headers, Stream: s.lastID + 1, HeadersLen: uint16(len(opening.Headers))},
		fixed: wire.FrameHeadLen + len(opening.Headers), headers: opening.Headers, opens: true,
	}
	index, known := s.methods.byPath[opening.Path]
	interns := false
	if !known {
		if index, interns = s.methods.next(len(opening.Path)); !interns {
			index = wire.MethodNotInterned
		}
		builder.head.Flags |= wire.NamesMethod
		builder.path = opening.Path
		builder.head.HeadersLen += 2 + uint16(len(opening.Path))
		builder.fixed += 2 + len(opening.Path)
	}
	builder.head.Code = index
	if opening.DeadlineNS != 0 {
		builder.head.Flags |= wire.HasDeadline
		builder.deadlineNS = opening.DeadlineNS
		builder.fixed += wire.DeadlineLen
	}
	s.begin(st, builder.head.Stream)
	if message != nil {
		st.out.add(*message)
	}
	if last {
		st.out.ending = halfClose
	}
	staged := s.stage(out, st, &builder)
	if staged != sent {
		s.streams.remove(st)
		s.live--
		st.out = outbox{}
		st.id = 0
		return false
	}
	s.lastID = builder.head.Stream
	if interns {
		s.methods.named(opening.Path)
	}
	if !st.out.empty() {
		s.enqueue(st)
	}
	return true
}

// Send has a message sent, behind those before.
func (s *Session) Send(st *Stream, message Message, last bool) {
	st.out.add(message)
	if last {
		st.out.ending = halfClose
	}
	s.enqueue(st)
}

// SendShort has a message sent, of buffers.SmallMax bytes at most, which the caller may change afterwards.
func (s *Session) SendShort(st *Stream, message []byte, last bool) {
	st.out.addShort(message)
	if last {
		st.out.ending = halfClose
	}
	s.enqueue(st)
}

// SendHeaders has a server's headers sent, a block that CheckHeaders lets pass.
func (s *Session) SendHeaders(st *Stream, block []byte) {
	st.out.headers, st.out.hasHeaders = block, true
	s.enqueue(st)
}

// HalfClose has a client say that no more messages come.
func (s *Session) HalfClose(st *Stream) {
	st.out.ending = halfClose
	s.enqueue(st)
}

// Finish has a server say its last word, behind the messages that wait.
func (s *Session) Finish(st *Stream, code uint16, block []byte) {
	st.out.ending, st.out.code, st.out.block = trailers, code, block
	s.enqueue(st)
}

// Abort has a server say its last word at once, with a status other than OK: what waits is dropped.
func (s *Session) Abort(st *Stream, code uint16, block []byte) {
	headers, has := st.out.headers, st.out.hasHeaders
	st.out.drop()
	st.out.headers, st.out.hasHeaders = headers, has
	s.Finish(st, code, block)
}

// SaidHeaders says whether headers were sent, or wait to be.
func (st *Stream) SaidHeaders() bool { return st.out.hasHeaders || !st.state.MaySay(SaidHeaders) }

// Flush sends what there is room and credit for, small frames first. false: something waits for room.
func (s *Session) Flush(out Outbound) bool {
	if s.closed != nil || !s.flushPending(out) {
		return s.closed != nil
	}
	for s.queue.Len() > 0 || s.segmented.answering() {
		if s.segmented.answering() {
			if !s.segmented.answer(out) {
				return false
			}
			s.loud = true
		}
		if s.queue.Len() == 0 {
			continue
		}
		st := *s.queue.First()
		result := sent
		if st.state.Live() && !st.out.empty() {
			result = s.sendFrame(out, st)
		}
		if result == needsRoom {
			return false
		}
		s.queue.Pop()
		st.queued = false
		switch {
		case !st.state.Live() || st.out.empty():
		case result == needsCredit:
			st.wantsCredit = true
			s.short = s.short || s.sendCredit < uint64(s.crumb)+wire.ChunkCharge
		default:
			// Others have their turn before the rest.
			s.enqueue(st)
		}
	}
	return true
}

func (s *Session) flushPending(out Outbound) bool {
	for s.pending.Len() > 0 {
		place, ok := out.Begin(wire.FrameHeadLen)
		if !ok {
			return false
		}
		head := s.pending.Pop()
		bytes := head.Encode()
		place.Put(bytes[:])
		s.loud = s.loud || head.Events != wire.Control || head.Code != wire.SegmentedTaken
	}
	return true
}

// staging is how far a frame got.
type staging uint8

const (
	sent staging = iota
	needsRoom
	needsCredit
)

// A builder is a frame without its chunk and its end.
type builder struct {
	head wire.Head
	// fixed is the length of head, deadline and headers.
	fixed      int
	opens      bool
	deadlineNS uint64
	path       string
	headers    []byte
}

// put puts what stands before trailers and chunk.
func (d *builder) put(place *ring.Place) {
	bytes := d.head.Encode()
	place.Put(bytes[:])
	if d.head.Flag(wire.HasDeadline) {
		var deadline [wire.DeadlineLen]byte
		binary.LittleEndian.PutUint64(deadline[:], d.deadlineNS)
		place.Put(deadline[:])
	}
	if d.opens && d.head.Flag(wire.NamesMethod) {
		var n [2]byte
		binary.LittleEndian.PutUint16(n[:], uint16(len(d.path)))
		place.Put(n[:])
		place.PutString(d.path)
	}
	place.Put(d.headers)
}

// sendFrame sends the next frame of what waits on a stream.
func (s *Session) sendFrame(out Outbound, st *Stream) staging {
	builder := builder{head: wire.Head{Stream: st.id}, fixed: wire.FrameHeadLen}
	if st.out.hasHeaders {
		builder.head.Events, builder.head.HeadersLen = wire.Headers, uint16(len(st.out.headers))
		builder.fixed += len(st.out.headers)
		builder.headers = st.out.headers
	}
	return s.stage(out, st, &builder)
}

// A cut is what a frame takes of the messages that wait.
type cut struct {
	length int
	// batch, if not 0, is how many messages go together.
	batch  int
	inArea bool
	record ring.Place
	chunk  ring.Place
	at     wire.AreaRange
}

// stage completes a builder with what fits of messages and the end, and puts it into the ring.
func (s *Session) stage(out Outbound, st *Stream, builder *builder) staging {
	box := &st.out
	head := &builder.head
	var cut cut
	has := false
	if len(box.messages) > 0 {
		var credit bool
		cut, has, credit = s.cut(out, st, builder)
		if !has && head.Events == 0 {
			if credit {
				return needsRoom
			}
			return needsCredit
		}
	}
	leaves := false
	if has {
		head.Events |= wire.Message
		head.ChunkLen = uint32(cut.length)
		if cut.batch > 0 {
			head.Flags |= wire.First | wire.Last | wire.Batch
			head.MessageLen = uint32(cut.batch)
			if box.messages[0].Object {
				head.Flags |= wire.Object
			}
			leaves = cut.batch < len(box.messages)
			if first := &box.messages[0]; first.several > 0 {
				leaves = cut.batch < first.several || len(box.messages) > 1
			}
		} else {
			leaves = describe(head, &box.messages[0], cut.length) || len(box.messages) > 1
		}
		if cut.inArea {
			head.Flags |= wire.InArea
		}
	} else {
		leaves = len(box.messages) > 0
	}
	ends := false
	total := builder.fixed + cut.length
	if cut.inArea {
		total = builder.fixed + wire.AreaRangeLen
	}
	if !leaves {
		switch {
		case box.ending == halfClose:
			ends = true
			head.Events |= wire.HalfClose
		case box.ending == trailers && total+len(box.block) <= out.RecordLenMax() && !cut.inArea:
			ends = true
			head.Events |= wire.Trailers
			head.Code, head.TrailersLen = box.code, uint16(len(box.block))
			total += len(box.block)
		}
	}
	record := cut.record
	if !cut.inArea {
		var ok bool
		if record, ok = out.Begin(total); !ok {
			return needsRoom
		}
	}
	s.loud = true
	builder.put(&record)
	if head.Has(wire.Trailers) {
		record.Put(box.block)
	}
	if cut.inArea {
		at := cut.at.Encode()
		record.Put(at[:])
		record = cut.chunk
	}
	s.staged(st, builder, &cut, has, ends, &record)
	return sent
}

// describe sets what a head says of a chunk of n bytes, and says whether the message goes on after it.
func describe(head *wire.Head, message *outgoing, n int) (goesOn bool) {
	if message.sent == 0 {
		head.Flags |= wire.First
		head.MessageLen = uint32(message.length)
		if message.Compressed {
			head.Flags |= wire.Compressed
		}
		if message.Object {
			head.Flags |= wire.Object
		}
		if message.SegmentedMessage != nil {
			head.Flags |= wire.Segmented
		}
	}
	if message.sent+n < message.length {
		return true
	}
	head.Flags |= wire.Last
	return false
}

// staged puts the chunk and takes out of the outbox what has been sent.
func (s *Session) staged(st *Stream, builder *builder, cut *cut, has, ends bool, chunk *ring.Place) {
	box := &st.out
	if builder.head.Has(wire.Headers) && !builder.opens {
		st.state.Do(SaidHeaders)
		box.headers, box.hasHeaders = nil, false
	}
	if has {
		cost := uint64(cut.length) + wire.ChunkCharge
		st.sendCredit -= cost
		s.sendCredit -= cost
		st.state.Do(SaidMessage)
		if cut.batch > 0 && box.messages[0].several > 0 {
			box.putSeveral(chunk, cut.batch, cut.length)
		} else if cut.batch > 0 {
			box.putBatch(chunk, cut.batch)
		} else {
			message := &box.messages[0]
			if message.sent == 0 && message.SegmentedMessage != nil {
				s.segmented.goes(message.SegmentedMessage)
				message.SegmentedMessage = nil
			}
			message.put(chunk, cut.length)
			st.state.SaidChunk(message.sent < message.length)
			if message.sent == message.length {
				box.pop()
			}
		}
		if box.bytes < outboxLenMax {
			st.news()
		}
	}
	if !ends {
		return
	}
	if box.ending == halfClose {
		st.state.Do(SaidHalfClose)
		box.ending = goesOn
		return
	}
	code := box.code
	st.state.Do(SaidTrailers)
	s.ended(st, End{Kind: EndSaid, Code: code}, true)
}

// outboxLenMax is how many bytes may wait on a stream before its sender has to.
const outboxLenMax = 65536

// MayAdd says whether one more message may wait.
func (st *Stream) MayAdd() bool { return st.out.bytes < outboxLenMax }

// cut decides how much of the messages that wait the frame takes. has is false where none of them should go along: for want
// of credit, where credit is false, or of room beside the headers.
func (s *Session) cut(out Outbound, st *Stream, builder *builder) (c cut, has, credit bool) {
	affordable := min(st.sendCredit, s.sendCredit)
	if affordable < wire.ChunkCharge {
		return c, false, false
	}
	granted := int(min(affordable-wire.ChunkCharge, 1<<31))
	recordLenMax := out.RecordLenMax()
	room := recordLenMax - builder.fixed
	message := &st.out.messages[0]
	if message.several > 0 {
		if count, length := message.fitting(min(room, granted, batchLenMax)); count > 1 && !builder.opens {
			return cut{length: length, batch: count}, true, true
		}
		st.out.single()
		message = &st.out.messages[0]
	}
	left := message.length - message.sent
	if message.sent == 0 && len(st.out.messages) > 1 && !builder.opens {
		if count, length := st.out.batch(min(room, granted)); count > 1 {
			return cut{length: length, batch: count}, true, true
		}
	}
	granted = min(granted, left)
	if granted < min(left, s.crumb) {
		return c, false, false
	}
	if granted > inlineLenMax {
		if record, chunk, at, ok := out.BeginArea(builder.fixed+wire.AreaRangeLen, granted); ok {
			return cut{length: chunk.Left(), inArea: true, record: record, chunk: chunk, at: at}, true, true
		}
	}
	length := min(room, granted)
	// Headers that leave little room go alone. A ring may be too short for more than crumbs.
	if length < min(left, s.crumb, recordLenMax-wire.FrameHeadLen) {
		return c, false, true
	}
	return cut{length: length}, true, true
}
