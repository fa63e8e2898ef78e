package session

import (
	"google.golang.org/grpc/mem"

	"github.com/tollfree/tollfree/go/internal/wire"
)

// An EndKind is how a call has ended, as far as this side knows.
type EndKind uint8

// How calls end; spec/wire.md, section 15.
const (
	// NotEnded is a call that goes on.
	NotEnded EndKind = iota
	// EndTrailers is the server's last word, at the client.
	EndTrailers
	// EndSaid is the server's last word, at the server.
	EndSaid
	// EndCancelled is a CANCEL of the peer, or DRAIN.
	EndCancelled
	// EndDropped is a CANCEL of this side.
	EndDropped
	// EndSession is the session's end.
	EndSession
)

// An End says how a call has ended.
type End struct {
	Kind EndKind
	// Code is the status; with a value above 16, UNKNOWN is meant.
	Code uint16
	// Refused says that nothing of the call was looked at.
	Refused bool
	// Block is the trailers block, checked.
	Block []byte
}

// A Chunk is a part of a message that has come, or several messages.
type Chunk struct {
	Data mem.Buffer
	// short, if not nil, is the chunk instead of Data, in the stream's own room.
	short []byte
	// First and Last say whether it begins and ends its message.
	First, Last        bool
	Compressed, Object bool
	// MessageLen is that of the whole message, on its first chunk.
	MessageLen uint32
	// Batch, if not 0, is how many messages are in Data, each behind gRPC's prefix.
	Batch uint32
	// SegmentedMessage, on the first chunk of a message that is a segmented message, is its number among those that have come, counted from 1. Who takes the
	// chunk says TookSegmented once.
	SegmentedMessage uint64
}

func (c *Chunk) cost() uint64 {
	if c.short != nil {
		return uint64(len(c.short)) + wire.ChunkCharge
	}
	return uint64(c.Data.Len()) + wire.ChunkCharge
}

// free lets go of a chunk that nobody takes.
func (c *Chunk) free() {
	if c.Data != nil {
		c.Data.Free()
	}
}

// An Owner hears when something has changed on its stream. It is called with the session's lock held, and must not wait.
type Owner interface {
	News()
}

// A Stream is one call. The session reads and writes it; others only call its methods, with the session's lock held.
type Stream struct {
	owner Owner
	id    uint64
	state State
	end   End

	sendCredit, recvCredit, owed, window uint64
	wantsCredit, queued                  bool
	out                                  outbox

	path       string
	deadlineNS uint64
	headers    []byte
	hasHeaders bool
	heardAll   bool
	released   bool
	first      Chunk
	hasFirst   bool
	more       []Chunk
	// room is for short messages, each of which is taken before the next comes there.
	room []byte
}

// SetOwner says who hears of news from now on.
func (st *Stream) SetOwner(owner Owner) { st.owner = owner }

// Owner is who hears of news.
func (st *Stream) Owner() Owner { return st.owner }

// ID is the stream's number, 0 before it is opened.
func (st *Stream) ID() uint64 { return st.id }

// Path is the method of a call that has come.
func (st *Stream) Path() string { return st.path }

// DeadlineNS is the deadline of a call that has come, on the client's clock; 0: none.
func (st *Stream) DeadlineNS() uint64 { return st.deadlineNS }

// Headers is the headers block that has come, checked; ok is false while none has.
func (st *Stream) Headers() (block []byte, ok bool) { return st.headers, st.hasHeaders }

// End says how the call has ended, or that it has not.
func (st *Stream) End() End { return st.end }

// HeardAll says whether the peer sends no more messages: what is not taken is the rest.
func (st *Stream) HeardAll() bool { return st.heardAll || st.end.Kind != NotEnded }

// HalfClosed says whether the client has said that no more messages come.
func (st *Stream) HalfClosed() bool { return st.heardAll }

// HasChunk says whether Take has one to give.
func (st *Stream) HasChunk() bool { return st.hasFirst || len(st.more) > 0 }

// Unused says of a client's call that has ended that the session knows nothing of it, and that nothing is unread.
func (st *Stream) Unused() bool { return !st.queued && !st.HasChunk() }

// Unsent is how many bytes of messages wait for room and credit, with what they cost beside.
func (st *Stream) Unsent() int { return st.out.bytes }

// KeepLent has the session keep copies of messages that were lent to it, and wait for room or credit.
func (st *Stream) KeepLent() { st.out.keepLent() }

// Reuse makes a stream that has ended, and is Unused, as good as new.
func (st *Stream) Reuse() { *st = Stream{owner: st.owner, room: st.room[:0]} }

// Sent says whether nothing waits for room or credit.
func (st *Stream) Sent() bool { return st.out.empty() }

func (st *Stream) news() {
	if st.owner != nil {
		st.owner.News()
	}
}

func (st *Stream) push(chunk Chunk) {
	if !st.hasFirst && len(st.more) == 0 {
		st.first, st.hasFirst = chunk, true
		return
	}
	st.more = append(st.more, chunk)
}

func (st *Stream) pop() (chunk Chunk, ok bool) {
	if st.hasFirst {
		chunk, st.first, st.hasFirst = st.first, Chunk{}, false
		return chunk, true
	}
	if len(st.more) == 0 {
		return Chunk{}, false
	}
	chunk, st.more[0] = st.more[0], Chunk{}
	st.more = st.more[1:]
	if len(st.more) == 0 {
		st.more = nil
	}
	return chunk, true
}

// unread is what chunks that nobody has taken have cost.
func (st *Stream) unread() (cost uint64) {
	if st.hasFirst {
		cost = st.first.cost()
	}
	for i := range st.more {
		cost += st.more[i].cost()
	}
	return cost
}

// dropUnread drops chunks that nobody has taken.
func (s *Session) dropUnread(st *Stream) {
	for chunk, ok := st.pop(); ok; chunk, ok = st.pop() {
		s.TookSegmented(chunk.SegmentedMessage)
		chunk.free()
	}
}
