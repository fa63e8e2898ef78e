package session

import (
	"google.golang.org/grpc/mem"

	"github.com/tollfree/tollfree/go/internal/ring"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// segmented messages are the segmented messages of both directions: spec/wire.md, section 12. Numbers are the specification's plus 1, so that 0 is none.
type segmented struct {
	// sent counts those that this side has sent; kept are those that the peer has not taken.
	sent uint64
	kept map[uint64]*keptSegmented
	// answers are segmented messages whose bytes the peer has asked for, in turn.
	answers FIFO[*keptSegmented]
	// heard counts those that have come; untaken are those that this side has not taken.
	heard   uint64
	untaken map[uint64]bool
	// asked are those whose bytes this side has asked for, until all have come.
	asked map[uint64]*askedSegmented
}

// keptSegmented are the blocks that a segmented message names.
type keptSegmented struct {
	number uint64
	refs   mem.BufferSlice
	// wanted says that the peer has asked for the bytes; the next one is in refs[part], at off.
	wanted    bool
	part, off int
}

// askedSegmented are bytes that come.
type askedSegmented struct {
	want int
	// bytes are nil where nobody is interested any more.
	bytes []byte
	came  int
	// refused says that the sender does not give them.
	refused bool
	// owner hears when the answer is complete.
	owner Owner
}

func newSegmentedMessages() *segmented {
	return &segmented{kept: map[uint64]*keptSegmented{}, untaken: map[uint64]bool{}, asked: map[uint64]*askedSegmented{}}
}

// goes counts a segmented message whose first chunk is sent.
func (r *segmented) goes(refs mem.BufferSlice) {
	r.sent++
	r.kept[r.sent] = &keptSegmented{number: r.sent, refs: refs}
}

// came counts a segmented message whose first chunk has come, and gives its number.
func (r *segmented) came() uint64 {
	r.heard++
	r.untaken[r.heard] = true
	return r.heard
}

// end lets go of everything: the session is over.
func (r *segmented) end() {
	for _, segmented := range r.kept {
		segmented.refs.Free()
	}
	for _, asked := range r.asked {
		asked.giveUp()
	}
	sent, heard := r.sent, r.heard
	*r = *newSegmentedMessages()
	r.sent, r.heard = sent, heard
}

// KeepsSegmentedMessages says whether the peer has not taken all segmented messages that it was sent.
func (s *Session) KeepsSegmentedMessages() bool {
	return s.segmented != nil && len(s.segmented.kept) > 0
}

// MaySendSegmented says whether a message may be a segmented message: the two sides have a pool in common, and the peer takes what it gets.
func (s *Session) MaySendSegmented() bool {
	return s.segmented != nil && len(s.segmented.kept) < wire.SegmentedCountMax
}

// TookSegmented says that this side has taken a segmented message that has come, or never will. A number of 0 is none.
func (s *Session) TookSegmented(number uint64) {
	if number == 0 || !s.segmented.untaken[number] {
		return
	}
	delete(s.segmented.untaken, number)
	if asked := s.segmented.asked[number]; asked != nil {
		// What still comes of the answer is for nobody.
		asked.bytes, asked.owner = nil, nil
		if asked.refused || asked.came == asked.want {
			delete(s.segmented.asked, number)
		}
	}
	if waiting := s.pending.All(); len(waiting) > 0 {
		last := &waiting[len(waiting)-1]
		if last.Events == wire.Control && last.Code == wire.SegmentedTaken && last.Stream+uint64(last.ChunkLen) == number-1 && last.ChunkLen < 1<<32-1 {
			last.ChunkLen++
			return
		}
	}
	s.pending.Push(wire.Head{Events: wire.Control, Code: wire.SegmentedTaken, Stream: number - 1, ChunkLen: 1})
}

// WantSegmented asks the peer for the bytes of a segmented message's refs, n in all, once. The owner hears when they have come.
func (s *Session) WantSegmented(number uint64, n uint32, owner Owner) {
	if !s.segmented.untaken[number] {
		return
	}
	s.segmented.asked[number] = &askedSegmented{want: int(n), bytes: make([]byte, n), owner: owner}
	s.pending.Push(wire.Head{Events: wire.Control, Code: wire.SegmentedWanted, Stream: number - 1, ChunkLen: n})
}

// SegmentedBytes gives what WantSegmented has asked for; done is false while not all has come. bytes is nil where the peer does not give
// them, or the session is over.
func (s *Session) SegmentedBytes(number uint64) (bytes []byte, done bool) {
	asked := s.segmented.asked[number]
	switch {
	case asked == nil:
		return nil, true
	case asked.refused:
		delete(s.segmented.asked, number)
		return nil, true
	case asked.came < asked.want:
		return nil, false
	}
	delete(s.segmented.asked, number)
	return asked.bytes, true
}

// giveUp says that no bytes come any more.
func (a *askedSegmented) giveUp() {
	a.refused = true
	if a.owner != nil {
		a.owner.News()
	}
}

func (s *Session) receiveSegmentedTaken(head *wire.Head) error {
	first := head.Stream
	for i := range uint64(head.ChunkLen) {
		segmented := s.segmented.kept[first+i+1]
		if segmented == nil {
			return violation("segmented message", "SEGMENTED_TAKEN of segmented message %d, which was not sent, or was taken before", first+i)
		}
		delete(s.segmented.kept, segmented.number)
		if segmented.wanted && s.segmented.stop(segmented) {
			s.pending.Push(wire.Head{Events: wire.Control, Code: wire.SegmentedBytes, Stream: segmented.number - 1})
		}
		segmented.refs.Free()
	}
	return nil
}

func (s *Session) receiveSegmentedWanted(head *wire.Head) error {
	segmented := s.segmented.kept[head.Stream+1]
	if segmented == nil || segmented.wanted {
		return violation("segmented message", "SEGMENTED_WANTED of segmented message %d, which was not sent, was taken, or was asked for before", head.Stream)
	}
	segmented.wanted = true
	if uint64(segmented.refs.Len()) != uint64(head.ChunkLen) {
		s.pending.Push(wire.Head{Events: wire.Control, Code: wire.SegmentedBytes, Stream: head.Stream})
		return nil
	}
	s.segmented.answers.Push(segmented)
	return nil
}

func (s *Session) receiveSegmentedBytes(head *wire.Head, record ring.Record) error {
	number := head.Stream + 1
	asked := s.segmented.asked[number]
	if asked == nil || asked.refused || asked.came == asked.want || int(head.ChunkLen) > asked.want-asked.came {
		return violation("segmented message", "%d bytes of segmented message %d, which were not asked for", head.ChunkLen, head.Stream)
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
		delete(s.segmented.asked, number)
		return nil
	}
	if asked.owner != nil {
		asked.owner.News()
	}
	return nil
}

// stop ends an answer that is under way; false: all of it was sent.
func (r *segmented) stop(segmented *keptSegmented) bool {
	before := r.answers.Len()
	r.answers.Keep(func(other *keptSegmented) bool { return other != segmented })
	return r.answers.Len() < before
}

// answering says whether bytes that the peer has asked for wait for room.
func (r *segmented) answering() bool { return r != nil && r.answers.Len() > 0 }

// answer sends the next bytes of the first answer, and gives the next one its turn. false: there is no room.
func (r *segmented) answer(out Outbound) bool {
	segmented := *r.answers.First()
	bytes := segmented.refs[segmented.part].ReadOnlyData()[segmented.off:]
	bytes = bytes[:min(len(bytes), out.RecordLenMax()-wire.FrameHeadLen)]
	place, ok := out.Begin(wire.FrameHeadLen + len(bytes))
	if !ok {
		return false
	}
	head := wire.Head{Events: wire.Control, Code: wire.SegmentedBytes, Stream: segmented.number - 1, ChunkLen: uint32(len(bytes))}
	encoded := head.Encode()
	place.Put(encoded[:])
	place.Put(bytes)
	r.answers.Pop()
	if segmented.off += len(bytes); segmented.off == segmented.refs[segmented.part].Len() {
		segmented.part, segmented.off = segmented.part+1, 0
	}
	if segmented.part < len(segmented.refs) {
		r.answers.Push(segmented)
	}
	return true
}
