package ring

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/tollfree/tollfree/go/internal/steps"
	"github.com/tollfree/tollfree/go/internal/wire"
)

const (
	headLen   = 8
	headEmpty = 0
	headSet   = 0x80000000
)

// word64 and word32 are aligned words of mapped memory; offsets are constants or multiples of a line.
func word64(memory []byte, off int) *uint64 {
	return (*uint64)(unsafe.Pointer(&memory[off : off+8][0]))
}
func word32(memory []byte, off int) *uint32 {
	return (*uint32)(unsafe.Pointer(&memory[off : off+4][0]))
}

// RecordLenMax is the length of the longest record of a ring: it takes no more than half of it.
func RecordLenMax(ringLen int) int { return ringLen/2 - headLen - wire.LineLen }

func linesOf(recordLen int) uint64 { return uint64(headLen+recordLen+wire.LineLen-1) / wire.LineLen }

// geometry says where a ring lies in its region.
type geometry struct {
	memory []byte
	lines  uint64
}

func (g geometry) at(pos uint64) int { return wire.RingOff + int(pos&(g.lines-1))*wire.LineLen }

func (g geometry) headWord(pos uint64) *uint64 { return word64(g.memory, g.at(pos)) }

func (g geometry) end() int { return wire.RingOff + int(g.lines)*wire.LineLen }

// payload gives the two parts of what lies behind a head word.
func (g geometry) payload(pos uint64, n int) (a, b []byte) {
	from := g.at(pos) + headLen
	if left := g.end() - from; n > left {
		return g.memory[from : from+left : from+left], g.memory[wire.RingOff : wire.RingOff+n-left]
	}
	return g.memory[from : from+n : from+n], nil
}

// A Sender is the sending end of a ring. Its methods are for one goroutine at a time.
type Sender struct {
	ring                        geometry
	peer                        []byte
	published, staged, consumed uint64
	first                       uint64
	err                         error
}

// NewSender sends in a ring of ringLen bytes, a power of two, of the region own; peer is the peer's region.
func NewSender(own, peer []byte, ringLen int) *Sender {
	return &Sender{ring: geometry{own, uint64(ringLen / wire.LineLen)}, peer: peer}
}

// RecordLenMax is the length of the longest record.
func (s *Sender) RecordLenMax() int { return RecordLenMax(int(s.ring.lines) * wire.LineLen) }

// Begin makes room for a record of n bytes, which is staged thereby: the caller puts all of it there before Publish. ok is
// false while there is no room, and always once Err says something.
func (s *Sender) Begin(n int) (place Place, ok bool) {
	lines := linesOf(n)
	if s.staged-s.consumed+lines >= s.ring.lines {
		if !s.look() || s.staged-s.consumed+lines >= s.ring.lines {
			return Place{}, false
		}
	}
	head := uint64(n)<<32 | headSet | s.staged&0x7fffffff
	if s.staged == s.published {
		// The reader looks at this one: it must not see it before Publish.
		s.first = head
	} else {
		*s.ring.headWord(s.staged) = head
	}
	place.a, place.b = s.ring.payload(s.staged, n)
	s.staged += lines
	steps.Pass(steps.RecordBegun)
	return place, true
}

// look takes the peer's word on how far it has read.
func (s *Sender) look() bool {
	consumed := atomic.LoadUint64(word64(s.peer, wire.ConsumedOff))
	if consumed < s.consumed || consumed > s.published {
		if s.err == nil {
			s.err = fmt.Errorf("the peer has read to line %d of its peer's ring, where line %d was read before and %d published",
				consumed, s.consumed, s.published)
		}
		return false
	}
	s.consumed = consumed
	return s.err == nil
}

// Err is the peer's violation, if there was one.
func (s *Sender) Err() error { return s.err }

// Staged is the position behind what has been staged, Published behind what the peer can see.
func (s *Sender) Staged() uint64    { return s.staged }
func (s *Sender) Published() uint64 { return s.published }

// Consumed looks how far the peer has read.
func (s *Sender) Consumed() uint64 {
	s.look()
	return s.consumed
}

// Seen is how far the peer had read when that was looked at last; Moved says whether it has read on since. Moved may be called
// at any time.
func (s *Sender) Seen() uint64 { return s.consumed }
func (s *Sender) Moved(seen uint64) bool {
	return atomic.LoadUint64(word64(s.peer, wire.ConsumedOff)) != seen
}

// Publish makes visible what has been staged; false: there was nothing.
func (s *Sender) Publish() bool {
	if s.staged == s.published {
		return false
	}
	steps.Pass(steps.RecordWritten)
	// A plain store: the next one orders it.
	*s.ring.headWord(s.staged) = headEmpty
	atomic.StoreUint64(s.ring.headWord(s.published), s.first)
	s.published = s.staged
	steps.Pass(steps.RecordPublished)
	return true
}

// A Receiver is the receiving end of a ring. HasNext may be called beside no other method but itself.
type Receiver struct {
	ring          geometry
	own           []byte
	pos, released uint64
	lines         uint64
}

// NewReceiver receives from a ring of ringLen bytes of the region peer; own is one's own region.
func NewReceiver(own, peer []byte, ringLen int) *Receiver {
	return &Receiver{ring: geometry{peer, uint64(ringLen / wire.LineLen)}, own: own}
}

// HasNext says whether something stands where the next record belongs.
func (r *Receiver) HasNext() bool { return atomic.LoadUint64(r.ring.headWord(r.pos)) != headEmpty }

// Next gives the next record, which stays where it is until Advance; ok is false where none is there.
//
// Errors: a violation of spec/wire.md, section 5.
func (r *Receiver) Next() (record Record, ok bool, err error) {
	head := atomic.LoadUint64(r.ring.headWord(r.pos))
	if head == headEmpty {
		return Record{}, false, nil
	}
	n := head >> 32
	if uint32(head) != headSet|uint32(r.pos&0x7fffffff) {
		return Record{}, false, fmt.Errorf("a head word %#016x at line %d, which is another's", head, r.pos)
	}
	if n > uint64(RecordLenMax(int(r.ring.lines)*wire.LineLen)) {
		return Record{}, false, fmt.Errorf("a record of %d bytes, which is longer than this ring's longest", n)
	}
	record.a, record.b = r.ring.payload(r.pos, int(n))
	r.lines = linesOf(int(n))
	steps.Pass(steps.RecordSeen)
	return record, true, nil
}

// Advance passes over the record that Next has given, and says whether it is time to Release.
func (r *Receiver) Advance() (due bool) {
	r.pos += r.lines
	steps.Pass(steps.RecordTaken)
	return r.pos-r.released >= r.ring.lines/4
}

// Release gives the room of all records passed back to the sender; false: there was none.
func (r *Receiver) Release() bool {
	if r.released == r.pos {
		return false
	}
	r.released = r.pos
	atomic.StoreUint64(word64(r.own, wire.ConsumedOff), r.pos)
	steps.Pass(steps.RoomReleased)
	return true
}
