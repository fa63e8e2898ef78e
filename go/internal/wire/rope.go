package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Lengths of a rope's parts, spec/wire.md, section 12.
const (
	RopeHeadLen     = 8
	RopeEntryLen    = 64
	RefLen          = 56
	RopeRefCountMax = 1024
)

// RopeCountMax is up to how many ropes a sender keeps for a peer that has not taken them.
const RopeCountMax = 1024

// A RopeEntry is a ref, and how many inline bytes go before its own.
type RopeEntry struct {
	Before uint32
	Ref    [RefLen]byte
}

// len is how many bytes the ref names.
func (e *RopeEntry) len() uint64 { return binary.LittleEndian.Uint64(e.Ref[RefLen-8:]) }

// A Rope is a message whose bytes lie in part in a pool.
type Rope struct {
	// Len is how many bytes the message has, RefBytes how many of them are the refs'.
	Len, RefBytes uint32
	Inline        []byte
	Entries       []RopeEntry
}

// AppendRope appends what a rope carries of a message of n bytes.
func AppendRope(b []byte, n uint32, inline []byte, entries []RopeEntry) []byte {
	b = binary.LittleEndian.AppendUint32(b, n)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(entries)))
	b = append(b, inline...)
	for i := range entries {
		b = binary.LittleEndian.AppendUint32(b, entries[i].Before)
		b = binary.LittleEndian.AppendUint32(b, 0)
		b = append(b, entries[i].Ref[:]...)
	}
	return b
}

// ParseRope takes apart what a rope carries, private bytes. Inline is a part of them.
//
// Errors: the rope does not add up.
func ParseRope(b []byte) (r Rope, err error) {
	if len(b) < RopeHeadLen {
		return r, fmt.Errorf("a rope of %d bytes is shorter than its head", len(b))
	}
	n, count := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	rest := b[RopeHeadLen:]
	if count == 0 || count > RopeRefCountMax || len(rest) < int(count)*RopeEntryLen {
		return r, fmt.Errorf("a rope of %d bytes with %d refs", len(b), count)
	}
	inline := len(rest) - int(count)*RopeEntryLen
	r = Rope{Len: n, Inline: rest[:inline:inline], Entries: make([]RopeEntry, count)}
	total, before := uint64(inline), uint64(0)
	for i, at := 0, inline; i < int(count); i, at = i+1, at+RopeEntryLen {
		entry := &r.Entries[i]
		entry.Before = binary.LittleEndian.Uint32(rest[at:])
		copy(entry.Ref[:], rest[at+8:])
		before += uint64(entry.Before)
		length := entry.len()
		if length == 0 || length > MessageLenMax {
			return r, fmt.Errorf("a ref of %d bytes in a rope", length)
		}
		total += length
	}
	if before > uint64(inline) || total != uint64(n) {
		return r, errors.New("the parts of a rope are not as long as its head says")
	}
	r.RefBytes = n - uint32(inline)
	return r, nil
}
