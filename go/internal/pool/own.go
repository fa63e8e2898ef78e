package pool

import (
	"crypto/rand"
	"encoding/binary"

	"github.com/tollfree/tollfree/go/internal/region"
)

// An ownExtent is memory of this member's: it alone writes it. The pool's lock guards all but the data.
type ownExtent struct {
	region *region.Own
	index  uint32
	shape  Shape
	// byPage is the block that a page belongs to; nil where it is free.
	byPage []*block
	free   uint32
	rows   []*row
}

// A row is where a reader counts what it holds of the extent.
type row struct {
	reader uint32
	memory []byte
}

// A block is a run of pages. It is written until a ref to it is passed on, and used again when nobody holds it.
type block struct {
	extent      *ownExtent
	page, pages uint32
	// refs are this process's own.
	refs int
	// exported says that a ref was passed on.
	exported bool
	// renewed says that the next generation is in the directory: only stale refs may still be looked at.
	renewed bool
}

func newExtent(pool [idLen]byte, member, index uint32, shape Shape) (*ownExtent, error) {
	made, err := region.Create("tollfree-pool", shape.FileLen())
	if err != nil {
		return nil, err
	}
	putHeader(made.Memory(), pool, member, index, shape)
	return &ownExtent{region: made, index: index, shape: shape, byPage: make([]*block, shape.pages), free: shape.pages}, nil
}

func (e *ownExtent) idle() bool { return e.free == e.shape.pages }

// close gives the memory back: no block of it is in use here. Others keep what they have mapped.
func (e *ownExtent) close() {
	for _, row := range e.rows {
		region.Unmap(row.memory)
	}
	e.rows = nil
	e.region.Unmap()
}

// alloc makes a block of so many pages, the first that fits.
func (e *ownExtent) alloc(pages uint32) *block {
	if e.free < pages {
		return nil
	}
	run := uint32(0)
	for at := range e.shape.pages {
		if e.byPage[at] != nil {
			run = 0
			continue
		}
		if run++; run == pages {
			b := &block{extent: e, page: at + 1 - pages, pages: pages, refs: 1}
			for i := b.page; i <= at; i++ {
				e.byPage[i] = b
			}
			e.free -= pages
			return b
		}
	}
	return nil
}

func (b *block) data() []byte {
	at := b.extent.shape.pageOff(b.page)
	end := at + int(b.pages)*pageLen
	return b.extent.region.Memory()[at:end:end]
}

// release makes the pages free.
func (b *block) release() {
	for i := b.page; i < b.page+b.pages; i++ {
		b.extent.byPage[i] = nil
	}
	b.extent.free += b.pages
}

// generation is the block's, from 1 on.
func (b *block) generation() uint64 {
	_, generation := StateOf(loadWord(b.extent.region.Memory(), b.extent.shape.StateOff(int(b.page))))
	return max(generation, 1)
}

// ref makes a ref to a part of the block, and publishes the block before its first.
func (b *block) ref(pool [idLen]byte, member uint32, offset, length uint64) Ref {
	memory, shape, page := b.extent.region.Memory(), b.extent.shape, int(b.page)
	r := Ref{Pool: pool, Member: member, Extent: b.extent.index, Page: b.page, Generation: b.generation(), Offset: offset, Len: length}
	if !b.exported {
		b.exported = true
		var random [8]byte
		key := uint64(0)
		for key == 0 {
			// It never fails.
			_, _ = rand.Read(random[:])
			key = binary.LittleEndian.Uint64(random[:])
		}
		storeWord(memory, shape.KeyOff(page), key)
		storeWord(memory, shape.StateOff(page), State(b.pages, r.Generation))
	}
	r.Tag = r.TagOf(loadWord(memory, shape.KeyOff(page)))
	return r
}

// reuse makes the block's pages free if nobody holds it: spec/pool.md, section 5. This process has no ref to it.
func (b *block) reuse() bool {
	e, page := b.extent, int(b.page)
	at := e.shape.HoldOff(page)
	if !b.renewed {
		generation := b.generation()
		if generation == generationMax {
			return false
		}
		before := make([]uint64, len(e.rows))
		for i, row := range e.rows {
			before[i] = loadWord(row.memory, at)
			if _, held := HoldOf(before[i]); held > 0 {
				return false
			}
		}
		for i, row := range e.rows {
			if loadWord(row.memory, at) != before[i] {
				return false
			}
		}
		storeWord(e.region.Memory(), e.shape.StateOff(page), State(0, generation+1))
		storeWord(e.region.Memory(), e.shape.KeyOff(page), 0)
		b.renewed = true
	}
	for _, row := range e.rows {
		if _, held := HoldOf(loadWord(row.memory, at)); held > 0 {
			return false
		}
	}
	b.release()
	return true
}

// forget drops the rows of a reader: all, or those that hold nothing. It says whether any is left.
func (e *ownExtent) forget(reader uint32, all bool) (left bool) {
	kept := e.rows[:0]
	for _, row := range e.rows {
		if row.reader == reader && (all || row.idle(e.shape)) {
			region.Unmap(row.memory)
			continue
		}
		left = left || row.reader == reader
		kept = append(kept, row)
	}
	clear(e.rows[len(kept):])
	e.rows = kept
	return left
}

func (r *row) idle(shape Shape) bool {
	for page := range int(shape.pages) {
		if _, held := HoldOf(loadWord(r.memory, shape.HoldOff(page))); held > 0 {
			return false
		}
	}
	return true
}
