package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Lengths of a segmented message's parts, spec/wire.md, section 12.
const (
	RefLen = 56
)

// A SegmentEntry is a ref, and how many inline bytes go before its own.
type SegmentEntry struct {
	Before uint32
	Ref    [RefLen]byte
}

// len is how many bytes the ref names.
func (e *SegmentEntry) len() uint64 { return binary.LittleEndian.Uint64(e.Ref[RefLen-8:]) }

// A SegmentedMessage is a message whose bytes lie in part in a pool.
type SegmentedMessage struct {
	// Len is how many bytes the message has, RefBytes how many of them are the refs'.
	Len, RefBytes uint32
	Inline        []byte
	Entries       []SegmentEntry
}

// AppendSegmented appends what a segmented message carries of a message of n bytes.
func AppendSegmented(b []byte, n uint32, inline []byte, entries []SegmentEntry) []byte {
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

// ParseSegmented takes apart what a segmented message carries, private bytes. Inline is a part of them.
//
// Errors: the segmented message does not add up.
func ParseSegmented(b []byte) (r SegmentedMessage, err error) {
	if len(b) < SegmentedHeadLen {
		return r, fmt.Errorf("a segmented message of %d bytes is shorter than its head", len(b))
	}
	n, count := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	rest := b[SegmentedHeadLen:]
	if count == 0 || count > SegmentedRefCountMax || len(rest) < int(count)*SegmentEntryLen {
		return r, fmt.Errorf("a segmented message of %d bytes with %d refs", len(b), count)
	}
	inline := len(rest) - int(count)*SegmentEntryLen
	r = SegmentedMessage{Len: n, Inline: rest[:inline:inline], Entries: make([]SegmentEntry, count)}
	total, before := uint64(inline), uint64(0)
	for i, at := 0, inline; i < int(count); i, at = i+1, at+SegmentEntryLen {
		entry := &r.Entries[i]
		entry.Before = binary.LittleEndian.Uint32(rest[at:])
		copy(entry.Ref[:], rest[at+8:])
		before += uint64(entry.Before)
		length := entry.len()
		if length == 0 || length > MessageLenMax {
			return r, fmt.Errorf("a ref of %d bytes in a segmented message", length)
		}
		total += length
	}
	if before > uint64(inline) || total != uint64(n) {
		return r, errors.New("the parts of a segmented message are not as long as its head says")
	}
	r.RefBytes = n - uint32(inline)
	return r, nil
}
