package session

import (
	"bytes"
	"encoding/binary"

	"google.golang.org/grpc/mem"

	"github.com/tollfree/tollfree/go/internal/buffers"
	"github.com/tollfree/tollfree/go/internal/ring"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// reasonLenMax is how much of a peer's reason is kept.
const reasonLenMax = 200

// pool holds buffers for chunks. gRPC's default one has nothing between 32 KiB and 1 MiB, where those of payload areas are.
var pool = func() mem.BufferPool {
	pool, err := mem.NewBinaryTieredBufferPool(10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22)
	if err != nil {
		panic(err)
	}
	return pool
}()

// Receive takes one record of the peer's. inArea says that the record refers to a payload area, so that it is to be released
// at once.
//
// Errors: a Violation, after which the caller ends the session.
func (s *Session) Receive(record ring.Record) (inArea bool, err error) {
	if s.closed != nil {
		return false, nil
	}
	if record.Len() < wire.FrameHeadLen {
		return false, violation("frame", "a record of %d bytes, which is shorter than a frame's head", record.Len())
	}
	var encoded [wire.FrameHeadLen]byte
	record.Copy(encoded[:], 0)
	head := wire.DecodeHead(&encoded)
	if err := head.Check(s.role.Peer(), record.Len(), s.segmented != nil); err != nil {
		return false, violation("frame", "%s", err)
	}
	inArea = head.Has(wire.Message) && head.Flag(wire.InArea)
	switch {
	case head.Events == wire.Control:
		err = s.receiveControl(&head, record)
	case head.Events == wire.Credit:
		err = s.receiveCredit(&head)
	case head.Events == wire.Drain:
		err = s.receiveDrain(&head)
	case head.Events == wire.Cancel:
		err = s.receiveCancel(&head)
	case s.role == wire.Server && head.Has(wire.Headers):
		err = s.receiveOpening(&head, record)
	default:
		err = s.receiveEvents(&head, record)
	}
	return inArea, err
}

// checkID: a frame may be for a stream that has ended; never for a stream that was not opened.
func (s *Session) checkID(id uint64) error {
	if id == 0 || id > s.lastID {
		return violation("stream", "a frame of stream %d, where %d is the last that was opened", id, s.lastID)
	}
	return nil
}

func (s *Session) receiveOpening(head *wire.Head, record ring.Record) error {
	if head.Stream != s.lastID+1 {
		return violation("stream", "an opening of stream %d, where %d is next", head.Stream, s.lastID+1)
	}
	block := s.headersOf(head, record)
	path, block, err := s.receiveMethod(head, block)
	if err != nil {
		return err
	}
	if err := s.checkBlock(block); err != nil {
		return err
	}
	s.lastID = head.Stream
	if s.draining {
		// The client learns from DRAIN that this call was not looked at.
		return s.receiveForNobody(head)
	}
	if s.live >= s.streamMax {
		return violation("stream", "stream %d is opened while %d calls are under way, which is the most", head.Stream, s.live)
	}
	// Calls that a client opens and cancels faster than handlers let go of them must not pile up.
	if int64(s.streams.count) >= 2*int64(s.streamMax) {
		s.pending.Push(wire.Head{Events: wire.Cancel, Flags: wire.Refused, Stream: head.Stream, Code: 14})
		return s.receiveForNobody(head)
	}
	st := s.newStream()
	s.begin(st, head.Stream)
	st.path, st.headers, st.hasHeaders = path, block, true
	if head.Flag(wire.HasDeadline) {
		var deadline [wire.DeadlineLen]byte
		record.Copy(deadline[:], wire.FrameHeadLen)
		st.deadlineNS = binary.LittleEndian.Uint64(deadline[:])
	}
	s.opened.Push(st)
	return s.receiveRest(st, head, record)
}

// headersOf is a private copy of an opening's headers: the last one's, where they are the same. Nobody changes it.
func (s *Session) headersOf(head *wire.Head, record ring.Record) []byte {
	n := int(head.HeadersLen)
	if n == 0 {
		return nil
	}
	if n > len(s.scratch) {
		block := make([]byte, n)
		record.Copy(block, head.HeadersAt())
		return block
	}
	record.Copy(s.scratch[:n], head.HeadersAt())
	if !bytes.Equal(s.scratch[:n], s.lastBlock) {
		s.lastBlock = bytes.Clone(s.scratch[:n])
	}
	return s.lastBlock
}

// begin makes a stream the session's.
func (s *Session) begin(st *Stream, id uint64) {
	st.id, st.state = id, Opened(s.role)
	st.sendCredit, st.recvCredit, st.window = s.peer.StreamWindow, s.local.StreamWindow, s.local.StreamWindow
	s.streams.add(st)
	s.live++
}

// receiveMethod takes the path off a headers block that begins with it, or looks it up.
func (s *Session) receiveMethod(head *wire.Head, block []byte) (path string, rest []byte, err error) {
	known := len(s.methods.paths)
	if !head.Flag(wire.NamesMethod) {
		if int(head.Code) >= known {
			return "", nil, violation("method", "the method %d, where %d have been named", head.Code, known)
		}
		return s.methods.paths[head.Code], block, nil
	}
	n := 0
	if len(block) >= 2 {
		n = int(binary.LittleEndian.Uint16(block))
	}
	if n == 0 || n > wire.MethodPathLenMax || len(block) < 2+n {
		return "", nil, violation("method", "a path of %d bytes in a block of %d", n, len(block))
	}
	path = string(block[2 : 2+n])
	next, ok := s.methods.next(n)
	switch {
	case ok && head.Code == next:
		s.methods.add(path)
		s.sayObjects(path, next)
	case ok || head.Code != wire.MethodNotInterned:
		return "", nil, violation("method", "a method named as %d, where %d have been named", head.Code, known)
	}
	return path, block[2+n:], nil
}

func (s *Session) checkBlock(block []byte) error {
	if len(block) > s.local.MetadataLenMax {
		return violation("metadata", "a block of %d bytes, where %d is the most", len(block), s.local.MetadataLenMax)
	}
	if err := wire.CheckBlock(block); err != nil {
		return violation("metadata", "%s", err)
	}
	return nil
}

// receiveEvents takes HEADERS, MESSAGE, HALF_CLOSE and TRAILERS of a stream that is open, or was.
func (s *Session) receiveEvents(head *wire.Head, record ring.Record) error {
	if err := s.checkID(head.Stream); err != nil {
		return err
	}
	st := s.streams.get(head.Stream)
	if st == nil || !st.state.Live() {
		return s.receiveForNobody(head)
	}
	if head.Has(wire.Headers) {
		if !st.state.Do(HeardHeaders) {
			return outOfOrder("HEADERS", st)
		}
		block := make([]byte, head.HeadersLen)
		record.Copy(block, head.HeadersAt())
		if err := s.checkBlock(block); err != nil {
			return err
		}
		st.headers, st.hasHeaders = block, true
	}
	return s.receiveRest(st, head, record)
}

func outOfOrder(event string, st *Stream) error {
	return violation("stream", "%s on stream %d, where that is not to come", event, st.id)
}

// receiveRest takes what follows the headers in a frame.
func (s *Session) receiveRest(st *Stream, head *wire.Head, record ring.Record) error {
	if head.Has(wire.Message) {
		if err := s.receiveChunk(st, head, record); err != nil {
			return err
		}
	}
	if head.Has(wire.HalfClose) {
		if !st.state.Do(HeardHalfClose) {
			return outOfOrder("HALF_CLOSE", st)
		}
		st.heardAll = true
	}
	if head.Has(wire.Trailers) {
		var block []byte
		if head.TrailersLen > 0 {
			block = make([]byte, head.TrailersLen)
			record.Copy(block, head.TrailersAt())
			if err := s.checkBlock(block); err != nil {
				return err
			}
		}
		if head.Code == 0 && !st.state.HeardOK() || !st.state.Do(HeardTrailers) {
			return outOfOrder("TRAILERS", st)
		}
		s.ended(st, End{Kind: EndTrailers, Code: head.Code, Block: block}, true)
		return nil
	}
	st.news()
	return nil
}

func (s *Session) receiveChunk(st *Stream, head *wire.Head, record ring.Record) error {
	if err := s.chargeSession(head.ChunkLen); err != nil {
		return err
	}
	if !st.state.Do(HeardMessage) {
		return outOfOrder("MESSAGE", st)
	}
	cost := uint64(head.ChunkLen) + wire.ChunkCharge
	if cost > st.recvCredit {
		return violation("credit", "a chunk of %d bytes, where the credit of stream %d is %d", head.ChunkLen, st.id, st.recvCredit)
	}
	st.recvCredit -= cost
	batch := head.IsBatch(s.role.Peer())
	misfit := func(what string) error {
		return violation("message", "a chunk of %d bytes on stream %d %s", head.ChunkLen, st.id, what)
	}
	if batch && !st.state.BetweenHeard() {
		return misfit("that is a batch within a message")
	}
	if !batch && !st.state.HeardChunk(head.Flag(wire.First), head.Flag(wire.Last), head.ChunkLen, head.MessageLen) {
		return misfit("that does not fit its message")
	}
	var at wire.AreaRange
	if head.Flag(wire.InArea) {
		var bytes [wire.AreaRangeLen]byte
		record.Copy(bytes[:], head.ChunkAt())
		var ok bool
		if at, ok = wire.DecodeAreaRange(&bytes); !ok || !s.areas.Holds(head.ChunkLen, at) {
			return violation("area", "a chunk of %d bytes at %d of area %d, which is not within a mapped area", head.ChunkLen, at.Offset, at.Area)
		}
	}
	if head.Flag(wire.First) && !head.Flag(wire.Last) {
		s.lend(st, head.MessageLen-head.ChunkLen)
	}
	chunk := Chunk{
		First: head.Flag(wire.First), Last: head.Flag(wire.Last),
		Compressed: head.Flag(wire.Compressed), Object: head.Flag(wire.Object), MessageLen: head.MessageLen,
	}
	var bytes []byte
	if n := int(head.ChunkLen); n <= buffers.SmallMax && chunk.First && chunk.Last && !batch && !st.HasChunk() {
		bytes = st.roomFor(n)
		chunk.short = bytes
	} else {
		chunk.Data = newBuffer(n, batch, st.HasChunk())
		bytes = chunk.Data.ReadOnlyData()
	}
	if head.Flag(wire.InArea) {
		s.areas.Copy(bytes, at)
	} else {
		record.Copy(bytes, head.ChunkAt())
	}
	if batch {
		if !wire.BatchFits(bytes, head.MessageLen, chunk.Object) {
			return misfit("whose batch does not add up")
		}
		chunk.Batch = head.MessageLen
	}
	if head.Flag(wire.Segmented) {
		chunk.SegmentedMessage = s.segmented.came()
	}
	st.push(chunk)
	return nil
}

// roomFor is room for a short message of n bytes. It is never nil.
func (st *Stream) roomFor(n int) []byte {
	const roomMin = 128
	if n > cap(st.room) || st.room == nil {
		st.room = make([]byte, max(n, roomMin))
	}
	return st.room[:n]
}

// newBuffer makes a buffer to copy into. Those of batches are cut later. A short one has more room than it needs, where no other is
// unread: a peer can't have this side keep many.
func newBuffer(n int, batch, others bool) mem.Buffer {
	short := n <= buffers.SmallMax
	switch {
	case short && !batch && !others:
		return buffers.Wrap(buffers.Small(n))
	case short || batch:
		return mem.SliceBuffer(make([]byte, n))
	}
	return mem.NewBuffer(pool.Get(n), pool)
}

// receiveForNobody takes a frame of a stream that has ended: only what its chunk costs matters, and that is given back.
func (s *Session) receiveForNobody(head *wire.Head) error {
	if !head.Has(wire.Message) {
		return nil
	}
	if err := s.chargeSession(head.ChunkLen); err != nil {
		return err
	}
	s.oweSession(uint64(head.ChunkLen) + wire.ChunkCharge)
	if head.Flag(wire.Segmented) {
		s.TookSegmented(s.segmented.came())
	}
	return nil
}

func (s *Session) receiveCancel(head *wire.Head) error {
	if err := s.checkID(head.Stream); err != nil {
		return err
	}
	if st := s.streams.get(head.Stream); st != nil && st.state.Live() {
		st.state.Do(HeardCancel)
		s.ended(st, End{Kind: EndCancelled, Code: head.Code, Refused: head.Flag(wire.Refused)}, false)
	}
	return nil
}

func (s *Session) receiveDrain(head *wire.Head) error {
	if head.Stream > s.lastID || s.draining && head.Stream > s.drain {
		return violation("drain", "DRAIN above stream %d, where %d is the last that was opened", head.Stream, s.lastID)
	}
	s.draining, s.drain = true, head.Stream
	s.streams.each(func(st *Stream) {
		if st.id > head.Stream && st.state.Live() {
			st.state.Do(HeardCancel)
			s.ended(st, End{Kind: EndCancelled, Code: 14, Refused: true}, false)
		}
	})
	return nil
}

func (s *Session) receiveControl(head *wire.Head, record ring.Record) error {
	misplaced := func() error { return violation("area", "CONTROL with code %d about area %d", head.Code, head.Stream) }
	switch head.Code {
	case wire.Objects:
		if !s.methods.takesObjects(head.ChunkLen, head.Stream) {
			return violation("object", "OBJECTS of method %d, which was not named, or for a second time", head.ChunkLen)
		}
		return nil
	case wire.Close:
		if head.Stream != 0 {
			return violation("frame", "CLOSE about stream %d", head.Stream)
		}
		reason := make([]byte, min(int(head.HeadersLen), reasonLenMax))
		record.Copy(reason, head.HeadersAt())
		said := wire.ShownText(reason)
		s.End(&Closed{ByPeer: true, Said: said, Text: "the peer has ended the session: " + said})
		return nil
	case wire.SegmentedTaken:
		return s.receiveSegmentedTaken(head)
	case wire.SegmentedWanted:
		return s.receiveSegmentedWanted(head)
	case wire.SegmentedBytes:
		return s.receiveSegmentedBytes(head, record)
	case wire.AreaOffer, wire.AreaAccept, wire.AreaRefuse, wire.AreaDrop:
	default:
		return violation("frame", "CONTROL with code %d, which is none", head.Code)
	}
	if head.Stream >= 1<<32-1 {
		return misplaced()
	}
	area := uint32(head.Stream)
	switch head.Code {
	case wire.AreaOffer:
		if area != s.nextArea {
			return misplaced()
		}
		s.nextArea++
		mapped, err := s.areas.Map(area, head.ChunkLen)
		if err != nil {
			return violation("area", "area %d: %s", area, err)
		}
		code := uint16(wire.AreaRefuse)
		if mapped {
			code = wire.AreaAccept
		}
		s.pending.Push(wire.Head{Events: wire.Control, Code: code, Stream: uint64(area)})
	case wire.AreaAccept, wire.AreaRefuse:
		if !s.offered[area] {
			return misplaced()
		}
		delete(s.offered, area)
		s.areas.Answered(area, head.Code == wire.AreaAccept)
	case wire.AreaDrop:
		if area >= s.nextArea {
			return misplaced()
		}
		s.areas.Unmap(area)
	}
	return nil
}
