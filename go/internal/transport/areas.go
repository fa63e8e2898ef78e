package transport

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tollfree/tollfree/go/internal/region"
	"github.com/tollfree/tollfree/go/internal/ring"
	"github.com/tollfree/tollfree/go/internal/steps"
	"github.com/tollfree/tollfree/go/internal/wire"
)

const (
	// areasMax is how many areas of a side may count at once.
	areasMax = 2
	// idleFirst is how long an area is kept that is not used; longer for each further one of a session.
	idleFirst = 500 * time.Millisecond
	idleMax   = 32 * time.Second
)

// areas are both sides' payload areas; spec/wire.md, section 16. Its methods are called with the link's lock held.
type areas struct {
	link *link
	// came are descriptors that no offer has asked for yet; -1 stands for a descriptor that could not be taken.
	came    []int
	tooMany atomic.Bool
	mapped  map[uint32][]byte

	// own is the area that this side places chunks in; nil while there is none.
	own *ownArea
	// made is how many this side has offered, unanswered how many of these have no answer.
	made       uint32
	unanswered int
	refused    bool
}

func newAreas(l *link) areas { return areas{link: l} }

// given takes a descriptor that has come on the socket.
func (a *areas) given(fd int) {
	if len(a.came) >= areasMax || a.link.life.over() {
		if fd >= 0 {
			region.CloseGiven(fd)
		}
		a.tooMany.Store(true)
		return
	}
	a.came = append(a.came, fd)
}

func (a *areas) closeGiven() {
	for _, fd := range a.came {
		if fd >= 0 {
			region.CloseGiven(fd)
		}
	}
	a.came = nil
}

// Map maps an area that the peer offers.
func (a *areas) Map(area, length uint32) (mapped bool, err error) {
	if length < wire.AreaLenMin || length > wire.AreaLenMax || length%wire.PageLen != 0 {
		return false, fmt.Errorf("a length of %d bytes", length)
	}
	if len(a.mapped) >= areasMax {
		return false, fmt.Errorf("it is offered while %d are mapped", len(a.mapped))
	}
	if len(a.came) == 0 {
		// What ends the session will be heard of where the socket is waited for.
		_, _ = a.link.conn.Drain(a.given)
	}
	if len(a.came) == 0 {
		return false, errors.New("its descriptor has not come")
	}
	fd := a.came[0]
	a.came = a.came[1:]
	if fd < 0 {
		return false, nil
	}
	memory, err := region.Map(fd, int(length))
	if errors.Is(err, region.ErrShort) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if a.mapped == nil {
		a.mapped = map[uint32][]byte{}
	}
	a.mapped[area] = memory
	return true, nil
}

// Unmap gives up an area that the peer drops.
func (a *areas) Unmap(area uint32) {
	if memory := a.mapped[area]; memory != nil {
		region.Unmap(memory)
		delete(a.mapped, area)
	}
}

// Holds says whether n bytes at a place are within a mapped area.
func (a *areas) Holds(n uint32, at wire.AreaRange) bool {
	length := uint64(len(a.mapped[at.Area]))
	return length > 0 && at.Offset <= length && uint64(n) <= length-at.Offset
}

// Copy copies out of a mapped area.
func (a *areas) Copy(dst []byte, at wire.AreaRange) bool {
	if !a.Holds(uint32(len(dst)), at) {
		return false
	}
	copy(dst, a.mapped[at.Area][at.Offset:])
	return true
}

// unmapAll gives everything back at the end.
func (a *areas) unmapAll() {
	a.closeGiven()
	for _, memory := range a.mapped {
		region.Unmap(memory)
	}
	a.mapped = nil
	if a.own != nil {
		a.own.unmap()
		a.own = nil
	}
}

// ownArea is an area that this side has made. Chunks are placed in order, round and round; the room of each is free when the
// peer has read the record that refers to it.
type ownArea struct {
	region   *region.Own
	index    uint32
	accepted bool
	chunks   []placed
	next     int
	used     time.Time
	idle     *time.Timer
}

// placed is a chunk in an area; end is the ring's position behind its record.
type placed struct {
	at, n int
	end   uint64
}

func (o *ownArea) unmap() {
	o.idle.Stop()
	o.region.Unmap()
}

// room is where n bytes are free.
func (o *ownArea) room(n int, consumed uint64) (at int, ok bool) {
	for len(o.chunks) > 0 && o.chunks[0].end <= consumed {
		o.chunks = o.chunks[1:]
	}
	length := len(o.region.Memory())
	if len(o.chunks) == 0 {
		o.chunks = nil
		return 0, n <= length
	}
	first := o.chunks[0].at
	switch {
	case o.next <= first:
		return o.next, o.next+n < first
	case o.next+n <= length:
		return o.next, true
	}
	return 0, n < first
}

// begin makes room for a record of n bytes, and for a chunk of at most want bytes.
func (a *areas) begin(n, want int) (record, chunk ring.Place, at wire.AreaRange, ok bool) {
	own := a.own
	if own == nil {
		a.offer()
		return record, chunk, at, false
	}
	if !own.accepted {
		return record, chunk, at, false
	}
	length := min(want, len(own.region.Memory())/wire.AreaChunkShare)
	offset, free := own.room(length, a.link.rings.sender.Seen())
	if !free {
		if offset, free = own.room(length, a.link.rings.sender.Consumed()); !free {
			return record, chunk, at, false
		}
	}
	record, ok = a.link.rings.sender.Begin(n)
	if !ok {
		return record, chunk, at, false
	}
	own.used = time.Now()
	own.chunks = append(own.chunks, placed{offset, length, a.link.rings.sender.Staged()})
	own.next = (offset + length + wire.LineLen - 1) &^ (wire.LineLen - 1)
	chunk = ring.PlaceOf(own.region.Memory()[offset : offset+length])
	return record, chunk, wire.AreaRange{Area: own.index, Offset: uint64(offset)}, true
}

// offer makes an area and offers it, unless the peer takes none or two still count.
func (a *areas) offer() {
	length := int(min(uint64(a.link.said.AreaLenMax), wire.AreaLenDefault)) &^ (wire.PageLen - 1)
	if a.refused || length < wire.AreaLenMin || a.unanswered > 0 {
		return
	}
	made, err := region.Create("tollfree-area", length)
	if err != nil {
		a.refused = true
		return
	}
	err = a.link.conn.SendDescriptor(made.FD())
	steps.Pass(steps.AreaSent)
	made.Sent()
	if err != nil {
		// The socket is full of doorbells, or at its end.
		made.Unmap()
		return
	}
	own := &ownArea{region: made, index: a.made, used: time.Now()}
	a.own = own
	a.made++
	a.unanswered++
	a.link.session.OfferArea(own.index, uint32(length))
	keep := min(idleFirst<<(2*min(own.index, 8)), idleMax)
	own.idle = time.AfterFunc(keep, func() { a.drop(own, keep) })
}

// drop gives an area up that has not been used for a while. It takes the link's lock by itself.
func (a *areas) drop(own *ownArea, keep time.Duration) {
	l := a.link
	l.mu.Lock()
	defer l.unlock()
	if a.own != own || l.life.over() {
		return
	}
	if left := keep - time.Since(own.used); left > 0 || !own.accepted || own.chunks != nil && !own.empty(l.rings.sender.Consumed()) {
		own.idle.Reset(max(left, keep/2))
		return
	}
	own.unmap()
	a.own = nil
	l.session.DropArea(own.index)
}

func (o *ownArea) empty(consumed uint64) bool {
	return len(o.chunks) == 0 || o.chunks[len(o.chunks)-1].end <= consumed
}

// Answered takes the peer's answer to an offer.
func (a *areas) Answered(area uint32, accepted bool) {
	a.unanswered--
	if own := a.own; own != nil && own.index == area {
		own.accepted = accepted
		if !accepted {
			own.unmap()
			a.own = nil
		}
	}
	a.refused = a.refused || !accepted
}
