// Package schema compiles descriptors to tables: spec/table.md, the layout of records, and the order of rows and texts.
package schema

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tollfree/tollfree/go/flat"
)

const (
	headerLen = 64
	printOff  = 56
	noAux     = 1<<32 - 1

	labelImplicit, labelExplicit, labelRequired, labelList, labelMap = 0, 1, 2, 3, 4

	flagPacked, flagUTF8, flagClosed, flagDelimited, flagDefault = 1, 2, 4, 8, 64

	kindMessage = 11
)

// A Field is where a field lies in its record.
type Field struct {
	// Index is the field's place among its type's, ascending by number, and its presence bit.
	Index, Slot uint32
	// Oneof is the offset of its oneof's tag; 0: it is in none.
	Oneof uint32
}

// A Layout is what a record looks like.
type Layout struct {
	Len    uint32
	Fields map[protoreflect.FieldNumber]Field
}

// Compile makes the table of all types of the files.
//
// Errors: a message that has no form in a table.
func Compile(files []protoreflect.FileDescriptor) ([]byte, error) {
	c := &compiler{types: map[protoreflect.FullName]uint32{}, enums: map[protoreflect.FullName]uint32{}, known: map[string]uint32{}}
	for _, file := range files {
		for i := range file.Messages().Len() {
			c.collect(file.Messages().Get(i))
		}
		c.collectEnums(file.Enums())
	}
	return c.blob()
}

type compiler struct {
	messages []protoreflect.MessageDescriptor
	enumsIn  []protoreflect.EnumDescriptor
	types    map[protoreflect.FullName]uint32
	enums    map[protoreflect.FullName]uint32
	texts    []byte
	known    map[string]uint32
}

// collect takes a message before those that are nested in it; enums of a message follow those of its nested messages.
func (c *compiler) collect(m protoreflect.MessageDescriptor) {
	c.types[m.FullName()] = uint32(len(c.messages))
	c.messages = append(c.messages, m)
	for i := range m.Messages().Len() {
		c.collect(m.Messages().Get(i))
	}
	c.collectEnums(m.Enums())
}

func (c *compiler) collectEnums(enums protoreflect.EnumDescriptors) {
	for i := range enums.Len() {
		c.enums[enums.Get(i).FullName()] = uint32(len(c.enumsIn))
		c.enumsIn = append(c.enumsIn, enums.Get(i))
	}
}

// text is the offset and length of a text, which stands once.
func (c *compiler) text(value string) (off, n uint32) {
	off, is := c.known[value]
	if !is {
		off = uint32(len(c.texts))
		c.known[value] = off
		c.texts = append(c.texts, value...)
	}
	return off, uint32(len(value))
}

// fieldsOf are a message's fields, ascending by number.
func fieldsOf(m protoreflect.MessageDescriptor) []protoreflect.FieldDescriptor {
	all := make([]protoreflect.FieldDescriptor, m.Fields().Len())
	for i := range all {
		all[i] = m.Fields().Get(i)
	}
	slices.SortFunc(all, func(a, b protoreflect.FieldDescriptor) int { return int(a.Number()) - int(b.Number()) })
	return all
}

func kindOf(f protoreflect.FieldDescriptor) uint8 {
	if f.Kind() == protoreflect.GroupKind {
		return kindMessage
	}
	return uint8(f.Kind())
}

// sizeOf is the alignment and length of a field's slot.
func sizeOf(f protoreflect.FieldDescriptor) (align, n uint32) {
	if f.Cardinality() == protoreflect.Repeated {
		return 4, 4
	}
	switch f.Kind() {
	case protoreflect.StringKind, protoreflect.BytesKind:
		return 4, 8
	case protoreflect.DoubleKind, protoreflect.Int64Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.Sint64Kind:
		return 8, 8
	case protoreflect.BoolKind:
		return 1, 1
	}
	return 4, 4
}

// oneofOf is the oneof of a field, but for what proto3's optional makes.
func oneofOf(f protoreflect.FieldDescriptor) protoreflect.OneofDescriptor {
	if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() {
		return o
	}
	return nil
}

// LayoutOf says where a message's fields lie.
func LayoutOf(m protoreflect.MessageDescriptor) Layout {
	fields := fieldsOf(m)
	at := 4 + 4*max(1, (uint32(len(fields))+31)/32)
	tags := map[protoreflect.FullName]uint32{}
	for i := range m.Oneofs().Len() {
		if o := m.Oneofs().Get(i); !o.IsSynthetic() {
			tags[o.FullName()] = at
			at += 4
		}
	}
	// A place is a field's, or that of the members of a oneof, in order of the first member's number.
	type place struct {
		align, n uint32
		members  []int
	}
	var places []*place
	shared := map[protoreflect.FullName]*place{}
	for i, f := range fields {
		align, n := sizeOf(f)
		o := oneofOf(f)
		if o != nil && shared[o.FullName()] != nil {
			p := shared[o.FullName()]
			p.align, p.n, p.members = max(p.align, align), max(p.n, n), append(p.members, i)
			continue
		}
		p := &place{align, n, []int{i}}
		places = append(places, p)
		if o != nil {
			shared[o.FullName()] = p
		}
	}
	layout := Layout{Fields: map[protoreflect.FieldNumber]Field{}}
	for _, class := range []uint32{4, 8, 2, 1} {
		for _, p := range places {
			if p.align != class {
				continue
			}
			at = (at + class - 1) / class * class
			for _, i := range p.members {
				field := Field{Index: uint32(i), Slot: at}
				if o := oneofOf(fields[i]); o != nil {
					field.Oneof = tags[o.FullName()]
				}
				layout.Fields[fields[i].Number()] = field
			}
			at += p.n
		}
	}
	layout.Len = (at + 7) / 8 * 8
	return layout
}

func (c *compiler) blob() ([]byte, error) {
	le := binary.LittleEndian
	var types, fields, enums, values []byte
	fieldCount, valueCount := uint32(0), uint32(0)
	for _, m := range c.messages {
		layout, first := LayoutOf(m), fieldCount
		for _, f := range fieldsOf(m) {
			row, err := c.field(f, layout.Fields[f.Number()])
			if err != nil {
				return nil, err
			}
			fields = append(fields, row...)
			fieldCount++
		}
		off, n := c.text(string(m.FullName()))
		flags := uint32(0)
		if m.IsMapEntry() {
			flags = 1
		}
		for _, word := range []uint32{off, n, first, fieldCount - first, layout.Len, flags} {
			types = le.AppendUint32(types, word)
		}
	}
	for _, e := range c.enumsIn {
		all := make([]protoreflect.EnumValueDescriptor, e.Values().Len())
		offs := map[protoreflect.Name]uint32{}
		for i := range all {
			all[i] = e.Values().Get(i)
			offs[all[i].Name()], _ = c.text(string(all[i].Name()))
		}
		// Of several names for a number, the schema's first one stays first.
		slices.SortStableFunc(all, func(a, b protoreflect.EnumValueDescriptor) int {
			switch {
			case a.Number() < b.Number():
				return -1
			case a.Number() > b.Number():
				return 1
			}
			return 0
		})
		for _, value := range all {
			for _, word := range []uint32{uint32(value.Number()), offs[value.Name()], uint32(len(value.Name()))} {
				values = le.AppendUint32(values, word)
			}
		}
		off, n := c.text(string(e.FullName()))
		flags := uint32(0)
		if e.IsClosed() {
			flags = 1
		}
		for _, word := range []uint32{off, n, valueCount, uint32(len(all)), flags, 0} {
			enums = le.AppendUint32(enums, word)
		}
		valueCount += uint32(len(all))
	}
	head := make([]byte, headerLen)
	copy(head, "TFTB")
	le.PutUint16(head[4:], 1)
	for i, word := range []uint32{
		uint32(headerLen + len(types) + len(fields) + len(enums) + len(values) + len(c.texts)),
		uint32(len(c.messages)), fieldCount, uint32(len(c.enumsIn)), valueCount, uint32(len(c.texts)),
	} {
		le.PutUint32(head[8+4*i:], word)
	}
	blob := slices.Concat(head, types, fields, enums, values, c.texts)
	flat.Seal(blob)
	_, err := flat.LoadTable(blob)
	return blob, err
}

func (c *compiler) field(f protoreflect.FieldDescriptor, place Field) ([]byte, error) {
	fail := func(why string) ([]byte, error) { return nil, fmt.Errorf("%s: %s", f.FullName(), why) }
	inEntry := f.ContainingMessage().IsMapEntry()
	label := uint8(labelExplicit)
	switch {
	case f.IsMap():
		label = labelMap
	case f.Cardinality() == protoreflect.Repeated:
		label = labelList
	case f.Cardinality() == protoreflect.Required:
		label = labelRequired
	case !inEntry && !f.HasPresence():
		label = labelImplicit
	}
	flags, aux := uint16(0), uint32(noAux)
	set := func(flag uint16, is bool) {
		if is {
			flags |= flag
		}
	}
	set(flagPacked, f.IsPacked())
	set(flagUTF8, f.Kind() == protoreflect.StringKind && enforcesUTF8(f))
	set(flagDelimited, f.Kind() == protoreflect.GroupKind && !inEntry && !f.IsMap())
	set(flagDefault, f.HasDefault())
	switch f.Kind() {
	case protoreflect.EnumKind:
		index, known := c.enums[f.Enum().FullName()]
		if !known {
			return fail("its enum is in no file of the table")
		}
		aux = index
		set(flagClosed, f.Enum().IsClosed())
	case protoreflect.MessageKind, protoreflect.GroupKind:
		index, known := c.types[f.Message().FullName()]
		if !known {
			return fail("its message is in no file of the table")
		}
		aux = index
	}
	fallback := c.fallback(f)
	name, nameLen := c.text(string(f.Name()))
	json, jsonLen := c.text(f.JSONName())
	le := binary.LittleEndian
	row := le.AppendUint32(nil, uint32(f.Number()))
	row = append(row, kindOf(f), label)
	row = le.AppendUint16(row, flags)
	for _, word := range []uint32{place.Slot, aux, place.Oneof, 0} {
		row = le.AppendUint32(row, word)
	}
	row = le.AppendUint64(row, fallback)
	for _, word := range []uint32{name, nameLen, json, jsonLen} {
		row = le.AppendUint32(row, word)
	}
	return row, nil
}

// enforcesUTF8 says whether a string has to be UTF-8: as the descriptor's own package says, which knows of editions, else as of proto3.
func enforcesUTF8(f protoreflect.FieldDescriptor) bool {
	if e, is := f.(interface{ EnforceUTF8() bool }); is {
		return e.EnforceUTF8()
	}
	return f.ParentFile().Syntax() == protoreflect.Proto3
}

// fallback is a default as a row has it.
func (c *compiler) fallback(f protoreflect.FieldDescriptor) uint64 {
	if f.Kind() == protoreflect.EnumKind && !f.HasDefault() {
		if values := f.Enum().Values(); values.Len() > 0 {
			return uint64(int64(values.Get(0).Number()))
		}
		return 0
	}
	if !f.HasDefault() {
		return 0
	}
	value := f.Default()
	switch f.Kind() {
	case protoreflect.StringKind:
		off, n := c.text(value.String())
		return uint64(off) | uint64(n)<<32
	case protoreflect.BytesKind:
		off, n := c.text(string(value.Bytes()))
		return uint64(off) | uint64(n)<<32
	case protoreflect.BoolKind:
		if value.Bool() {
			return 1
		}
		return 0
	case protoreflect.EnumKind:
		return uint64(int64(f.DefaultEnumValue().Number()))
	case protoreflect.FloatKind:
		return uint64(math.Float32bits(float32(value.Float())))
	case protoreflect.DoubleKind:
		return math.Float64bits(value.Float())
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		return value.Uint()
	}
	return uint64(value.Int())
}
