package pool

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// Words of mapped memory, which other processes read and write at the same time. Offsets are multiples of 8.

func word(memory []byte, at int) *uint64 {
	_ = memory[at+7]
	return (*uint64)(unsafe.Pointer(&memory[at]))
}

func loadWord(memory []byte, at int) uint64         { return atomic.LoadUint64(word(memory, at)) }
func storeWord(memory []byte, at int, value uint64) { atomic.StoreUint64(word(memory, at), value) }

// A Fault is why a ref is not taken hold of: spec/wire.md, section 12.
type Fault uint8

// Faults of refs.
const (
	// None: there is no fault.
	None Fault = iota
	// Stale is a ref of an earlier generation.
	Stale
	// Forged is a ref that its pool's members have not made.
	Forged
	// Malformed is a ref to what is not in its extent, or of another pool.
	Malformed
	// Gone is a ref whose owner or extent is gone, or can't be asked for now.
	Gone
	// Short is a ref that this process can't map or count.
	Short
)

func (f Fault) Error() string {
	return [...]string{
		"no fault", "a ref to a block that has been used again", "a ref that no member of the pool has made",
		"a ref to what is not in its extent, or of another pool", "a ref whose owner can't be reached",
		"a ref that this process has no memory for, or holds too often",
	}[f]
}

// Take takes hold of what a ref names by its page's word in a row that this process writes: spec/pool.md, section 5. pages is
// how long the block is. The caller keeps others of this process from the row meanwhile.
func Take(extent, row []byte, shape Shape, ref *Ref) (pages uint32, fault Fault) {
	if ref.Page >= shape.pages {
		return 0, Malformed
	}
	at := shape.HoldOff(int(ref.Page))
	taken, held := HoldOf(loadWord(row, at))
	if held == holdCountMax {
		return 0, Short
	}
	storeWord(row, at, uint64(taken+1)<<32|uint64(held+1))
	if pages, fault = check(extent, shape, ref); fault != None {
		letGo(row, shape, ref.Page)
	}
	return pages, fault
}

// check compares a ref, whose page is within the extent, with the directory.
func check(extent []byte, shape Shape, ref *Ref) (pages uint32, fault Fault) {
	key := loadWord(extent, shape.KeyOff(int(ref.Page)))
	pages, generation := StateOf(loadWord(extent, shape.StateOff(int(ref.Page))))
	switch {
	case generation != ref.Generation:
		return pages, Stale
	case pages == 0 || key == 0 || ref.TagOf(key) != ref.Tag:
		return pages, Forged
	}
	length := uint64(pages) * pageLen
	if pages > shape.pages-ref.Page || ref.Offset > length || ref.Len > length-ref.Offset || ref.Len == 0 {
		return pages, Malformed
	}
	return pages, None
}

// letGo lets go of one hold.
func letGo(row []byte, shape Shape, page uint32) {
	atomic.AddUint64(word(row, shape.HoldOff(int(page))), ^uint64(0))
}

// header is the beginning of an extent.
func putHeader(memory []byte, pool [idLen]byte, member, extent uint32, shape Shape) {
	le := binary.LittleEndian
	copy(memory, extentMagic)
	copy(memory[8:], pool[:])
	le.PutUint32(memory[24:], member)
	le.PutUint32(memory[28:], extent)
	le.PutUint32(memory[32:], shape.pages)
}

// headerFits compares the beginning of another member's extent with what was announced.
func headerFits(memory []byte, pool [idLen]byte, member, extent uint32, shape Shape) bool {
	var want, got [36]byte
	putHeader(want[:], pool, member, extent, shape)
	copy(got[:], memory)
	return got == want
}
