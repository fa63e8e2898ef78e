package flat

import (
	"fmt"
	"math/bits"
)

// memberIn is the index of the field that a oneof's tag names in a record of a type.
func (d *arena) memberIn(typeIdx, tag uint32) uint32 { return d.shapes[typeIdx].byNumber[tag] }

// complete sets what a map's entry lacks: a maker sets both fields.
func (d *decoder) complete(entry, typeIdx uint32) {
	fields := d.fieldsOf(typeIdx)
	for i := range fields {
		f := &fields[i]
		if d.has(entry, uint32(i)) {
			continue
		}
		switch f.kind {
		case kindMessage:
			at := d.zeros(int(d.types[f.aux].recordLen))
			if d.long {
				return
			}
			d.put(entry+f.slot, at)
		case kindString, kindBytes:
			d.put64(entry+f.slot, 0)
		default:
			d.scalar(entry+f.slot, f.kind, f.fallback)
		}
		d.set(entry, uint32(i))
	}
}

// each calls do for each record in the fields of a record that reach what wanted says.
func (d *arena) each(record, typeIdx uint32, wanted func(s *shape) bool, do func(at, typeIdx uint32) error) error {
	fields := d.fieldsOf(typeIdx)
	for w := range presenceWords(uint32(len(fields))) {
		for present := d.word(record + 4 + 4*w); present != 0; present &= present - 1 {
			f := &fields[int(w)*32+bits.TrailingZeros32(present)]
			if f.kind != kindMessage || !wanted(&d.shapes[f.aux]) {
				continue
			}
			at := d.word(record + f.slot)
			if !f.label.isList() {
				if err := do(at, f.aux); err != nil {
					return err
				}
				continue
			}
			for i := range d.word(at) {
				if err := do(at+blockHeadLen+d.types[f.aux].recordLen*i, f.aux); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// demand asks for required fields, when everything is read and merged.
func (d *arena) demand(record, typeIdx uint32) error {
	for w, required := range d.shapes[typeIdx].required {
		if lacking := required &^ d.word(record+4+4*uint32(w)); lacking != 0 {
			f := &d.fieldsOf(typeIdx)[w*32+bits.TrailingZeros32(lacking)]
			return fmt.Errorf("%s lacks the required field %s", d.shortText(d.types[typeIdx].name), d.shortText(f.name))
		}
	}
	return d.each(record, typeIdx, func(s *shape) bool { return s.demands }, d.demand)
}

// uniteMaps has maps keep the last entry of each key.
func (d *decoder) uniteMaps(record, typeIdx uint32) {
	fields := d.fieldsOf(typeIdx)
	for i := range fields {
		if f := &fields[i]; f.label == labelMap && d.has(record, uint32(i)) {
			d.uniteMap(d.word(record+f.slot), f)
		}
	}
	_ = d.each(record, typeIdx, func(s *shape) bool { return s.maps }, func(at, typeIdx uint32) error {
		d.uniteMaps(at, typeIdx)
		return nil
	})
}

func (d *decoder) uniteMap(block uint32, f *fieldRow) {
	count, n := d.word(block), d.types[f.aux].recordLen
	if count < 2 {
		return
	}
	key := &d.fieldsOf(f.aux)[0]
	last := make(map[string]uint32, count)
	keyOf := func(i uint32) string {
		at := block + blockHeadLen + n*i + key.slot
		if key.kind == kindString {
			return string(spanAt(d.b, at))
		}
		return string(d.b[at : at+key.kind.width()])
	}
	for i := range count {
		last[keyOf(i)] = i
	}
	if len(last) == int(count) {
		return
	}
	kept := uint32(0)
	for i := range count {
		if last[keyOf(i)] != i {
			continue
		}
		if kept != i {
			at, from := block+blockHeadLen+n*kept, block+blockHeadLen+n*i
			copy(d.b[at:at+n], d.b[from:from+n])
		}
		kept++
	}
	clear(d.b[block+blockHeadLen+n*kept : block+blockHeadLen+n*count])
	d.put(block, kept)
}
