package flat

import (
	"encoding/binary"
	"math/bits"
)

const (
	wireVarint  = 0
	wireFixed64 = 1
	wireLen     = 2
	wireGroup   = 3
	wireEnd     = 4
	wireFixed32 = 5
)

// wire is how protobuf has one value of a kind.
func (f *fieldRow) wire() uint64 {
	switch f.kind {
	case kindDouble, kindFixed64, kindSfixed64:
		return wireFixed64
	case kindFloat, kindFixed32, kindSfixed32:
		return wireFixed32
	case kindString, kindBytes:
		return wireLen
	case kindMessage:
		if f.has(flagDelimited) {
			return wireGroup
		}
		return wireLen
	}
	return wireVarint
}

// Protobuf encodes the message as protobuf has it.
//
// Errors: the type reaches what protobuf has no form for; a shared object has changed.
func (o Object) Protobuf() ([]byte, error) {
	t := o.of.table
	if err := t.shapes[o.of.index].protobuf; err != nil {
		return nil, err
	}
	if o.shared {
		// The encoder follows offsets without a bound on how often.
		copied, err := o.Clone()
		if err != nil {
			return nil, err
		}
		o = copied
	}
	e := encoder{Table: t, object: o.bytes}
	e.grow(len(o.bytes))
	e.record(o.root, o.of.index)
	return e.out[e.at:], nil
}

// An encoder writes from the end on: the length of a message is known when all of it is written.
type encoder struct {
	*Table
	object []byte
	out    []byte
	at     int
}

// grow makes room for n bytes before at.
func (e *encoder) grow(n int) {
	if e.at >= n {
		return
	}
	used := len(e.out) - e.at
	out := make([]byte, 2*len(e.out)+n)
	copy(out[len(out)-used:], e.out[e.at:])
	e.out, e.at = out, len(out)-used
}

func (e *encoder) bytes(b []byte) {
	e.grow(len(b))
	e.at -= len(b)
	copy(e.out[e.at:], b)
}

func (e *encoder) varint(v uint64) {
	var b [binary.MaxVarintLen64]byte
	e.bytes(b[:binary.PutUvarint(b[:], v)])
}

func (e *encoder) tag(f *fieldRow, wire uint64) { e.varint(uint64(f.number)<<3 | wire) }

func (e *encoder) word(at uint32) uint32 { return binary.LittleEndian.Uint32(e.object[at:]) }

func (e *encoder) record(at, typeIdx uint32) {
	if unknown := e.word(at); unknown != 0 {
		for i := e.word(unknown); i > 0; i-- {
			e.bytes(spanAt(e.object, unknown+blockHeadLen+spanLen*(i-1)))
		}
	}
	fields := e.fieldsOf(typeIdx)
	for w := presenceWords(uint32(len(fields))); w > 0; w-- {
		present := e.word(at + 4*w)
		for present != 0 {
			bit := 31 - bits.LeadingZeros32(present)
			present &^= 1 << bit
			e.field(at, &fields[int(w-1)*32+bit])
		}
	}
}

// field writes a field that has a value.
func (e *encoder) field(record uint32, f *fieldRow) {
	slot := record + f.slot
	if !f.label.isList() {
		e.value(slot, f)
		return
	}
	block, stride := e.word(slot), f.kind.width()
	if f.kind == kindMessage {
		stride = e.types[f.aux].recordLen
	}
	count, end := e.word(block), len(e.out)-e.at
	packed := f.has(flagPacked)
	for i := count; i > 0; i-- {
		at := block + blockHeadLen + stride*(i-1)
		switch {
		case packed:
			e.scalar(at, f)
		case f.kind == kindMessage:
			e.message(at, f)
		default:
			e.value(at, f)
		}
	}
	if packed && count > 0 {
		e.varint(uint64(len(e.out) - e.at - end))
		e.tag(f, wireLen)
	}
}

// value writes a value whose slot is given, with its tag.
func (e *encoder) value(slot uint32, f *fieldRow) {
	switch f.kind {
	case kindMessage:
		e.message(e.word(slot), f)
	case kindString, kindBytes:
		b := spanAt(e.object, slot)
		e.bytes(b)
		e.varint(uint64(len(b)))
		e.tag(f, wireLen)
	default:
		e.scalar(slot, f)
		e.tag(f, f.wire())
	}
}

func (e *encoder) message(at uint32, f *fieldRow) {
	end := len(e.out) - e.at
	if f.has(flagDelimited) {
		e.tag(f, wireEnd)
		e.record(at, f.aux)
		e.tag(f, wireGroup)
		return
	}
	e.record(at, f.aux)
	e.varint(uint64(len(e.out) - e.at - end))
	e.tag(f, wireLen)
}

// scalar writes a value without its tag.
func (e *encoder) scalar(at uint32, f *fieldRow) {
	switch f.kind {
	case kindDouble, kindFixed64, kindSfixed64:
		e.bytes(e.object[at : at+8])
	case kindFloat, kindFixed32, kindSfixed32:
		e.bytes(e.object[at : at+4])
	case kindInt64, kindUint64:
		e.varint(binary.LittleEndian.Uint64(e.object[at:]))
	case kindSint64:
		v := int64(binary.LittleEndian.Uint64(e.object[at:]))
		e.varint(uint64(v)<<1 ^ uint64(v>>63))
	case kindInt32, kindEnum:
		e.varint(uint64(int32(e.word(at))))
	case kindUint32:
		e.varint(uint64(e.word(at)))
	case kindSint32:
		v := int32(e.word(at))
		e.varint(uint64(uint32(v)<<1 ^ uint32(v>>31)))
	case kindBool:
		if e.object[at] != 0 {
			e.varint(1)
		} else {
			e.varint(0)
		}
	}
}
