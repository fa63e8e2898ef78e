package session

import (
	"google.golang.org/grpc/mem"

	"github.com/tollfree/tollfree/go/internal/ring"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// ropes are the ropes of both directions: spec/wire.md, section 12. Numbers are the specification's plus 1, so that 0 is none.
type ropes struct {
	// sent counts those that this side has sent; kept are those that the peer has not taken.
	sent uint64
	kept map[uint64]*keptRope
	// answers are ropes whose bytes the peer has asked for, in turn.
	answers FIFO[*keptRope]
	// heard counts those that have come; untaken are those that this side has not taken.
	heard   uint64
	untaken map[uint64]bool
	// asked are those whose bytes this side has asked for, until all have come.
	asked map[uint64]*askedRope
}

// keptRope are the blocks that a rope names.
type keptRope struct {
	number uint64
	refs   mem.BufferSlice
	// wanted says that the peer has asked for the bytes; the next one is in refs[part], at off.
	wanted    bool
	part, off int
}

// askedRope are bytes that come.
type askedRope struct {
	want int
	// bytes are nil where nobody is interested any more.
	bytes []byte
	came  int
	// refused says that the sender does not give them.
	refused bool
	// owner hears when the answer is complete.
	owner Owner
}

func newRopes() *ropes {
	return &ropes{kept: map[uint64]*keptRope{}, untaken: map[uint64]bool{}, asked: map[uint64]*askedRope{}}
}

// goes counts a rope whose first chunk is sent.
func (r *ropes) goes(refs mem.BufferSlice) {
	r.sent++
	r.kept[r.sent] = &keptRope{number: r.sent, refs: refs}
}

// came counts a rope whose first chunk has come, and gives its number.
func (r *ropes) came() uint64 {
	r.heard++
	r.untaken[r.heard] = true
	return r.heard
}

// end lets go of everything: the session is over.
func (r *ropes) end() {
	for _, rope := range r.kept {
		rope.refs.Free()
	}
	for _, asked := range r.asked {
		asked.giveUp()
	}
	sent, heard := r.sent, r.heard
	*r = *newRopes()
	r.sent, r.heard = sent, heard
}

// KeepsRopes says whether the peer has not taken all ropes that it was sent.
func (s *Session) KeepsRopes() bool { return s.ropes != nil && len(s.ropes.kept) > 0 }

// MaySendRope says whether a message may be a rope: the two sides have a pool in common, and the peer takes what it gets.
func (s *Session) MaySendRope() bool { return s.ropes != nil && len(s.ropes.kept) < wire.RopeCountMax }

// TookRope says that this side has taken a rope that has come, or never will. A number of 0 is none.
func (s *Session) TookRope(number uint64) {
	if number == 0 || !s.ropes.untaken[number] {
		return
	}
	delete(s.ropes.untaken, number)
	if asked := s.ropes.asked[number]; asked != nil {
		// What still comes of the answer is for nobody.
		asked.bytes, asked.owner = nil, nil
		if asked.refused || asked.came == asked.want {
			delete(s.ropes.asked, number)
		}
	}
	if waiting := s.pending.All(); len(waiting) > 0 {
		last := &waiting[len(waiting)-1]
		if last.Events == wire.Control && last.Code == wire.RopesTaken && last.Stream+uint64(last.ChunkLen) == number-1 && last.ChunkLen < 1<<32-1 {
			last.ChunkLen++
			return
		}
	}
	s.pending.Push(wire.Head{Events: wire.Control, Code: wire.RopesTaken, Stream: number - 1, ChunkLen: 1})
}

// WantRope asks the peer for the bytes of a rope's refs, n in all, once. The owner hears when they have come.
func (s *Session) WantRope(number uint64, n uint32, owner Owner) {
	if !s.ropes.untaken[number] {
		return
	}
	s.ropes.asked[number] = &askedRope{want: int(n), bytes: make([]byte, n), owner: owner}
	s.pending.Push(wire.Head{Events: wire.Control, Code: wire.RopeWanted, Stream: number - 1, ChunkLen: n})
}

// RopeBytes gives what WantRope has asked for; done is false while not all has come. bytes is nil where the peer does not give
// them, or the session is over.
func (s *Session) RopeBytes(number uint64) (bytes []byte, done bool) {
	asked := s.ropes.asked[number]
	switch {
	case asked == nil:
		return nil, true
	case asked.refused:
		delete(s.ropes.asked, number)
		return nil, true
	case asked.came < asked.want:
		return nil, false
	}
	delete(s.ropes.asked, number)
	return asked.bytes, true
}

// giveUp says that no bytes come any more.
func (a *askedRope) giveUp() {
	a.refused = true
	if a.owner != nil {
		a.owner.News()
	}
}

func (s *Session) receiveRopesTaken(head *wire.Head) error {
	first := head.Stream
	for i := range uint64(head.ChunkLen) {
		rope := s.ropes.kept[first+i+1]
		if rope == nil {
			return violation("rope", "ROPES_TAKEN of rope %d, which was not sent, or was taken before", first+i)
		}
		delete(s.ropes.kept, rope.number)
		if rope.wanted && s.ropes.stop(rope) {
			s.pending.Push(wire.Head{Events: wire.Control, Code: wire.RopeBytes, Stream: rope.number - 1})
		}
		rope.refs.Free()
	}
	return nil
}

func (s *Session) receiveRopeWanted(head *wire.Head) error {
	rope := s.ropes.kept[head.Stream+1]
	if rope == nil || rope.wanted {
		return violation("rope", "ROPE_WANTED of rope %d, which was not sent, was taken, or was asked for before", head.Stream)
	}
	rope.wanted = true
	if uint64(rope.refs.Len()) != uint64(head.ChunkLen) {
		s.pending.Push(wire.Head{Events: wire.Control, Code: wire.RopeBytes, Stream: head.Stream})
		return nil
	}
	s.ropes.answers.Push(rope)
	return nil
}

func (s *Session) receiveRopeBytes(head *wire.Head, record ring.Record) error {
	number := head.Stream + 1
	asked := s.ropes.asked[number]
	if asked == nil || asked.refused || asked.came == asked.want || int(head.ChunkLen) > asked.want-asked.came {
		return violation("rope", "%d bytes of rope %d, which were not asked for", head.ChunkLen, head.Stream)
	}
	if asked.bytes != nil {
		record.Copy(asked.bytes[asked.came:asked.came+int(head.ChunkLen)], wire.FrameHeadLen)
	}
	asked.came += int(head.ChunkLen)
	if head.ChunkLen > 0 && asked.came < asked.want {
		return nil
	}
	asked.refused = head.ChunkLen == 0
	if asked.bytes == nil {
		delete(s.ropes.asked, number)
		return nil
	}
	if asked.owner != nil {
		asked.owner.News()
	}
	return nil
}

// stop ends an answer that is under way; false: all of it was sent.
func (r *ropes) stop(rope *keptRope) bool {
	before := r.answers.Len()
	r.answers.Keep(func(other *keptRope) bool { return other != rope })
	return r.answers.Len() < before
}

// answering says whether bytes that the peer has asked for wait for room.
func (r *ropes) answering() bool { return r != nil && r.answers.Len() > 0 }

// answer sends the next bytes of the first answer, and gives the next one its turn. false: there is no room.
func (r *ropes) answer(out Outbound) bool {
	rope := *r.answers.First()
	bytes := rope.refs[rope.part].ReadOnlyData()[rope.off:]
	bytes = bytes[:min(len(bytes), out.RecordLenMax()-wire.FrameHeadLen)]
	place, ok := out.Begin(wire.FrameHeadLen + len(bytes))
	if !ok {
		return false
	}
	head := wire.Head{Events: wire.Control, Code: wire.RopeBytes, Stream: rope.number - 1, ChunkLen: uint32(len(bytes))}
	encoded := head.Encode()
	place.Put(encoded[:])
	place.Put(bytes)
	r.answers.Pop()
	if rope.off += len(bytes); rope.off == rope.refs[rope.part].Len() {
		rope.part, rope.off = rope.part+1, 0
	}
	if rope.part < len(rope.refs) {
		r.answers.Push(rope)
	}
	return true
}
