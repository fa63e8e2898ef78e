package flat

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"
)

// objectLenDefault is how long an object gets at most that a builder makes: what travels.
const objectLenDefault = 4 << 20

// A Builder makes an object. It is one goroutine's; the builders of its records are used before Finish alone.
// What is set anew leaves the bytes of the value before in the object, where its receiver finds them.
type Builder struct {
	arena arena
	of    Type
	root  uint32
}

// NewBuilder begins an object of a type, at most 4 MiB long.
func NewBuilder(of Type) *Builder {
	b := &Builder{of: of}
	b.arena.most = objectLenDefault
	b.root, _ = b.arena.begin(of, 128)
	return b
}

// Root is the message.
func (b *Builder) Root() RecordBuilder { return RecordBuilder{b, b.root, b.of.index} }

// Finish gives the object. Nothing of it may be built afterwards.
//
// Errors: it is too long; a required field lacks.
func (b *Builder) Finish() (Object, error) {
	if b.arena.long {
		return Object{}, fmt.Errorf("an object of %s: %w", b.of.Name(), errLong)
	}
	if b.of.table.shapes[b.of.index].demands {
		if err := b.arena.demand(b.root, b.of.index); err != nil {
			return Object{}, err
		}
	}
	return b.arena.finish(b.of, b.root), nil
}

// A RecordBuilder fills a message. Of a builder whose object has become too long nothing is kept; Finish says so.
type RecordBuilder struct {
	b       *Builder
	at      uint32
	typeIdx uint32
}

// set makes a field present, and gives its slot; 0: the object is too long.
func (r RecordBuilder) set(index uint32) uint32 {
	a := &r.b.arena
	if a.long || r.at == 0 {
		return 0
	}
	f := &a.fieldsOf(r.typeIdx)[index]
	a.choose(r.at, r.typeIdx, index, f)
	return r.at + f.slot
}

// drop has an implicit field be absent.
func (r RecordBuilder) drop(index uint32) {
	if a := &r.b.arena; !a.long && r.at != 0 {
		a.clear(r.at, index)
	}
}

// SetWord32, SetWord64 and SetBool put a value into a field by its index. Where implicit is set, a value of zero is the field's absence.
func (r RecordBuilder) SetWord32(index, value uint32, implicit bool) {
	if implicit && value == 0 {
		r.drop(index)
	} else if slot := r.set(index); slot != 0 {
		r.b.arena.put(slot, value)
	}
}

func (r RecordBuilder) SetWord64(index uint32, value uint64, implicit bool) {
	if implicit && value == 0 {
		r.drop(index)
	} else if slot := r.set(index); slot != 0 {
		r.b.arena.put64(slot, value)
	}
}

func (r RecordBuilder) SetBool(index uint32, value, implicit bool) {
	if implicit && !value {
		r.drop(index)
	} else if slot := r.set(index); slot != 0 {
		r.b.arena.b[slot] = 0
		if value {
			r.b.arena.b[slot] = 1
		}
	}
}

func (r RecordBuilder) SetFloat(index uint32, value float32, implicit bool) {
	r.SetWord32(index, math.Float32bits(value), implicit)
}

func (r RecordBuilder) SetDouble(index uint32, value float64, implicit bool) {
	r.SetWord64(index, math.Float64bits(value), implicit)
}

// SetBytes and SetString copy a value into the object.
func (r RecordBuilder) SetBytes(index uint32, value []byte, implicit bool) {
	if implicit && len(value) == 0 {
		r.drop(index)
	} else if slot := r.set(index); slot != 0 {
		r.b.arena.text(slot, value)
	}
}

func (r RecordBuilder) SetString(index uint32, value string, implicit bool) {
	r.SetBytes(index, unsafe.Slice(unsafe.StringData(value), len(value)), implicit)
}

// Make puts an empty message into a field, in the place of one that is there.
func (r RecordBuilder) Make(index uint32) RecordBuilder {
	a := &r.b.arena
	if a.long || r.at == 0 {
		return RecordBuilder{b: r.b}
	}
	typeIdx := a.fieldsOf(r.typeIdx)[index].aux
	at := a.zeros(int(a.types[typeIdx].recordLen))
	if at == 0 {
		return RecordBuilder{b: r.b}
	}
	a.put(r.set(index), at)
	return RecordBuilder{r.b, at, typeIdx}
}

// block makes a list of so many elements for a field, in the place of one that is there; 0: the list is empty, or the object is too long.
func (r RecordBuilder) block(index uint32, count int, stride uint32) uint32 {
	a := &r.b.arena
	if count == 0 {
		r.drop(index)
	}
	if a.long || r.at == 0 || count == 0 {
		return 0
	}
	if uint64(count)*uint64(stride) > uint64(a.most) {
		a.long = true
		return 0
	}
	at := a.zeros(blockHeadLen + count*int(stride))
	if at == 0 {
		return 0
	}
	a.put(at, uint32(count))
	a.put(at+4, uint32(count))
	a.put(r.set(index), at)
	return at + blockHeadLen
}

// MakeList puts so many empty messages into a field.
func (r RecordBuilder) MakeList(index uint32, count int) ListBuilder {
	if r.at == 0 {
		return ListBuilder{b: r.b}
	}
	typeIdx := r.b.arena.fieldsOf(r.typeIdx)[index].aux
	stride := r.b.arena.types[typeIdx].recordLen
	return ListBuilder{r.b, r.block(index, count, stride), stride, typeIdx}
}

// A ListBuilder fills messages of a list.
type ListBuilder struct {
	b          *Builder
	at, stride uint32
	typeIdx    uint32
}

// At is one of the messages, whose count MakeList was given.
func (l ListBuilder) At(i int) RecordBuilder {
	if l.at == 0 {
		return RecordBuilder{b: l.b}
	}
	return RecordBuilder{l.b, l.at + uint32(i)*l.stride, l.typeIdx}
}

// SetStrings and SetBlobs copy values into a list.
func (r RecordBuilder) SetStrings(index uint32, values []string) {
	at := r.block(index, len(values), spanLen)
	for i, value := range values {
		if at != 0 {
			r.b.arena.text(at+spanLen*uint32(i), unsafe.Slice(unsafe.StringData(value), len(value)))
		}
	}
}

func (r RecordBuilder) SetBlobs(index uint32, values [][]byte) {
	at := r.block(index, len(values), spanLen)
	for i, value := range values {
		if at != 0 {
			r.b.arena.text(at+spanLen*uint32(i), value)
		}
	}
}

// A Number is a value that lies in its slot.
type Number interface {
	~int32 | ~uint32 | ~int64 | ~uint64 | ~float32 | ~float64 | ~bool
}

// SetNumbers copies values into a list.
func SetNumbers[T Number](r RecordBuilder, index uint32, values []T) {
	var one T
	width := uint32(unsafe.Sizeof(one))
	at := r.block(index, len(values), width)
	if at == 0 {
		return
	}
	for i, value := range values {
		place := r.b.arena.b[at+width*uint32(i):]
		switch width {
		case 8:
			binary.LittleEndian.PutUint64(place, *(*uint64)(unsafe.Pointer(&value)))
		case 4:
			binary.LittleEndian.PutUint32(place, *(*uint32)(unsafe.Pointer(&value)))
		default:
			place[0] = *(*uint8)(unsafe.Pointer(&value))
		}
	}
}

// Numbers, Strings, Blobs and Messages are lists of one kind of elements. At panics where an index is not below Len.
type (
	Numbers[T Number] struct{ list List }
	Strings           struct{ list List }
	Blobs             struct{ list List }
	// R is a reader that generated code makes of a Record.
	Messages[R ~struct {
		bytes  []byte
		at     uint32
		shared bool
	}] struct{ list List }
)

// NumbersAt, StringsAt, BlobsAt and MessagesAt are a field's lists.
func NumbersAt[T Number](r Record, index, slot uint32) Numbers[T] {
	var one T
	return Numbers[T]{r.List(index, slot, uint32(unsafe.Sizeof(one)))}
}

func StringsAt(r Record, index, slot uint32) Strings { return Strings{r.List(index, slot, spanLen)} }
func BlobsAt(r Record, index, slot uint32) Blobs     { return Blobs{r.List(index, slot, spanLen)} }

func MessagesAt[R ~struct {
	bytes  []byte
	at     uint32
	shared bool
}](r Record, index, slot, stride uint32) Messages[R] {
	return Messages[R]{r.List(index, slot, stride)}
}

func (l Numbers[T]) Len() int  { return l.list.Len() }
func (l Strings) Len() int     { return l.list.Len() }
func (l Blobs) Len() int       { return l.list.Len() }
func (l Messages[R]) Len() int { return l.list.Len() }

func (l Strings) At(i int) string { return l.list.String(i) }
func (l Blobs) At(i int) []byte   { return l.list.Bytes(i) }
func (l Messages[R]) At(i int) R  { return R(l.list.Record(i)) }

func (l Numbers[T]) At(i int) (value T) {
	switch unsafe.Sizeof(value) {
	case 8:
		bits := l.list.Word64(i)
		return *(*T)(unsafe.Pointer(&bits))
	case 4:
		bits := l.list.Word32(i)
		return *(*T)(unsafe.Pointer(&bits))
	}
	bits := l.list.Bool(i)
	return *(*T)(unsafe.Pointer(&bits))
}

// MustTable is the table that generated code holds. It panics where the code was changed.
func MustTable(blob string) *Table {
	t, err := LoadTable([]byte(blob))
	if err != nil {
		panic(err)
	}
	return t
}

// MustType is a type that the table has. It panics where the code was changed.
func (t *Table) MustType(name string) Type {
	of, ok := t.Type(name)
	if !ok {
		panic("flat: a table without the type " + name)
	}
	return of
}
