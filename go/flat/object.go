package flat

import (
	"bytes"
	"encoding/binary"
	"math"
	"unsafe"
)

// An Object is one flat message that was verified, or made by this process. Nobody changes its bytes: all goroutines may read it.
type Object struct {
	of    Type
	bytes []byte
	root  uint32
	// shared says that another process can write the bytes, and has promised not to.
	shared bool
}

// Type is the object's; Bytes are what travels.
func (o Object) Type() Type    { return o.of }
func (o Object) Bytes() []byte { return o.bytes }

// IsShared reports whether the object lies in memory that another process can write: see VerifyShared.
func (o Object) IsShared() bool { return o.shared }

// Clone makes an object of a copy of the bytes, which it verifies if the object is shared.
//
// Errors: those of Verify, of bytes that have changed since VerifyShared.
func (o Object) Clone() (Object, error) {
	copied := bytes.Clone(o.bytes)
	if o.shared {
		return o.of.Verify(copied)
	}
	return Object{of: o.of, bytes: copied, root: o.root}, nil
}

// Root is the message.
func (o Object) Root() Record { return Record{o.bytes, o.root, o.shared} }

// A Record is a message within an object, where it lies. Which slots it has its type says: generated code knows them. Strings and bytes that it
// gives lie in the object, and must not be changed. Strings of a shared object are copies.
type Record struct {
	bytes  []byte
	at     uint32
	shared bool
}

// IsZero says of a record that it stands for a message that is absent.
func (r Record) IsZero() bool { return r.bytes == nil }

func (r Record) word(off uint32) uint32 { return binary.LittleEndian.Uint32(r.bytes[r.at+off:]) }

// Has says whether the field with an index has a value.
func (r Record) Has(index uint32) bool {
	return r.bytes != nil && r.word(4+4*(index/32))>>(index%32)&1 != 0
}

// Oneof is the number of the member that a oneof has, by the offset of its tag; 0: it has none.
func (r Record) Oneof(tag uint32) uint32 {
	if r.bytes == nil {
		return 0
	}
	return r.word(tag)
}

// Word32, Word64 and Byte are what lies in a field's slot where it has a value, else fallback.
func (r Record) Word32(index, slot, fallback uint32) uint32 {
	if !r.Has(index) {
		return fallback
	}
	return r.word(slot)
}

func (r Record) Word64(index, slot uint32, fallback uint64) uint64 {
	if !r.Has(index) {
		return fallback
	}
	return binary.LittleEndian.Uint64(r.bytes[r.at+slot:])
}

func (r Record) Bool(index, slot uint32, fallback bool) bool {
	if !r.Has(index) {
		return fallback
	}
	return r.bytes[r.at+slot] != 0
}

func (r Record) Float(index, slot uint32, fallback float32) float32 {
	return math.Float32frombits(r.Word32(index, slot, math.Float32bits(fallback)))
}

func (r Record) Double(index, slot uint32, fallback float64) float64 {
	return math.Float64frombits(r.Word64(index, slot, math.Float64bits(fallback)))
}

// Bytes and String are the field's where it has a value, else fallback.
func (r Record) Bytes(index, slot uint32, fallback []byte) []byte {
	if !r.Has(index) {
		return fallback
	}
	return spanAt(r.bytes, r.at+slot)
}

func (r Record) String(index, slot uint32, fallback string) string {
	if !r.Has(index) {
		return fallback
	}
	return textOf(spanAt(r.bytes, r.at+slot), r.shared)
}

// Record is the field's message; a zero record where it has none.
func (r Record) Record(index, slot uint32) Record {
	if !r.Has(index) {
		return Record{}
	}
	return Record{r.bytes, r.word(slot), r.shared}
}

// List is the field's elements, each so many bytes long.
func (r Record) List(index, slot, stride uint32) List {
	if !r.Has(index) {
		return List{}
	}
	at := r.word(slot)
	return List{r.bytes, at + blockHeadLen, stride, binary.LittleEndian.Uint32(r.bytes[at:]), r.shared}
}

func spanAt(bytes []byte, at uint32) []byte {
	off, n := binary.LittleEndian.Uint32(bytes[at:]), binary.LittleEndian.Uint32(bytes[at+4:])
	return bytes[off : off+n : off+n]
}

// textOf is a string without a copy, since nobody changes an object's bytes; of a shared object it is a copy.
func textOf(b []byte, shared bool) string {
	if shared {
		return string(b)
	}
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// A List is the elements of a field, where they lie.
type List struct {
	bytes             []byte
	at, stride, count uint32
	shared            bool
}

// Len is how many elements there are. The other methods panic where an index is not below it.
func (l List) Len() int { return int(l.count) }

func (l List) place(i int) uint32 {
	if uint(i) >= uint(l.count) {
		panic("flat: an index beyond the end of a list")
	}
	return l.at + uint32(i)*l.stride
}

func (l List) Word32(i int) uint32  { return binary.LittleEndian.Uint32(l.bytes[l.place(i):]) }
func (l List) Word64(i int) uint64  { return binary.LittleEndian.Uint64(l.bytes[l.place(i):]) }
func (l List) Bool(i int) bool      { return l.bytes[l.place(i)] != 0 }
func (l List) Float(i int) float32  { return math.Float32frombits(l.Word32(i)) }
func (l List) Double(i int) float64 { return math.Float64frombits(l.Word64(i)) }
func (l List) Bytes(i int) []byte   { return spanAt(l.bytes, l.place(i)) }
func (l List) String(i int) string  { return textOf(l.Bytes(i), l.shared) }
func (l List) Record(i int) Record  { return Record{l.bytes, l.place(i), l.shared} }
