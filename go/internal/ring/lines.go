package ring

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/tollfree/tollfree/go/internal/wire"
)

// What a byte stream carries of a ring: whole lines, from one host's region to a mirror of it on another (spec/device.md, section 11).

// PublishedFrom is the end of what was published in a region's own ring, from a position on at which a record begins. The sender may
// publish meanwhile.
func PublishedFrom(own []byte, ringLen int, pos uint64) uint64 {
	g := geometry{own, uint64(ringLen / wire.LineLen)}
	for {
		head := atomic.LoadUint64(g.headWord(pos))
		if head == headEmpty {
			return pos
		}
		pos += linesOf(int(head >> 32))
	}
}

// AppendLines appends count lines of a ring, from a position on.
func AppendLines(to, memory []byte, ringLen int, pos, count uint64) []byte {
	g := geometry{memory, uint64(ringLen / wire.LineLen)}
	from, n := g.at(pos), int(count)*wire.LineLen
	if left := g.end() - from; n > left {
		return append(append(to, memory[from:g.end()]...), memory[wire.RingOff:wire.RingOff+n-left]...)
	}
	return append(to, memory[from:from+n]...)
}

// PutLines puts whole lines into a ring at a position, with an empty head behind. A receiver sees none of them before all are there.
func PutLines(memory []byte, ringLen int, pos uint64, lines []byte) {
	g := geometry{memory, uint64(ringLen / wire.LineLen)}
	atomic.StoreUint64(g.headWord(pos+uint64(len(lines)/wire.LineLen)), headEmpty)
	from := g.at(pos)
	n := copy(memory[from+headLen:g.end()], lines[headLen:])
	copy(memory[wire.RingOff:], lines[headLen+n:])
	atomic.StoreUint64(g.headWord(pos), binary.NativeEndian.Uint64(lines))
}

// Consumed and StoreConsumed are a control page's cursor, LoadWord its load as the word is.
func Consumed(memory []byte) uint64 { return atomic.LoadUint64(word64(memory, wire.ConsumedOff)) }
func StoreConsumed(memory []byte, pos uint64) {
	atomic.StoreUint64(word64(memory, wire.ConsumedOff), pos)
}
func LoadWord(memory []byte) uint32 { return atomic.LoadUint32(word32(memory, wire.LoadOff)) }
