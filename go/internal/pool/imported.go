package pool

import (
	"errors"

	"github.com/tollfree/tollfree/go/internal/region"
)

// An extentKey names an extent of the pool.
type extentKey struct{ member, extent uint32 }

// imported is another member's extent, mapped for reading, with the row in which this process counts what it holds. The pool's
// lock guards all but the data.
type imported struct {
	key    extentKey
	shape  Shape
	memory []byte
	row    *region.Own
	// held are the blocks that this process holds, by their first pages.
	held map[uint32]*heldBlock
	// parted says that the extent is not to be had any more: it is mapped for as long as something is held.
	parted bool
}

// heldBlock is a block that this process holds, so often.
type heldBlock struct {
	page, pages uint32
	generation  uint64
	count       int
}

// newImported checks and maps an extent whose descriptor has come, and closes that, and makes a row.
func newImported(pool [idLen]byte, key extentKey, dataLen uint64, fd int) (*imported, error) {
	shape, ok := ShapeOf(dataLen)
	if !ok {
		region.CloseGiven(fd)
		return nil, errors.New("an extent of a length that none has")
	}
	memory, err := region.Map(fd, shape.FileLen())
	if err != nil {
		return nil, err
	}
	if !headerFits(memory, pool, key.member, key.extent, shape) {
		region.Unmap(memory)
		return nil, errors.New("an extent whose header does not say what was announced")
	}
	row, err := region.Create("tollfree-row", shape.RowLen())
	if err != nil {
		region.Unmap(memory)
		return nil, err
	}
	return &imported{key: key, shape: shape, memory: memory, row: row, held: map[uint32]*heldBlock{}}, nil
}

func (m *imported) close() {
	region.Unmap(m.memory)
	m.row.Unmap()
}

// take takes hold of what a ref names.
func (m *imported) take(ref *Ref) (data []byte, fault Fault) {
	pages, fault := Take(m.memory, m.row.Memory(), m.shape, ref)
	if fault != None {
		return nil, fault
	}
	held := m.held[ref.Page]
	if held == nil {
		held = &heldBlock{page: ref.Page, pages: pages, generation: ref.Generation}
		m.held[ref.Page] = held
	}
	held.count++
	at := m.shape.pageOff(ref.Page) + int(ref.Offset)
	end := at + int(ref.Len)
	return m.memory[at:end:end], None
}

// takeAgain holds a block once more.
func (m *imported) takeAgain(held *heldBlock) bool {
	at := m.shape.HoldOff(int(held.page))
	taken, count := HoldOf(loadWord(m.row.Memory(), at))
	if count == holdCountMax {
		return false
	}
	storeWord(m.row.Memory(), at, uint64(taken+1)<<32|uint64(count+1))
	held.count++
	return true
}

// letGo lets go of a block once.
func (m *imported) letGo(page uint32) {
	letGo(m.row.Memory(), m.shape, page)
	held := m.held[page]
	if held.count--; held.count == 0 {
		delete(m.held, page)
	}
}

// blockAt is the block that this process holds at a place of the data.
func (m *imported) blockAt(page uint32) *heldBlock {
	for at := page; ; at-- {
		if held := m.held[at]; held != nil {
			if page < at+held.pages {
				return held
			}
			return nil
		}
		if at == 0 {
			return nil
		}
	}
}
