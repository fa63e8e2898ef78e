package flat

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// A checker makes sure of what engines rely on: spec/table.md, "What a loader checks".
type checker struct {
	*Table
	// namesLeft and defaultsLeft bound how often rows refer to the same text: what is looked through is bounded by it.
	namesLeft, defaultsLeft uint64
}

// namesPerByte is how often the bytes of a table may be referred to as names.
const namesPerByte = 8

func (t *Table) check() error {
	c := checker{t, namesPerByte * uint64(len(t.blob)), uint64(len(t.blob))}
	next := uint64(0)
	for i := range t.types {
		row := &t.types[i]
		if err := c.typeRow(row, &next); err != nil {
			return fmt.Errorf("type %d: %w", i, err)
		}
		fields := t.fields[row.first : row.first+row.count]
		for j := range fields {
			if err := c.fieldRow(row, &fields[j]); err != nil {
				return fmt.Errorf("field row %d: %w", int(row.first)+j, err)
			}
		}
		if err := typeFields(row, fields); err != nil {
			return fmt.Errorf("type %d: %w", i, err)
		}
	}
	if next != uint64(len(t.fields)) {
		return fmt.Errorf("field row %d belongs to no type", next)
	}
	next = 0
	for i := range t.enums {
		if err := c.enumRow(&t.enums[i], &next); err != nil {
			return fmt.Errorf("enum %d: %w", i, err)
		}
	}
	if next != uint64(len(t.values)) {
		return fmt.Errorf("value row %d belongs to no enum", next)
	}
	return t.containersEnd()
}

func (c *checker) rangeOf(at text) (string, error) {
	if uint64(at.off)+uint64(at.n) > uint64(len(c.texts)) {
		return "", errors.New("a text lies outside the text section")
	}
	return c.text(at), nil
}

func (c *checker) name(at text) error {
	name, err := c.rangeOf(at)
	switch {
	case err != nil:
		return err
	case uint64(len(name)) > c.namesLeft:
		return errors.New("the names of all rows together are longer than 8 times the table")
	}
	c.namesLeft -= uint64(len(name))
	if !utf8.ValidString(name) {
		return errors.New("a name is not UTF-8")
	}
	return nil
}

func headLen(fieldCount uint32) uint32 { return 4 + 4*presenceWords(fieldCount) }

func presenceWords(fieldCount uint32) uint32 { return max(1, (fieldCount+31)/32) }

func (c *checker) typeRow(row *typeRow, next *uint64) error {
	if err := c.name(row.name); err != nil {
		return err
	}
	if uint64(row.first) != *next {
		return errors.New("its fields do not follow those of the type before")
	}
	if *next += uint64(row.count); *next > uint64(len(c.fields)) {
		return errors.New("it has more fields than there are rows")
	}
	switch {
	case row.count > fieldCountMax:
		return errors.New("it has too many fields")
	case row.flags&^typeFlags != 0:
		return errors.New("it has unknown flags")
	case row.flags&typeMapEntry != 0 && row.flags&typeBox != 0:
		return errors.New("it is both a map entry and a box")
	case row.recordLen < headLen(row.count), row.recordLen > recordLenMax, row.recordLen%8 != 0:
		return errors.New("its record's length is not a multiple of 8, too small or too large")
	}
	return nil
}

func (c *checker) fieldRow(owner *typeRow, f *fieldRow) error {
	if err := c.name(f.name); err != nil {
		return err
	}
	if err := c.name(f.json); err != nil {
		return err
	}
	names := f.kind != kindMessage && f.kind != kindBytes && f.kind != kindBool && f.kind != kindFloat && f.kind != kindDouble
	switch {
	case !f.kind.known():
		return errors.New("its kind is none")
	case f.label > labelMap:
		return errors.New("its label is none")
	case f.zero != 0:
		return errors.New("its reserved word is not zero")
	case f.number > numberMax:
		return errors.New("its number is above 2^29 - 1")
	case f.flags&^fieldFlags != 0:
		return errors.New("it has unknown flags")
	case f.has(flagPacked) && !(f.kind.isScalar() && f.label == labelList):
		return errors.New("only lists of scalars are packed")
	case f.has(flagUTF8) && f.kind != kindString:
		return errors.New("only strings are checked for UTF-8")
	case f.has(flagDelimited) && (f.kind != kindMessage || f.label == labelMap):
		return errors.New("only messages are delimited")
	case f.has(flagFunction) && (f.label.isList() || !names):
		return errors.New("a function is named by one integer, enum or string")
	case f.has(flagSet) && f.label != labelList:
		return errors.New("only a list is a set")
	case f.has(flagSent) && !f.label.isList():
		return errors.New("what must be sent is a list or map, other fields are required")
	case f.label == labelImplicit && f.kind == kindMessage:
		return errors.New("a message field has explicit presence")
	}
	if err := c.aux(f); err != nil {
		return err
	}
	if err := c.fallback(f); err != nil {
		return err
	}
	head := headLen(owner.count)
	switch {
	case f.slot%f.slotAlign() != 0:
		return errors.New("its slot is not aligned")
	case f.slot < head, uint64(f.slot)+uint64(f.slotLen()) > uint64(owner.recordLen):
		return errors.New("its slot lies outside the record")
	case f.oneof == 0:
		return nil
	case f.label != labelExplicit:
		return errors.New("a member of a oneof has explicit presence")
	case f.oneof%4 != 0, f.oneof < head, uint64(f.oneof)+4 > uint64(owner.recordLen):
		return errors.New("its oneof's tag lies outside the record")
	case f.number == 0:
		return errors.New("a member of a oneof has a number above 0")
	}
	return nil
}

func (c *checker) aux(f *fieldRow) error {
	switch f.kind {
	case kindMessage:
		if uint64(f.aux) >= uint64(len(c.types)) {
			return errors.New("its message type does not exist")
		}
		target := &c.types[f.aux]
		if (target.flags&typeMapEntry != 0) != (f.label == labelMap) {
			return errors.New("a map, and only a map, has entries")
		}
		if target.flags&typeBox != 0 && f.label != labelList {
			return errors.New("a box is an element of a list")
		}
	case kindEnum:
		if uint64(f.aux) >= uint64(len(c.enums)) {
			return errors.New("its enum does not exist")
		}
	default:
		if f.aux != noAux {
			return errors.New("a scalar or string has no type of its own")
		}
		if f.label == labelMap {
			return errors.New("a map's elements are entries")
		}
	}
	if f.has(flagClosed) && f.kind != kindEnum {
		return errors.New("only enums are closed")
	}
	return nil
}

func (c *checker) fallback(f *fieldRow) error {
	stated := f.has(flagDefault)
	if stated && (f.label.isList() || f.kind == kindMessage) {
		return errors.New("lists and messages have no default")
	}
	if !stated && f.kind != kindEnum && f.fallback != 0 {
		return errors.New("its default is not stated")
	}
	if f.kind != kindString && f.kind != kindBytes {
		return nil
	}
	value, err := c.rangeOf(f.fallbackText())
	switch {
	case err != nil:
		return err
	case uint64(len(value)) > c.defaultsLeft:
		return errors.New("the defaults of all fields together are longer than the table")
	}
	c.defaultsLeft -= uint64(len(value))
	if f.kind == kindString && !utf8.ValidString(value) {
		return errors.New("a string's default is not UTF-8")
	}
	return nil
}

// typeFields checks all fields of a type together: the order of numbers, the form of entries and boxes, and that slots are apart.
func typeFields(row *typeRow, fields []fieldRow) error {
	for i := 1; i < len(fields); i++ {
		if fields[i-1].number >= fields[i].number {
			return errors.New("its fields are not in ascending order of their numbers")
		}
	}
	want := 0
	switch row.flags & (typeMapEntry | typeBox) {
	case typeMapEntry:
		want = 2
	case typeBox:
		want = 1
	default:
		return slotsApart(row, fields)
	}
	if len(fields) != want || fields[0].number != 1 || fields[want-1].number != uint32(want) {
		return errors.New("a map entry has the fields 1 and 2, a box the field 1")
	}
	for i := range fields {
		if f := &fields[i]; f.label == labelImplicit || f.label == labelRequired || f.oneof != 0 {
			return errors.New("the fields of a map entry or box have explicit presence")
		}
	}
	return slotsApart(row, fields)
}

func slotsApart(row *typeRow, fields []fieldRow) error {
	type taken struct{ from, to, oneof uint32 }
	all := []taken{{0, headLen(row.count), 0}}
	var tags []uint32
	for i := range fields {
		f := &fields[i]
		all = append(all, taken{f.slot, f.slot + f.slotLen(), f.oneof})
		if f.oneof != 0 {
			tags = append(tags, f.oneof)
		}
	}
	slices.Sort(tags)
	for _, tag := range slices.Compact(tags) {
		all = append(all, taken{tag, tag + 4, 0})
	}
	slices.SortFunc(all, func(a, b taken) int {
		switch {
		case a.from != b.from:
			return int(a.from) - int(b.from)
		case a.to != b.to:
			return int(a.to) - int(b.to)
		}
		return int(a.oneof) - int(b.oneof)
	})
	end, owner := uint32(0), uint32(0)
	for _, one := range all {
		if one.from < end && (one.oneof == 0 || one.oneof != owner) {
			return errors.New("two of its slots overlap")
		}
		if one.to > end {
			end, owner = one.to, one.oneof
		}
	}
	return nil
}

func (c *checker) enumRow(row *enumRow, next *uint64) error {
	if err := c.name(row.name); err != nil {
		return err
	}
	if row.flags&^enumClosed != 0 || row.zero != 0 {
		return errors.New("it has unknown flags, or its reserved word is not zero")
	}
	if uint64(row.first) != *next {
		return errors.New("its values do not follow those of the enum before")
	}
	if *next += uint64(row.count); *next > uint64(len(c.values)) {
		return errors.New("it has more values than there are rows")
	}
	values := c.values[row.first:*next]
	for i := range values {
		if err := c.name(values[i].name); err != nil {
			return err
		}
		if i > 0 && values[i-1].number > values[i].number {
			return errors.New("its values are not in ascending order of their numbers")
		}
	}
	return nil
}

// containersEnd: map entries and boxes stand for containers in containers, which a schema nests finitely.
func (t *Table) containersEnd() error {
	const (
		fresh = iota
		open
		done
	)
	synthetic := func(i uint32) bool { return t.types[i].flags&(typeMapEntry|typeBox) != 0 }
	state := make([]uint8, len(t.types))
	for start := range uint32(len(t.types)) {
		if !synthetic(start) {
			continue
		}
		for stack := []uint32{start}; len(stack) > 0; {
			at := stack[len(stack)-1]
			if state[at] != fresh {
				state[at] = done
				stack = stack[:len(stack)-1]
				continue
			}
			state[at] = open
			fields := t.fieldsOf(at)
			for i := range fields {
				f := &fields[i]
				if f.kind != kindMessage || !synthetic(f.aux) {
					continue
				}
				switch state[f.aux] {
				case open:
					return fmt.Errorf("type %d: containers nest in a circle", at)
				case fresh:
					stack = append(stack, f.aux)
				}
			}
		}
	}
	return nil
}
