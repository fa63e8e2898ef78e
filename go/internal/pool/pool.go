package pool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/mem"
)

const (
	// mapTime is how long a reader waits for an extent that it does not map yet, before it asks the segmented message's sender for the bytes.
	mapTime = 20 * time.Millisecond
	// bufferTime is how long Buffer waits for memory.
	bufferTime = time.Second
	// deniedPause is how long a member does not ask again for what it was denied.
	deniedPause = 100 * time.Millisecond
	// copyMax is up to which length what a ref names is copied: package mem keeps no account of buffers that short.
	copyMax = 1024
)

// ErrFull says that the pool has no memory for more, or not yet.
var ErrFull = errors.New("the pool has no memory for this")

// ErrLeft says that this process has left the pool.
var ErrLeft = errors.New("this process has left the pool")

// A Pool is this process's membership. Its lock guards all of it; nobody waits while it is held.
type Pool struct {
	id     [idLen]byte
	member uint32
	// ordinary is the data bytes of the longest extent that is made ahead of need.
	ordinary uint64
	agent    *agent

	mu sync.Mutex
	// own are this member's extents, making those that the coordinator has not confirmed.
	own, making []*ownExtent
	lastExtent  uint32
	// waiting are blocks that were passed on and that this process has no ref to any more.
	waiting []*block
	asking  bool
	denied  time.Time
	// grown is closed, and made anew, when there may be more memory than before.
	grown chan struct{}
	// imports are others' extents whose owners look at this member's rows, parted those that are not to be had any more.
	imports map[extentKey]*imported
	parted  map[*imported]bool
	fetches map[extentKey]*fetch
	// live counts refs of this process to memory of the pool.
	live          int
	lent, taken   uint64
	leaves, isOut bool
}

// A fetch is the way of an extent to this process. done is closed at its end; fault is set before.
type fetch struct {
	done  chan struct{}
	fault Fault
	// late says that somebody has waited in vain: nobody waits until it is done.
	late bool
}

// Join makes this process a member of the pool that is coordinated at an address.
//
// Errors: nobody coordinates a pool there, or it refuses; ctx.
func Join(ctx context.Context, address string) (*Pool, error) {
	return join(ctx, address, newMessage(kindJoin))
}

// JoinInvited makes this process a member of a pool that only processes with an invitation join.
//
// Errors: as Join's.
func JoinInvited(ctx context.Context, address string, invitation [16]byte) (*Pool, error) {
	invited := newMessage(kindJoin)
	invited.Secret = invitation
	return join(ctx, address, invited)
}

func join(ctx context.Context, address string, first Message) (*Pool, error) {
	where, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	conn, welcome, err := greet(ctx, where, &first)
	if err != nil {
		return nil, err
	}
	p := &Pool{
		id: welcome.Pool, member: welcome.Member, ordinary: welcome.Len, grown: make(chan struct{}),
		imports: map[extentKey]*imported{}, parted: map[*imported]bool{}, fetches: map[extentKey]*fetch{},
	}
	p.agent = newAgent(p, where, welcome)
	go p.agent.run(conn)
	return p, nil
}

// ID is the pool's name.
func (p *Pool) ID() [16]byte { return p.id }

// Counts says how many refs this process has passed on, and has taken hold of.
func (p *Pool) Counts() (lent, taken uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lent, p.taken
}

// Leave has this process take hold of nothing more. It is out of the pool, which closes the channel, when nothing of the
// pool's memory is in use here any more.
func (p *Pool) Leave() (out <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaves = true
	p.leaveIfIdle()
	return p.agent.ended
}

func (p *Pool) leaveIfIdle() {
	if p.leaves && p.live == 0 && !p.isOut {
		p.isOut = true
		p.agent.leave()
	}
}

// pagesOf is how many pages n bytes take.
func pagesOf(n int) uint32 { return uint32((n + pageLen - 1) / pageLen) }

// lenMax is the length of the longest block.
const lenMax = extentPageCountMax * pageLen

// Try gives memory of n bytes to write to, and the buffer that it is. It never waits; where there is none, more is asked for.
func (p *Pool) Try(n int) (data []byte, buffer mem.Buffer, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.try(n)
}

func (p *Pool) try(n int) (data []byte, buffer mem.Buffer, err error) {
	if p.leaves {
		return nil, nil, ErrLeft
	}
	if n <= copyMax || n > lenMax {
		return nil, nil, fmt.Errorf("a buffer of %d bytes: %d to %d can be had of a pool", n, copyMax+1, lenMax)
	}
	p.reuse()
	for _, extent := range p.own {
		if b := extent.alloc(pagesOf(n)); b != nil {
			p.live++
			data = b.data()[:n:n]
			return data, p.bufferOf(data, &hold{pool: p, block: b}), nil
		}
	}
	p.need(pagesOf(n))
	return nil, nil, ErrFull
}

// Buffer waits for memory of n bytes, up to a second.
//
// Errors: ErrFull, ErrLeft, a length that none has.
func (p *Pool) Buffer(n int) (data []byte, buffer mem.Buffer, err error) {
	limit := time.NewTimer(bufferTime)
	defer limit.Stop()
	// What readers let go of rings nobody.
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		p.mu.Lock()
		data, buffer, err = p.try(n)
		grown := p.grown
		p.mu.Unlock()
		if !errors.Is(err, ErrFull) {
			return data, buffer, err
		}
		select {
		case <-grown:
		case <-look.C:
		case <-p.agent.ended:
			return nil, nil, ErrLeft
		case <-limit.C:
			return nil, nil, err
		}
	}
}

// reuse makes free what nobody holds any more.
func (p *Pool) reuse() {
	kept := p.waiting[:0]
	for _, b := range p.waiting {
		if !b.reuse() {
			kept = append(kept, b)
		}
	}
	clear(p.waiting[len(kept):])
	p.waiting = kept
}

// need asks for an extent with room for a block: as long as all before it together, up to an ordinary one.
func (p *Pool) need(pages uint32) {
	if p.asking || time.Since(p.denied) < deniedPause {
		return
	}
	all := uint64(0)
	for _, extent := range p.own {
		all += uint64(extent.shape.DataLen())
	}
	amount := max(min(all, p.ordinary), extentPageCountMin*pageLen, uint64(pages)*pageLen)
	message := newMessage(kindNeed)
	message.Amount = amount
	p.asking = p.agent.say(message)
}

// hasGrown wakes those who wait for memory.
func (p *Pool) hasGrown() {
	close(p.grown)
	p.grown = make(chan struct{})
}

// A hold is a ref of this process's to a block: its own, or another member's. It is the "pool" that a mem.Buffer goes back to.
type hold struct {
	pool     *Pool
	block    *block
	imported *imported
	page     uint32
}

// Get is never called: a hold gives no buffers out.
func (h *hold) Get(n int) *[]byte {
	b := make([]byte, n)
	return &b
}

// Put lets go.
func (h *hold) Put(*[]byte) {
	h.pool.mu.Lock()
	defer h.pool.mu.Unlock()
	h.letGo()
}

func (h *hold) letGo() {
	p := h.pool
	if b := h.block; b != nil {
		if b.refs--; b.refs == 0 {
			if b.exported {
				p.waiting = append(p.waiting, b)
			} else {
				b.release()
			}
		}
	} else {
		h.imported.letGo(h.page)
		p.dropIfParted(h.imported)
	}
	p.live--
	p.leaveIfIdle()
}

func (p *Pool) bufferOf(data []byte, h *hold) mem.Buffer { return mem.NewBuffer(&data, h) }

// Take takes hold of what refs name, all or none, and waits a moment for extents that this process does not map yet.
//
// Errors: a Fault.
func (p *Pool) Take(refs []Ref) ([]mem.Buffer, error) {
	limit := time.Now().Add(mapTime)
	buffers := make([]mem.Buffer, 0, len(refs))
	for i := range refs {
		buffer, fault := p.takeOne(&refs[i], limit)
		if fault != None {
			for _, buffer := range buffers {
				buffer.Free()
			}
			return nil, fault
		}
		buffers = append(buffers, buffer)
	}
	return buffers, nil
}

func (p *Pool) takeOne(ref *Ref, limit time.Time) (mem.Buffer, Fault) {
	for {
		p.mu.Lock()
		buffer, fault, way := p.takeNow(ref)
		late := way != nil && way.late
		p.mu.Unlock()
		if way == nil {
			return buffer, fault
		}
		if late {
			return nil, Gone
		}
		timer := time.NewTimer(time.Until(limit))
		select {
		case <-way.done:
			timer.Stop()
			if way.fault != None {
				return nil, way.fault
			}
		case <-timer.C:
			p.mu.Lock()
			way.late = true
			p.mu.Unlock()
			return nil, Gone
		}
	}
}

// takeNow takes hold of what a ref names where its extent is mapped, and has it fetched otherwise.
func (p *Pool) takeNow(ref *Ref) (buffer mem.Buffer, fault Fault, way *fetch) {
	switch {
	case p.leaves:
		return nil, Gone, nil
	case ref.Pool != p.id || ref.Len > lenMax:
		return nil, Malformed, nil
	case ref.Member == p.member:
		return p.takeOwn(ref)
	}
	key := extentKey{ref.Member, ref.Extent}
	m := p.imports[key]
	if m == nil {
		way = p.fetches[key]
		if way == nil {
			if !p.agent.say(newMessage(kindMap).about(key.member, key.extent)) {
				return nil, Gone, nil
			}
			way = &fetch{done: make(chan struct{})}
			p.fetches[key] = way
		}
		return nil, None, way
	}
	data, fault := m.take(ref)
	if fault != None {
		return nil, fault, nil
	}
	p.live++
	p.taken++
	h := &hold{pool: p, imported: m, page: ref.Page}
	if len(data) <= copyMax {
		buffer = mem.SliceBuffer(append([]byte(nil), data...))
		h.letGo()
		return buffer, None, nil
	}
	return p.bufferOf(data, h), None, nil
}

// takeOwn takes hold of this member's own memory, which has come back.
func (p *Pool) takeOwn(ref *Ref) (buffer mem.Buffer, fault Fault, way *fetch) {
	for _, extent := range p.own {
		if extent.index != ref.Extent {
			continue
		}
		if ref.Page >= extent.shape.pages {
			return nil, Malformed, nil
		}
		if _, fault := check(extent.region.Memory(), extent.shape, ref); fault != None {
			return nil, fault, nil
		}
		b := extent.byPage[ref.Page]
		at := extent.shape.pageOff(ref.Page) + int(ref.Offset)
		end := at + int(ref.Len)
		data := extent.region.Memory()[at:end:end]
		p.taken++
		if len(data) <= copyMax {
			return mem.SliceBuffer(append([]byte(nil), data...)), None, nil
		}
		if b.refs++; b.refs == 1 {
			p.unwait(b)
		}
		p.live++
		return p.bufferOf(data, &hold{pool: p, block: b}), None, nil
	}
	return nil, Gone, nil
}

func (p *Pool) unwait(b *block) {
	for i, other := range p.waiting {
		if other == b {
			p.waiting = append(p.waiting[:i], p.waiting[i+1:]...)
			return
		}
	}
}

// finish ends the way of an extent.
func (p *Pool) finish(key extentKey, fault Fault) {
	if way := p.fetches[key]; way != nil {
		delete(p.fetches, key)
		way.fault = fault
		close(way.done)
	}
}

// part has an extent mapped only for as long as something of it is held.
func (p *Pool) part(m *imported) {
	delete(p.imports, m.key)
	m.parted = true
	p.parted[m] = true
	p.dropIfParted(m)
}

func (p *Pool) dropIfParted(m *imported) {
	if m.parted && len(m.held) == 0 {
		delete(p.parted, m)
		m.close()
		p.agent.say(newMessage(kindUnmapped).about(m.key.member, m.key.extent))
	}
}
