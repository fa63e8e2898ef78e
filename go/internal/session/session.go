// Package session is the state machine of one session without input and output: streams, credit, methods and endings, for
// both ends; spec/wire.md, sections 8 to 17. Records come in by Receive, and go out by an Outbound. It knows no time, and its
// callers hold one lock around all of it.
package session

import (
	"fmt"

	"github.com/tollfree/tollfree/go/internal/buffers"
	"github.com/tollfree/tollfree/go/internal/ring"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// Limits are what one side takes; each tells the other in the handshake.
type Limits struct {
	StreamWindow, SessionWindow uint64
	// StreamCount is the calls at once that a server takes.
	StreamCount    uint32
	MetadataLenMax int
}

// An Outbound is where records go.
type Outbound interface {
	// RecordLenMax is the length of the longest record.
	RecordLenMax() int
	// Begin makes room for a record, which is to be filled at once; ok is false while there is none.
	Begin(n int) (place ring.Place, ok bool)
	// BeginArea makes room for a record of n bytes, and for a chunk of at most want bytes in a payload area; ok is false
	// where the chunk is better sent in the record, or room is lacking.
	BeginArea(n, want int) (record, chunk ring.Place, at wire.AreaRange, ok bool)
}

// Areas are the peer's payload areas, and what it says of one's own; spec/wire.md, section 16.
type Areas interface {
	// Map maps the area whose descriptor has come; mapped is false where this side can't.
	//
	// Errors: a violation.
	Map(area, length uint32) (mapped bool, err error)
	Unmap(area uint32)
	// Copy fills dst with what lies at a place; false: it isn't within a mapped area.
	Copy(dst []byte, at wire.AreaRange) bool
	// Holds says whether n bytes at a place are within a mapped area.
	Holds(n uint32, at wire.AreaRange) bool
	Answered(area uint32, accepted bool)
}

// A Violation is what no correct peer does: spec/wire.md, section 17.
type Violation struct {
	// Place is the table's.
	Place string
	What  string
}

func (v *Violation) Error() string { return "the peer broke the protocol (" + v.Place + "): " + v.What }

func violation(place, format string, args ...any) *Violation {
	return &Violation{place, fmt.Sprintf(format, args...)}
}

// Closed is why a session is over.
type Closed struct {
	// ByPeer says that the peer has ended it: by CLOSE, or because it is gone.
	ByPeer bool
	// Said is the reason of the peer's CLOSE; empty where there was none.
	Said string
	Text string
}

func (c *Closed) Error() string { return c.Text }

// A Session is one session after its handshake.
type Session struct {
	role        wire.Role
	local, peer Limits
	streamMax   uint32
	crumb       int
	areas       Areas
	newStream   func() *Stream

	streams table
	live    uint32
	lastID  uint64
	methods methods
	// objectsOf is nil of a server that takes no objects.
	objectsOf ObjectsOf
	// loud says that something was staged that the peer is to be woken for.
	loud bool
	// segmented messages is nil where the two sides have no pool in common.
	segmented *segmented
	opened    FIFO[*Stream]
	// scratch and lastBlock are for the headers of calls, which are often those of the call before.
	scratch   [256]byte
	lastBlock []byte

	sendCredit, recvCredit, owed, reserve uint64
	pending                               FIFO[wire.Head]
	// queue are the streams that have something to send and may have credit; short says that some wait for the session's.
	queue FIFO[*Stream]
	short bool

	offered  map[uint32]bool
	nextArea uint32

	draining bool
	drain    uint64
	closed   error
}

// New begins a session. pool says whether the feature POOL is in force. newStream makes the streams of calls that come to a server.
func New(role wire.Role, local, peer Limits, pool bool, areas Areas, newStream func() *Stream) *Session {
	streamMax := local.StreamCount
	if role == wire.Client {
		streamMax = peer.StreamCount
	}
	s := &Session{
		role: role, local: local, peer: peer, streamMax: streamMax, areas: areas, newStream: newStream,
		sendCredit: peer.SessionWindow, recvCredit: local.SessionWindow,
	}
	if pool {
		s.segmented = newSegmentedMessages()
	}
	// A reader may keep back half a window of what it has read: a sender that waited for more would never go on.
	const crumbMax = 4096
	s.crumb = int(min(max(int64(min(peer.StreamWindow, peer.SessionWindow, 1<<30)/2)-wire.ChunkCharge, 1), crumbMax))
	if first := local.StreamWindow * uint64(streamMax); first < local.SessionWindow {
		s.reserve = local.SessionWindow - first
	}
	return s
}

// Closed is why the session is over; nil while it isn't.
func (s *Session) Closed() error { return s.closed }

// Draining says whether no call begins any more.
func (s *Session) Draining() bool { return s.draining }

// TookLoud says whether anything was staged since it was called last that the peer is to be woken for: SEGMENTED_TAKEN wakes nobody.
func (s *Session) TookLoud() bool {
	loud := s.loud
	s.loud = false
	return loud
}

// Quiet says that there is nothing to flush, and that nothing has been staged since TookLoud was called, or has ended the session.
func (s *Session) Quiet() bool {
	return !s.loud && s.pending.Len() == 0 && s.queue.Len() == 0 && !s.draining && s.closed == nil && !s.KeepsSegmentedMessages() && !s.segmented.answering()
}

// Live is how many calls are under way, Remembered how many streams have not been forgotten.
func (s *Session) Live() int       { return int(s.live) }
func (s *Session) Remembered() int { return s.streams.count }

// MayOpen says whether one more call may be under way.
func (s *Session) MayOpen() bool { return s.live < s.streamMax }

// Congested says whether so many small frames wait for room that nothing more is to be received: the peer doesn't read.
func (s *Session) Congested() bool { return int64(s.pending.Len()) >= 2*int64(s.streamMax)+64 }

// NextOpened gives a call that has come to a server, once. Calls that have ended meanwhile are passed over.
func (s *Session) NextOpened() *Stream {
	for s.opened.Len() > 0 {
		st := s.opened.Pop()
		if st.state.Live() {
			return st
		}
		s.Forget(st)
	}
	return nil
}

// Take gives the next chunk that has come. It counts as read thereby, and is the caller's.
func (s *Session) Take(st *Stream) (chunk Chunk, ok bool) {
	if chunk, ok = st.pop(); !ok {
		return chunk, false
	}
	if st.state.Live() {
		s.owe(st, chunk.cost())
	}
	if chunk.short != nil {
		room := buffers.Small(len(chunk.short))
		copy(*room, chunk.short)
		chunk.Data, chunk.short = buffers.Wrap(room), nil
	}
	return chunk, ok
}

// TakeShort is Take for a next chunk that is a whole message, short and not compressed. message is good until the stream gets another one
// or is used again.
func (s *Session) TakeShort(st *Stream) (message []byte, ok bool) {
	if !st.hasFirst || st.first.short == nil || st.first.Compressed || st.first.Object || st.first.SegmentedMessage != 0 {
		return nil, false
	}
	chunk, _ := st.pop()
	if st.state.Live() {
		s.owe(st, chunk.cost())
	}
	return chunk.short, true
}

// TakeBatch is Take for a next chunk that is several messages, which are put into batch; it does nothing where the next chunk is another.
func (s *Session) TakeBatch(st *Stream, batch *[]byte) {
	next := &st.first
	if !st.hasFirst {
		if len(st.more) == 0 {
			return
		}
		next = &st.more[0]
	}
	if next.Batch == 0 || next.Object {
		return
	}
	chunk, _ := st.pop()
	if st.state.Live() {
		s.owe(st, chunk.cost())
	}
	*batch = chunk.Data.ReadOnlyData()
}

// Forget lets go of a stream and what of it was not taken. A call that has not ended is cancelled with code 1.
func (s *Session) Forget(st *Stream) {
	s.Cancel(st, 1)
	s.dropUnread(st)
	s.streams.remove(st)
	// Its place in the queue stays behind. Many of those are swept out together.
	if s.queue.Len() > 2*s.streams.count+64 {
		s.queue.Keep(func(st *Stream) bool { return st.state.Live() })
	}
}

// Cancel ends a call in both directions and tells the peer. What had come and was not read is dropped. A call that has ended
// stays as it is.
func (s *Session) Cancel(st *Stream, code uint16) { s.cancel(st, code, false) }

// CancelReadable does as Cancel does, and what had come can still be read.
func (s *Session) CancelReadable(st *Stream, code uint16) { s.cancel(st, code, true) }

func (s *Session) cancel(st *Stream, code uint16, keep bool) {
	if st.id == 0 || !st.state.Do(SaidCancel) {
		return
	}
	s.pending.Push(wire.Head{Events: wire.Cancel, Stream: st.id, Code: code})
	s.ended(st, End{Kind: EndDropped, Code: code}, keep)
}

// ended takes note of the end of a stream whose state has become Over. What was received before stays readable where keep
// is set; either way the peer gets the session's credit for it back at once.
func (s *Session) ended(st *Stream, end End, keep bool) {
	s.live--
	st.end = end
	if s.role == wire.Client {
		// Whatever else comes for it is dropped.
		s.streams.remove(st)
	}
	st.out.drop()
	st.wantsCredit = false
	if unread := st.unread(); unread > 0 {
		s.oweSession(unread)
	}
	s.reserve += st.window - s.local.StreamWindow
	if !keep {
		s.dropUnread(st)
	}
	st.news()
	if st.released {
		s.Forget(st)
	}
}

// Release forgets a stream as soon as it has ended: its handler has returned.
func (s *Session) Release(st *Stream) {
	if st.state.Live() {
		st.released = true
		return
	}
	s.Forget(st)
}

// Drain has a server take no more calls: what has not come yet is refused.
func (s *Session) Drain() {
	if !s.draining && s.closed == nil {
		s.draining, s.drain = true, s.lastID
		s.pending.Push(wire.Head{Events: wire.Drain, Stream: s.lastID})
	}
}

// OfferArea says that an area was made whose descriptor has been sent, DropArea that it is not referred to again.
func (s *Session) OfferArea(area, length uint32) {
	if s.offered == nil {
		s.offered = map[uint32]bool{}
	}
	s.offered[area] = true
	s.pending.Push(wire.Head{Events: wire.Control, Code: wire.AreaOffer, Stream: uint64(area), ChunkLen: length})
}

// DropArea says that an area is not referred to again.
func (s *Session) DropArea(area uint32) {
	s.pending.Push(wire.Head{Events: wire.Control, Code: wire.AreaDrop, Stream: uint64(area)})
}

// Close ends the session from this side; the reason goes to the peer if there is room.
func (s *Session) Close(out Outbound, reason error) {
	if s.closed != nil {
		return
	}
	text := wire.CutText(reason.Error(), wire.HelloTextMax)
	head := wire.Head{Events: wire.Control, Code: wire.Close, HeadersLen: uint16(len(text))}
	if place, ok := out.Begin(wire.FrameHeadLen + len(text)); ok {
		bytes := head.Encode()
		place.Put(bytes[:])
		place.Put([]byte(text))
	}
	s.End(reason)
}

// End ends the session without a word to the peer. What was received stays readable where the peer has ended it.
func (s *Session) End(reason error) {
	if s.closed != nil {
		return
	}
	s.closed = reason
	closed, is := reason.(*Closed)
	keep := is && closed.ByPeer
	s.streams.each(func(st *Stream) {
		// A violation may have been found in the frame with which a stream ends.
		if st.end.Kind == NotEnded {
			st.state.phase = Over
			s.ended(st, End{Kind: EndSession, Code: 14}, keep)
		}
	})
	if s.segmented != nil {
		s.segmented.end()
	}
	s.pending, s.queue, s.opened, s.offered = FIFO[wire.Head]{}, FIFO[*Stream]{}, FIFO[*Stream]{}, nil
}
