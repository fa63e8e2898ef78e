// Package ring carries records between two processes through memory that both have mapped: spec/wire.md, sections 5 and 6.
//
// The words that order accesses (head words, consumed, waiting) go through sync/atomic on both sides; payloads are copied by
// copy between a head word's release and its acquire. The race detector knows nothing of mapped memory: it sees neither what
// the peer does there nor what this process does. Tests of two processes, and the vectors, stand for it.
package ring

import "unsafe"

// A Record is the payload of one record where it lies: in one part, or in two over the ring's end. A peer may change it at
// any time: take copies, and look at these.
type Record struct {
	a, b []byte
}

// RecordOf is a record that lies in one piece of private memory.
func RecordOf(payload []byte) Record { return Record{a: payload} }

// Len is the payload's length.
func (r Record) Len() int { return len(r.a) + len(r.b) }

// Copy fills dst with the bytes from at on. The caller has compared at + len(dst) with Len.
func (r Record) Copy(dst []byte, at int) {
	if at < len(r.a) {
		n := copy(dst, r.a[at:])
		dst, at = dst[n:], len(r.a)
	}
	copy(dst, r.b[at-len(r.a):])
}

// A Place is room for a payload that is still to be put there, all of it.
type Place struct {
	a, b []byte
}

// PlaceOf is a place in one piece of private memory.
func PlaceOf(room []byte) Place { return Place{a: room} }

// Put puts the next bytes there. The caller puts no more than it has asked room for.
func (p *Place) Put(bytes []byte) {
	if len(bytes) <= len(p.a) {
		copy(p.a, bytes)
		p.a = p.a[len(bytes):]
		return
	}
	n := copy(p.a, bytes)
	p.a, p.b = p.b[copy(p.b, bytes[n:]):], nil
}

// PutString is Put.
func (p *Place) PutString(text string) { p.Put(unsafe.Slice(unsafe.StringData(text), len(text))) }

// Left is how much room is left.
func (p *Place) Left() int { return len(p.a) + len(p.b) }
