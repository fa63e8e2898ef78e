// Package pool makes this process a member of a pool of memory: spec/pool.md. A member reads other members' memory where it
// lies, and lends its own, by refs of 56 bytes.
//
// All methods of Pool are safe for use by several goroutines. The race detector knows nothing of mapped memory.
package pool

import (
	"encoding/binary"
	"math/bits"

	"github.com/tollfree/tollfree/go/internal/wire"
)

// Constants of spec/pool.md, section 2.
const (
	Version            = 1
	idLen              = 16
	directoryOff       = 4096
	entryLen           = 16
	holdLen            = 8
	extentPageCountMin = 16
	extentPageCountMax = 262144
	holdCountMax       = 1<<32 - 1
	generationBits     = 45
	generationMax      = 1<<generationBits - 1
	pageLen            = wire.PageLen
)

// extentMagic begins an extent.
const extentMagic = "TFEXTENT"

// A Shape is where the parts of an extent lie, by how many pages of data it has.
type Shape struct{ pages uint32 }

// ShapeOf is that of an extent of so many bytes of data; ok is false where there is none.
func ShapeOf(dataLen uint64) (s Shape, ok bool) {
	pages := dataLen / pageLen
	if dataLen%pageLen != 0 || pages < extentPageCountMin || pages > extentPageCountMax {
		return Shape{}, false
	}
	return Shape{uint32(pages)}, true
}

func roundUp(n int) int { return (n + pageLen - 1) &^ (pageLen - 1) }

// Lengths and offsets in bytes.
func (s Shape) Pages() uint32           { return s.pages }
func (s Shape) DataLen() int            { return int(s.pages) * pageLen }
func (s Shape) DataOff() int            { return directoryOff + roundUp(int(s.pages)*entryLen) }
func (s Shape) FileLen() int            { return s.DataOff() + s.DataLen() }
func (s Shape) RowLen() int             { return roundUp(int(s.pages) * holdLen) }
func (s Shape) StateOff(page int) int   { return directoryOff + page*entryLen }
func (s Shape) KeyOff(page int) int     { return s.StateOff(page) + 8 }
func (s Shape) HoldOff(page int) int    { return page * holdLen }
func (s Shape) pageOff(page uint32) int { return s.DataOff() + int(page)*pageLen }

// State is a directory entry's word: a block's length in pages, 0 where none begins, and its generation.
func State(pages uint32, generation uint64) uint64 {
	return uint64(pages)<<generationBits | generation
}

// StateOf takes a directory entry's word apart.
func StateOf(word uint64) (pages uint32, generation uint64) {
	return uint32(word >> generationBits), word & generationMax
}

// HoldOf takes a row's word apart.
func HoldOf(word uint64) (taken, held uint32) { return uint32(word >> 32), uint32(word) }

// A Ref names bytes of a block.
type Ref struct {
	Pool           [idLen]byte
	Member, Extent uint32
	Page           uint32
	Generation     uint64
	Tag            uint64
	Offset, Len    uint64
}

func (r *Ref) block() uint64 { return State(r.Page, r.Generation) }

// Encode gives the ref's bytes.
func (r *Ref) Encode() (b [wire.RefLen]byte) {
	le := binary.LittleEndian
	copy(b[:], r.Pool[:])
	le.PutUint32(b[16:], r.Member)
	le.PutUint32(b[20:], r.Extent)
	le.PutUint64(b[24:], r.block())
	le.PutUint64(b[32:], r.Tag)
	le.PutUint64(b[40:], r.Offset)
	le.PutUint64(b[48:], r.Len)
	return b
}

// DecodeRef takes the fields out of a private copy of a ref.
func DecodeRef(b *[wire.RefLen]byte) (r Ref) {
	le := binary.LittleEndian
	copy(r.Pool[:], b[:])
	r.Member, r.Extent = le.Uint32(b[16:]), le.Uint32(b[20:])
	r.Page, r.Generation = StateOf(le.Uint64(b[24:]))
	r.Tag, r.Offset, r.Len = le.Uint64(b[32:]), le.Uint64(b[40:]), le.Uint64(b[48:])
	return r
}

// TagOf is the tag that the ref has where this is its block's key: spec/pool.md, section 3.
func (r *Ref) TagOf(key uint64) uint64 {
	var range_ [16]byte
	binary.LittleEndian.PutUint64(range_[:], r.Offset)
	binary.LittleEndian.PutUint64(range_[8:], r.Len)
	return sipHash(key, r.block(), range_[:])
}

// MemberOf is the number that follows from a member's secret: spec/pool.md, section 6.
func MemberOf(secret, pool [idLen]byte) uint32 {
	k0, k1 := binary.LittleEndian.Uint64(pool[:]), binary.LittleEndian.Uint64(pool[8:])
	return uint32(sipHash(k0, k1, secret[:]))
}

// sipHash is SipHash-2-4 (Aumasson and Bernstein, 2012).
func sipHash(k0, k1 uint64, message []byte) uint64 {
	v0, v1 := k0^0x736f6d6570736575, k1^0x646f72616e646f6d
	v2, v3 := k0^0x6c7967656e657261, k1^0x7465646279746573
	rounds := func(n int) {
		for range n {
			v0 += v1
			v1 = bits.RotateLeft64(v1, 13) ^ v0
			v0 = bits.RotateLeft64(v0, 32)
			v2 += v3
			v3 = bits.RotateLeft64(v3, 16) ^ v2
			v0 += v3
			v3 = bits.RotateLeft64(v3, 21) ^ v0
			v2 += v1
			v1 = bits.RotateLeft64(v1, 17) ^ v2
			v2 = bits.RotateLeft64(v2, 32)
		}
	}
	word := func(m uint64) {
		v3 ^= m
		rounds(2)
		v0 ^= m
	}
	last := uint64(len(message)) << 56
	for ; len(message) >= 8; message = message[8:] {
		word(binary.LittleEndian.Uint64(message))
	}
	for i, b := range message {
		last |= uint64(b) << (8 * i)
	}
	word(last)
	v2 ^= 0xff
	rounds(4)
	return v0 ^ v1 ^ v2 ^ v3
}
