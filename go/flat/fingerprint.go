package flat

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	printStart = 0xcbf29ce484222325
	printPrime = 0x100000001b3

	// objectVersion is that of flat messages.
	objectVersion = 2
)

// printOf is FNV-1a, 64 bits, over pieces.
func printOf(pieces ...[]byte) uint64 {
	print := uint64(printStart)
	for _, piece := range pieces {
		for _, b := range piece {
			print = (print ^ uint64(b)) * printPrime
		}
	}
	return print
}

// A printer takes words in.
type printer uint64

func (p *printer) add(words ...uint32) {
	for _, word := range words {
		for range 4 {
			*p = (*p ^ printer(word&0xff)) * printPrime
			word >>= 8
		}
	}
}

// A meeting gives indices places in the order in which they are met.
type meeting struct {
	order  []uint32
	places map[uint32]uint32
}

func (m *meeting) place(index uint32) uint32 {
	if place, known := m.places[index]; known {
		return place
	}
	if m.places == nil {
		m.places = map[uint32]uint32{}
	}
	place := uint32(len(m.order))
	m.places[index], m.order = place, append(m.order, index)
	return place
}

// fingerprint is of what a type reaches: spec/table.md, "The fingerprint of a type".
func (t *Table) fingerprint(root uint32) uint64 {
	p := printer(printStart)
	var types, enums meeting
	types.place(root)
	p.add(objectVersion)
	for next := 0; next < len(types.order); next++ {
		row := &t.types[types.order[next]]
		p.add(row.recordLen, row.flags, row.count)
		fields := t.fieldsOf(types.order[next])
		for i := range fields {
			f := &fields[i]
			aux := uint32(noAux)
			switch {
			case f.kind == kindMessage:
				aux = types.place(f.aux)
			case f.kind == kindEnum && (f.has(flagClosed) || t.enums[f.aux].flags&enumClosed != 0):
				aux = enums.place(f.aux)
			}
			p.add(f.number, uint32(f.kind)|uint32(f.label)<<8|uint32(f.flags)<<16, f.slot, f.oneof, aux)
			if f.kind == kindString || f.kind == kindBytes {
				value := t.text(f.fallbackText())
				p.add(uint32(len(value)))
				for j := range len(value) {
					p.add(uint32(value[j]))
				}
			} else {
				p.add(uint32(f.fallback), uint32(f.fallback>>32))
			}
		}
	}
	for _, index := range enums.order {
		row := &t.enums[index]
		p.add(row.count)
		for _, value := range t.values[row.first : row.first+row.count] {
			p.add(uint32(value.number))
		}
	}
	return uint64(p)
}

// shape derives what is known of types. What all types reach together is looked through once for each property.
func (t *Table) shape() {
	t.shapes = make([]shape, len(t.types))
	for i := range t.types {
		s := &t.shapes[i]
		fields := t.fieldsOf(uint32(i))
		s.byNumber = make(map[uint32]uint32, len(fields))
		known := map[uint32]bool{}
		for j := range fields {
			f := &fields[j]
			s.byNumber[f.number] = uint32(j)
			if f.oneof != 0 {
				if !known[f.oneof] {
					known[f.oneof] = true
					s.oneofs = append(s.oneofs, f.oneof)
				}
				if s.members == nil {
					s.members = make([]uint32, presenceWords(uint32(len(fields))))
				}
				s.members[j/32] |= 1 << (j % 32)
			}
			switch {
			case f.label == labelRequired:
				if s.required == nil {
					s.required = make([]uint32, presenceWords(uint32(len(fields))))
				}
				s.required[j/32] |= 1 << (j % 32)
				s.demands = true
			case f.label == labelMap:
				s.maps = true
			}
			if err := t.foreign(f); err != nil && s.protobuf == nil {
				s.protobuf = fmt.Errorf("%s.%s: %w", t.text(t.types[i].name), t.text(f.name), err)
			}
		}
		if t.types[i].flags&typeBox != 0 {
			s.protobuf = fmt.Errorf("%s: protobuf has no containers in containers", t.text(t.types[i].name))
		}
	}
	t.spread()
}

// foreign says why protobuf has no form for a field.
func (t *Table) foreign(f *fieldRow) error {
	switch {
	case f.number == 0:
		return errors.New("protobuf has no field with the number 0")
	case f.kind == kindI8 || f.kind == kindI16:
		return errors.New("protobuf has no integers of 8 or 16 bits")
	case f.label != labelMap:
		return nil
	}
	entry := t.fieldsOf(f.aux)
	if entry[0].label.isList() || entry[1].label.isList() || entry[0].kind == kindMessage {
		return errors.New("protobuf has no maps whose keys or values are containers, nor keys that are messages")
	}
	return nil
}

// spread has types know what those that they reach do, in time linear in the table: along the fields that lead to a type.
func (t *Table) spread() {
	from := make([][]uint32, len(t.types))
	for i := range t.types {
		fields := t.fieldsOf(uint32(i))
		for j := range fields {
			if f := &fields[j]; f.kind == kindMessage {
				from[f.aux] = append(from[f.aux], uint32(i))
			}
		}
	}
	for _, of := range []struct {
		has func(s *shape) bool
		set func(s, reached *shape)
	}{
		{func(s *shape) bool { return s.demands }, func(s, _ *shape) { s.demands = true }},
		{func(s *shape) bool { return s.maps }, func(s, _ *shape) { s.maps = true }},
		{func(s *shape) bool { return s.protobuf != nil }, func(s, reached *shape) { s.protobuf = reached.protobuf }},
	} {
		var todo []uint32
		for i := range t.shapes {
			if of.has(&t.shapes[i]) {
				todo = append(todo, uint32(i))
			}
		}
		for len(todo) > 0 {
			at := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			for _, user := range from[at] {
				if s := &t.shapes[user]; !of.has(s) {
					of.set(s, &t.shapes[at])
					todo = append(todo, user)
				}
			}
		}
	}
}

// Seal puts a table's fingerprint into its header, for who compiles one. The blob is at least as long as that.
func Seal(blob []byte) {
	binary.LittleEndian.PutUint64(blob[printOff:], printOf(blob[:printOff], blob[printOff+8:]))
}
