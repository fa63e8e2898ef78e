package pool

import (
	"unsafe"

	"google.golang.org/grpc/mem"
)

// find is the extent and the place in it where bytes lie that this process holds; nil where they lie elsewhere, also
// in a block of its own that this process has let go of.
func (p *Pool) find(data []byte) (own *block, other *imported, held *heldBlock, offset int) {
	within := func(memory []byte) (int, bool) {
		start, at := uintptr(unsafe.Pointer(unsafe.SliceData(memory))), uintptr(unsafe.Pointer(unsafe.SliceData(data)))
		return int(at - start), at >= start && at+uintptr(len(data)) <= start+uintptr(len(memory))
	}
	for _, extent := range p.own {
		if at, ok := within(extent.region.Memory()); ok && at >= extent.shape.DataOff() {
			b := extent.byPage[(at-extent.shape.DataOff())/pageLen]
			if b == nil || b.refs == 0 {
				return nil, nil, nil, 0
			}
			return b, nil, nil, at - extent.shape.pageOff(b.page)
		}
	}
	look := func(m *imported) (found bool) {
		at, ok := within(m.memory)
		if !ok || at < m.shape.DataOff() {
			return false
		}
		if held = m.blockAt(uint32((at - m.shape.DataOff()) / pageLen)); held != nil {
			other, offset = m, at-m.shape.pageOff(held.page)
		}
		return held != nil
	}
	for _, m := range p.imports {
		if look(m) {
			return nil, other, held, offset
		}
	}
	for m := range p.parted {
		if look(m) {
			return nil, other, held, offset
		}
	}
	return nil, nil, nil, 0
}

// holdAgain makes one more hold of bytes that find has found. The caller has the lock.
func (p *Pool) holdAgain(data []byte, own *block, other *imported, held *heldBlock, offset int) (kept mem.Buffer, ok bool) {
	switch {
	case own != nil:
		if offset+len(data) > int(own.pages)*pageLen {
			return nil, false
		}
		own.refs++
		kept = p.bufferOf(data, &hold{pool: p, block: own})
	case other != nil:
		if offset+len(data) > int(held.pages)*pageLen || !other.takeAgain(held) {
			return nil, false
		}
		kept = p.bufferOf(data, &hold{pool: p, imported: other, page: held.page})
	default:
		return nil, false
	}
	p.live++
	return kept, true
}

// Lend makes a ref to bytes that lie in memory of the pool, and a buffer that holds them until the receiver has taken hold; ok is
// false where they lie elsewhere. The caller holds them.
func (p *Pool) Lend(data []byte) (ref Ref, kept mem.Buffer, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leaves || len(data) <= copyMax {
		return ref, nil, false
	}
	own, other, held, offset := p.find(data)
	if kept, ok = p.holdAgain(data, own, other, held, offset); !ok {
		return ref, nil, false
	}
	if own != nil {
		ref = own.ref(p.id, p.member, uint64(offset), uint64(len(data)))
	} else {
		ref = Ref{
			Pool: p.id, Member: other.key.member, Extent: other.key.extent, Page: held.page, Generation: held.generation,
			Offset: uint64(offset), Len: uint64(len(data)),
		}
		ref.Tag = ref.TagOf(loadWord(other.memory, other.shape.KeyOff(int(held.page))))
	}
	p.lent++
	return ref, kept, true
}

// Hold makes a buffer that holds bytes which lie in memory of the pool, and which this process holds already; ok is false where they lie
// elsewhere, or are short.
func (p *Pool) Hold(data []byte) (kept mem.Buffer, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live == 0 || len(data) <= copyMax {
		return nil, false
	}
	own, other, held, offset := p.find(data)
	return p.holdAgain(data, own, other, held, offset)
}

// InUse says whether this process holds memory of the pool: otherwise no bytes lie there.
func (p *Pool) InUse() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.live > 0
}
