package flat

import (
	"encoding/binary"
	"errors"
)

// errLong is of an object that would be longer than its limit.
var errLong = errors.New("the object would be longer than allowed")

// An arena is an object while it is made: records and blocks lie at multiples of 8, strings anywhere. Offsets stay good when it grows.
type arena struct {
	*Table
	b []byte
	// most is the longest that the object may get.
	most int
	long bool
}

func (a *arena) word(at uint32) uint32            { return binary.LittleEndian.Uint32(a.b[at:]) }
func (a *arena) put(at, value uint32)             { binary.LittleEndian.PutUint32(a.b[at:], value) }
func (a *arena) put64(at uint32, value uint64)    { binary.LittleEndian.PutUint64(a.b[at:], value) }
func (a *arena) has(record uint32, i uint32) bool { return a.word(record+4+4*(i/32))>>(i%32)&1 != 0 }

func (a *arena) set(record uint32, i uint32) {
	at := record + 4 + 4*(i/32)
	a.put(at, a.word(at)|1<<(i%32))
}

func (a *arena) clear(record uint32, i uint32) {
	at := record + 4 + 4*(i/32)
	a.put(at, a.word(at)&^(1<<(i%32)))
}

// zeros makes room for n bytes at a multiple of 8. Once the object is too long it gives the same room again, and long is set.
func (a *arena) zeros(n int) uint32 {
	at := (len(a.b) + 7) &^ 7
	if at+n > a.most {
		a.long = true
		return 0
	}
	for cap(a.b) < at+n {
		a.b = append(a.b[:cap(a.b)], 0)
	}
	old := len(a.b)
	a.b = a.b[:at+n]
	clear(a.b[old:])
	return uint32(at)
}

// text puts a string there, and its span.
func (a *arena) text(slot uint32, value []byte) {
	if len(a.b)+len(value) > a.most {
		a.long = true
		return
	}
	a.put(slot, uint32(len(a.b)))
	a.put(slot+4, uint32(len(value)))
	a.b = append(a.b, value...)
}

// element makes room for one more element of the list whose block's offset lies in a slot, which is 0 while there is none; ahead is how many
// are known to come. The place is zeros.
func (a *arena) element(slot, stride uint32, ahead int) (at uint32, ok bool) {
	block := a.word(slot)
	var count, capacity uint32
	if block != 0 {
		count, capacity = a.word(block), a.word(block+4)
	}
	if count == capacity {
		room := uint64(max(uint32(ahead), 2*count, 1))
		if room*uint64(stride) > uint64(a.most) {
			a.long = true
			return 0, false
		}
		bigger := a.zeros(blockHeadLen + int(room)*int(stride))
		if a.long {
			return 0, false
		}
		if block != 0 {
			old := a.b[block+blockHeadLen : block+blockHeadLen+count*stride]
			copy(a.b[bigger+blockHeadLen:], old)
			clear(old)
		}
		a.put(bigger, count)
		a.put(bigger+4, uint32(room))
		a.put(slot, bigger)
		block = bigger
	}
	a.put(block, count+1)
	return block + blockHeadLen + count*stride, true
}

// begin makes the root record, and finish the object.
func (a *arena) begin(y Type, ahead int) (root uint32, ok bool) {
	a.Table = y.table
	a.b = make([]byte, objectHeadLen, objectHeadLen+int(y.row().recordLen)+ahead+64)
	root = a.zeros(int(y.row().recordLen))
	return root, !a.long
}

func (a *arena) finish(y Type, root uint32) Object {
	copy(a.b, objectMagic)
	binary.LittleEndian.PutUint16(a.b[4:], objectVersion)
	a.put(8, uint32(len(a.b)))
	a.put(12, root)
	a.put64(16, y.print)
	return Object{of: y, bytes: a.b, root: root}
}
