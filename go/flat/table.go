// Package flat reads and makes flat messages: decoded messages that lie in one piece of memory and go from one process to another as they
// are (spec/flat.md). A Table says what their bytes mean (spec/table.md).
//
// Code that protoc-gen-go-tollfree generates uses this package; programs use that code.
package flat

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	tableMagic    = "TFTB"
	tableVersion  = 1
	tableHeadLen  = 64
	tableLenMax   = 1 << 28
	recordLenMax  = 1 << 20
	fieldCountMax = 65_535
	numberMax     = 1<<29 - 1
	noAux         = 1<<32 - 1

	typeRowLen  = 24
	fieldRowLen = 48
	enumRowLen  = 24
	valueRowLen = 12
	printOff    = 56
)

// A kind is what a field, or each element of a list, holds. Numbers are protobuf's field types, and two of Thrift's.
type kind uint8

const (
	kindDouble   kind = 1
	kindFloat    kind = 2
	kindInt64    kind = 3
	kindUint64   kind = 4
	kindInt32    kind = 5
	kindFixed64  kind = 6
	kindFixed32  kind = 7
	kindBool     kind = 8
	kindString   kind = 9
	kindMessage  kind = 11
	kindBytes    kind = 12
	kindUint32   kind = 13
	kindEnum     kind = 14
	kindSfixed32 kind = 15
	kindSfixed64 kind = 16
	kindSint32   kind = 17
	kindSint64   kind = 18
	kindI8       kind = 19
	kindI16      kind = 20
)

func (k kind) known() bool { return k >= kindDouble && k <= kindI16 && k != 10 }

// isScalar says whether values lie in their slots, and not elsewhere in the object.
func (k kind) isScalar() bool { return k != kindString && k != kindBytes && k != kindMessage }

// width is the length of a value in a slot; that of a message as the element of a list is its record's.
func (k kind) width() uint32 {
	switch k {
	case kindDouble, kindInt64, kindUint64, kindFixed64, kindSfixed64, kindSint64, kindString, kindBytes:
		return 8
	case kindBool, kindI8:
		return 1
	case kindI16:
		return 2
	}
	return 4
}

// A label is how often a field occurs, and how its absence shows.
type label uint8

const (
	labelImplicit label = 0
	labelExplicit label = 1
	labelRequired label = 2
	labelList     label = 3
	labelMap      label = 4
)

func (l label) isList() bool { return l == labelList || l == labelMap }

const (
	flagPacked    = 1
	flagUTF8      = 2
	flagClosed    = 4
	flagDelimited = 8
	flagFunction  = 16
	flagSet       = 32
	flagDefault   = 64
	flagSent      = 128
	fieldFlags    = 255

	typeMapEntry = 1
	typeBox      = 2
	typeFlags    = 15

	enumClosed = 1
)

type text struct{ off, n uint32 }

type typeRow struct {
	name         text
	first, count uint32
	recordLen    uint32
	flags        uint32
}

type fieldRow struct {
	number uint32
	kind   kind
	label  label
	flags  uint16
	slot   uint32
	aux    uint32
	oneof  uint32
	zero   uint32
	// fallback is the default.
	fallback   uint64
	name, json text
}

func (f *fieldRow) has(flag uint16) bool { return f.flags&flag != 0 }

func (f *fieldRow) fallbackText() text { return text{uint32(f.fallback), uint32(f.fallback >> 32)} }

// slotLen and slotAlign are of a field's slot in its record.
func (f *fieldRow) slotLen() uint32 {
	if f.label.isList() {
		return 4
	}
	return f.kind.width()
}

func (f *fieldRow) slotAlign() uint32 {
	if f.label.isList() || f.kind == kindString || f.kind == kindBytes {
		return 4
	}
	return f.kind.width()
}

type enumRow struct {
	name         text
	first, count uint32
	flags, zero  uint32
}

type valueRow struct {
	number int32
	name   text
}

// A Table is a compiled schema. Nobody changes it: all goroutines may use it.
type Table struct {
	blob   []byte
	texts  []byte
	types  []typeRow
	fields []fieldRow
	enums  []enumRow
	values []valueRow
	shapes []shape
}

// shape is what is known of a type besides its row.
type shape struct {
	// protobuf says why protobuf has no form for what the type reaches; nil: it has one.
	protobuf error
	// oneofs are the offsets of tag words. byNumber finds a field's index where numbers have gaps.
	oneofs   []uint32
	byNumber map[uint32]uint32
	// members are the presence bits of members of oneofs; nil: there are none.
	members []uint32
	// required are the bits that each presence word has to have; nil: none.
	required []uint32
	// demands says that the type reaches required fields, maps that it reaches maps.
	demands, maps bool
}

// LoadTable checks a table, and copies it.
//
// Errors: bytes that are none, with the rule that they break.
func LoadTable(blob []byte) (*Table, error) {
	t := &Table{blob: append([]byte(nil), blob...)}
	if err := t.read(); err != nil {
		return nil, fmt.Errorf("no table: %w", err)
	}
	if err := t.check(); err != nil {
		return nil, fmt.Errorf("no table: %w", err)
	}
	t.shape()
	return t, nil
}

// read takes the rows out of the blob.
func (t *Table) read() error {
	b, le := t.blob, binary.LittleEndian
	if len(b) < tableHeadLen || len(b) > tableLenMax {
		return fmt.Errorf("%d bytes, where %d to %d are a table's", len(b), tableHeadLen, tableLenMax)
	}
	switch {
	case string(b[:4]) != tableMagic:
		return errors.New("it does not begin as a table does")
	case le.Uint16(b[4:]) != tableVersion:
		return fmt.Errorf("version %d, where %d is known", le.Uint16(b[4:]), tableVersion)
	case le.Uint16(b[6:]) != 0:
		return errors.New("flags in its header")
	case uint64(le.Uint32(b[8:])) != uint64(len(b)):
		return fmt.Errorf("%d bytes, where its header says %d", len(b), le.Uint32(b[8:]))
	}
	for _, reserved := range b[32:printOff] {
		if reserved != 0 {
			return errors.New("a reserved byte of its header")
		}
	}
	counts := [4]uint64{uint64(le.Uint32(b[12:])), uint64(le.Uint32(b[16:])), uint64(le.Uint32(b[20:])), uint64(le.Uint32(b[24:]))}
	textAt := tableHeadLen + typeRowLen*counts[0] + fieldRowLen*counts[1] + enumRowLen*counts[2] + valueRowLen*counts[3]
	if textAt+uint64(le.Uint32(b[28:])) != uint64(len(b)) {
		return errors.New("its sections do not fill it")
	}
	if found := printOf(b[:printOff], b[printOff+8:]); found != le.Uint64(b[printOff:]) {
		return fmt.Errorf("the fingerprint %#016x, where its bytes have %#016x: it is damaged", le.Uint64(b[printOff:]), found)
	}
	t.texts = b[textAt:]
	rest := b[tableHeadLen:]
	word := func() uint32 {
		value := le.Uint32(rest)
		rest = rest[4:]
		return value
	}
	textAtRow := func() text { return text{word(), word()} }
	t.types, t.fields = make([]typeRow, counts[0]), make([]fieldRow, counts[1])
	t.enums, t.values = make([]enumRow, counts[2]), make([]valueRow, counts[3])
	for i := range t.types {
		t.types[i] = typeRow{name: textAtRow(), first: word(), count: word(), recordLen: word(), flags: word()}
	}
	for i := range t.fields {
		f := &t.fields[i]
		f.number = word()
		f.kind, f.label, f.flags = kind(rest[0]), label(rest[1]), le.Uint16(rest[2:])
		rest = rest[4:]
		f.slot, f.aux, f.oneof, f.zero = word(), word(), word(), word()
		f.fallback = uint64(word()) | uint64(word())<<32
		f.name, f.json = textAtRow(), textAtRow()
	}
	for i := range t.enums {
		t.enums[i] = enumRow{name: textAtRow(), first: word(), count: word(), flags: word(), zero: word()}
	}
	for i := range t.values {
		t.values[i] = valueRow{number: int32(word()), name: textAtRow()}
	}
	return nil
}

// text is what a text refers to, which the loader has found within the section.
func (t *Table) text(at text) string { return string(t.texts[at.off : uint64(at.off)+uint64(at.n)]) }

// fieldsOf are the fields of a type, ascending by number.
func (t *Table) fieldsOf(typeIdx uint32) []fieldRow {
	row := &t.types[typeIdx]
	return t.fields[row.first : row.first+row.count]
}

// Bytes are the table's, which nobody changes.
func (t *Table) Bytes() []byte { return t.blob }

// Types are the full names of all types, in order.
func (t *Table) Types() []string {
	names := make([]string, len(t.types))
	for i := range t.types {
		names[i] = t.text(t.types[i].name)
	}
	return names
}

// Fingerprint is the table's own.
func (t *Table) Fingerprint() uint64 { return binary.LittleEndian.Uint64(t.blob[printOff:]) }

// Fields are the numbers and names of all fields of all types, in order: "1 id".
func (t *Table) Fields() []string {
	all := make([]string, len(t.fields))
	for i := range t.fields {
		all[i] = fmt.Sprintf("%d %s", t.fields[i].number, t.text(t.fields[i].name))
	}
	return all
}

// Type finds a type by its full name.
func (t *Table) Type(name string) (Type, bool) {
	for i := range t.types {
		if t.text(t.types[i].name) == name {
			return t.TypeAt(uint32(i))
		}
	}
	return Type{}, false
}

// TypeAt finds a type by its index.
func (t *Table) TypeAt(index uint32) (Type, bool) {
	if uint64(index) >= uint64(len(t.types)) {
		return Type{}, false
	}
	return Type{t, index, t.fingerprint(index)}, true
}

// A Type is one of a table's.
type Type struct {
	table *Table
	index uint32
	print uint64
}

// Table is the type's.
func (y Type) Table() *Table { return y.table }

// Index is the type's place in its table.
func (y Type) Index() uint32 { return y.index }

// Name is the type's full name.
func (y Type) Name() string { return y.table.text(y.table.types[y.index].name) }

// Fingerprint is that of what the type reaches: objects of two tables whose types have the same can be exchanged.
func (y Type) Fingerprint() uint64 { return y.print }

// MethodFingerprint is the fingerprint of a method's types, of its request and its reply.
func MethodFingerprint(request, reply Type) uint64 {
	print := request.Fingerprint()
	return (print<<32 | print>>32) ^ reply.Fingerprint()
}

func (y Type) row() *typeRow { return &y.table.types[y.index] }
