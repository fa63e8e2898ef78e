package flat

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

var (
	errBreaksOff = errors.New("the message breaks off")
	errVarint    = errors.New("a varint, tag or length that is too long")
	errTag       = errors.New("a tag that is none")
	errDepth     = fmt.Errorf("messages nest deeper than %d", depthMax)
)

// Decode makes an object of a message as protobuf has it, at most most bytes long.
//
// Errors: what protobuf's own parsers refuse; a required field that lacks; the type reaches what protobuf has no form for.
func (y Type) Decode(message []byte, most int) (Object, error) {
	shape := &y.table.shapes[y.index]
	if shape.protobuf != nil {
		return Object{}, shape.protobuf
	}
	d := decoder{arena: arena{most: int(min(int64(most), objectLenMax))}}
	root, ok := d.begin(y, 2*len(message))
	err := errLong
	if ok {
		rest, ended := message, false
		if rest, ended, err = d.message(root, y.index, message, 0, 0); err == nil && (ended || len(rest) > 0) {
			err = errTag
		}
	}
	if err == nil && d.long {
		err = errLong
	}
	if err == nil && shape.maps {
		d.uniteMaps(root, y.index)
	}
	if err == nil && shape.demands {
		err = d.demand(root, y.index)
	}
	if err != nil {
		return Object{}, fmt.Errorf("a message of %s can't be decoded: %w", y.Name(), err)
	}
	return d.finish(y, root), nil
}

type decoder struct{ arena }

// readVarint takes a varint of at most so many bytes.
func readVarint(b []byte, most int) (value uint64, rest []byte, err error) {
	for i := range min(len(b), most) {
		value |= uint64(b[i]&0x7f) << (7 * i)
		if b[i] < 0x80 {
			if i == 9 && b[i] > 1 {
				return 0, nil, errVarint
			}
			return value, b[i+1:], nil
		}
	}
	if len(b) < most {
		return 0, nil, errBreaksOff
	}
	return 0, nil, errVarint
}

// readTag takes a tag, and readLen a length with its bytes.
func readTag(b []byte) (number uint32, wire uint64, rest []byte, err error) {
	tag, rest, err := readVarint(b, 5)
	switch {
	case err != nil:
		return 0, 0, nil, err
	case tag > 1<<32-1:
		return 0, 0, nil, errVarint
	case tag>>3 == 0 || tag&7 > wireFixed32:
		return 0, 0, nil, errTag
	}
	return uint32(tag >> 3), tag & 7, rest, nil
}

func readLen(b []byte) (value, rest []byte, err error) {
	n, rest, err := readVarint(b, 5)
	switch {
	case err != nil:
		return nil, nil, err
	case n > stringLenMax:
		return nil, nil, errVarint
	case n > uint64(len(rest)):
		return nil, nil, errBreaksOff
	}
	return rest[:n:n], rest[n:], nil
}

// skip passes over a value that no field takes.
func skip(b []byte, number uint32, wire uint64, depth int) (rest []byte, err error) {
	switch wire {
	case wireVarint:
		_, rest, err = readVarint(b, 10)
		return rest, err
	case wireFixed64, wireFixed32:
		n := 8
		if wire == wireFixed32 {
			n = 4
		}
		if len(b) < n {
			return nil, errBreaksOff
		}
		return b[n:], nil
	case wireLen:
		_, rest, err = readLen(b)
		return rest, err
	case wireEnd:
		return nil, errTag
	}
	if depth >= depthMax {
		return nil, errDepth
	}
	for {
		inner, wire, rest, err := readTag(b)
		if err != nil {
			return nil, err
		}
		if wire == wireEnd {
			if inner != number {
				return nil, errTag
			}
			return rest, nil
		}
		if b, err = skip(rest, inner, wire, depth+1); err != nil {
			return nil, err
		}
	}
}

// message reads fields into a record until the bytes end, or the group does with this number; 0: none.
func (d *decoder) message(record, typeIdx uint32, b []byte, group uint32, depth int) (rest []byte, ended bool, err error) {
	shape, fields := &d.shapes[typeIdx], d.fieldsOf(typeIdx)
	for len(b) > 0 {
		number, wire, behind, err := readTag(b)
		if err != nil {
			return nil, false, err
		}
		if wire == wireEnd {
			if number != group {
				return nil, false, errTag
			}
			return behind, true, nil
		}
		i, known := shape.byNumber[number]
		taken := false
		if known {
			f := &fields[i]
			if rest, taken, err = d.field(record, typeIdx, i, f, wire, behind, len(b)-len(behind), depth); err != nil {
				return nil, false, fmt.Errorf("%s: %w", d.shortText(f.name), err)
			}
		}
		if !taken {
			if rest, err = skip(behind, number, wire, depth); err != nil {
				return nil, false, err
			}
			d.keep(record, b[:len(b)-len(rest)])
		}
		if d.long {
			return nil, false, errLong
		}
		b = rest
	}
	if group != 0 {
		return nil, false, errBreaksOff
	}
	return nil, false, nil
}

// keep adds whole fields to a record's unknown ones.
func (d *decoder) keep(record uint32, field []byte) {
	if slot, ok := d.element(record, spanLen, 1); ok {
		d.text(slot, field)
	}
}

// field takes one field of the wire; taken is false where its wire type is not the field's, or it is to be kept as unknown.
func (d *decoder) field(record, typeIdx, i uint32, f *fieldRow, wire uint64, b []byte, tagLen, depth int) (rest []byte, taken bool, err error) {
	switch {
	case f.label == labelList && f.kind.isScalar() && wire == wireLen:
		run, rest, err := readLen(b)
		if err == nil {
			err = d.run(record, i, f, run)
		}
		return rest, true, err
	case wire != f.wire():
		return nil, false, nil
	}
	switch f.kind {
	case kindMessage:
		return d.inner(record, typeIdx, i, f, b, depth)
	case kindString, kindBytes:
		value, rest, err := readLen(b)
		if err != nil {
			return nil, false, err
		}
		if f.has(flagUTF8) && !utf8.Valid(value) {
			return nil, false, errors.New("a string is not UTF-8")
		}
		if f.label == labelImplicit && len(value) == 0 {
			d.clear(record, i)
			return rest, true, nil
		}
		if slot, ok := d.slot(record, typeIdx, i, f, spanLen, b, tagLen); ok {
			d.text(slot, value)
		}
		return rest, true, nil
	}
	value, rest, err := readScalar(f.kind, b)
	if err != nil {
		return nil, false, err
	}
	if d.isUnlisted(f, value) {
		return nil, false, nil
	}
	if f.label == labelImplicit && value == 0 {
		d.clear(record, i)
		return rest, true, nil
	}
	if slot, ok := d.slot(record, typeIdx, i, f, f.kind.width(), b, tagLen); ok {
		d.scalar(slot, f.kind, value)
	}
	return rest, true, nil
}

// slot is where the next value of a field goes: its own slot, or a further element. The field has a value then.
func (d *decoder) slot(record, typeIdx, i uint32, f *fieldRow, stride uint32, b []byte, tagLen int) (uint32, bool) {
	if !f.label.isList() {
		d.choose(record, typeIdx, i, f)
		return record + f.slot, true
	}
	ahead := 1
	if !d.has(record, i) {
		ahead = run(f, b, tagLen)
		d.put(record+f.slot, 0)
	}
	at, ok := d.element(record+f.slot, stride, ahead)
	if ok {
		d.set(record, i)
	}
	return at, ok
}

// run is how many values of a field follow each other, from one on whose tag has been read.
func run(f *fieldRow, b []byte, tagLen int) int {
	const most = 1 << 20
	if tagLen > 5 {
		return 1
	}
	var tag [5]byte
	n := binary.PutUvarint(tag[:], uint64(f.number)<<3|f.wire())
	count := 1
	for ; count < most; count++ {
		rest, err := skip(b, f.number, f.wire(), 0)
		if err != nil || len(rest) < n || string(rest[:n]) != string(tag[:n]) {
			break
		}
		b = rest[n:]
	}
	return count
}

// choose makes a field present, and the one member of its oneof.
func (d *arena) choose(record, typeIdx, i uint32, f *fieldRow) {
	if f.oneof != 0 {
		if tag := d.word(record + f.oneof); tag != 0 && tag != f.number {
			d.clear(record, d.memberIn(typeIdx, tag))
		}
		d.put(record+f.oneof, f.number)
	}
	d.set(record, i)
}

// inner takes a message in a message.
func (d *decoder) inner(record, typeIdx, i uint32, f *fieldRow, b []byte, depth int) (rest []byte, taken bool, err error) {
	if depth >= depthMax {
		return nil, false, errDepth
	}
	body, group := b, f.number
	if !f.has(flagDelimited) {
		group = 0
		if body, rest, err = readLen(b); err != nil {
			return nil, false, err
		}
	}
	if f.label == labelMap && d.hasUnlistedValue(f, body, depth) {
		return nil, false, nil
	}
	at, ok := d.place(record, typeIdx, i, f, b)
	if !ok {
		return nil, false, errLong
	}
	behind, _, err := d.message(at, f.aux, body, group, depth+1)
	if err != nil {
		return nil, false, err
	}
	if group != 0 {
		rest = behind
	}
	if f.label == labelMap {
		d.complete(d.last(record+f.slot, f), f.aux)
	}
	return rest, true, nil
}

// last is the record of a list's last element.
func (d *decoder) last(slot uint32, f *fieldRow) uint32 {
	block := d.word(slot)
	return block + blockHeadLen + d.types[f.aux].recordLen*(d.word(block)-1)
}

// place is the record into which a message goes: that of the one before where it is merged.
func (d *decoder) place(record, typeIdx, i uint32, f *fieldRow, b []byte) (uint32, bool) {
	n := d.types[f.aux].recordLen
	if f.label.isList() {
		return d.slot(record, typeIdx, i, f, n, b, 0)
	}
	if d.has(record, i) {
		return d.word(record + f.slot), true
	}
	at := d.zeros(int(n))
	if d.long {
		return 0, false
	}
	d.choose(record, typeIdx, i, f)
	d.put(record+f.slot, at)
	return at, true
}

// run takes a packed run of values.
func (d *decoder) run(record, i uint32, f *fieldRow, b []byte) error {
	for len(b) > 0 {
		value, rest, err := readScalar(f.kind, b)
		if err != nil {
			return err
		}
		if d.isUnlisted(f, value) {
			field := binary.AppendUvarint(nil, uint64(f.number)<<3|wireVarint)
			d.keep(record, append(field, b[:len(b)-len(rest)]...))
		} else {
			ahead := 1
			if !d.has(record, i) {
				ahead = min(len(b), max(len(b)/int(f.kind.width()), 1))
				d.put(record+f.slot, 0)
			}
			slot, ok := d.element(record+f.slot, f.kind.width(), ahead)
			if !ok {
				return errLong
			}
			d.set(record, i)
			d.scalar(slot, f.kind, value)
		}
		b = rest
	}
	return nil
}

// readScalar takes a value as it lies in a slot.
func readScalar(k kind, b []byte) (value uint64, rest []byte, err error) {
	switch k {
	case kindDouble, kindFixed64, kindSfixed64:
		if len(b) < 8 {
			return 0, nil, errBreaksOff
		}
		return binary.LittleEndian.Uint64(b), b[8:], nil
	case kindFloat, kindFixed32, kindSfixed32:
		if len(b) < 4 {
			return 0, nil, errBreaksOff
		}
		return uint64(binary.LittleEndian.Uint32(b)), b[4:], nil
	}
	value, rest, err = readVarint(b, 10)
	switch k {
	case kindBool:
		if value != 0 {
			value = 1
		}
	case kindInt32, kindUint32, kindEnum:
		value &= 1<<32 - 1
	case kindSint32:
		half := uint32(value)
		value = uint64(half>>1 ^ -(half & 1))
	case kindSint64:
		value = value>>1 ^ -(value & 1)
	}
	return value, rest, err
}

func (d *decoder) scalar(slot uint32, k kind, value uint64) {
	switch k.width() {
	case 8:
		d.put64(slot, value)
	case 4:
		d.put(slot, uint32(value))
	default:
		d.b[slot] = byte(value)
	}
}

// isUnlisted says of a value of a closed enum that the enum lacks it.
func (d *decoder) isUnlisted(f *fieldRow, value uint64) bool {
	if f.kind != kindEnum || !f.has(flagClosed) {
		return false
	}
	row := &d.enums[f.aux]
	values := d.values[row.first : row.first+row.count]
	low, high := 0, len(values)
	for low < high {
		if middle := (low + high) / 2; values[middle].number < int32(value) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low == len(values) || values[low].number != int32(value)
}

// hasUnlistedValue says of a map's entry that its value is one of a closed enum that the enum lacks.
func (d *decoder) hasUnlistedValue(f *fieldRow, entry []byte, depth int) bool {
	value := &d.fieldsOf(f.aux)[1]
	if value.kind != kindEnum || !value.has(flagClosed) {
		return false
	}
	for len(entry) > 0 {
		number, wire, rest, err := readTag(entry)
		if err != nil {
			return false
		}
		if number == 2 && wire == wireVarint {
			if found, _, err := readScalar(kindEnum, rest); err == nil && d.isUnlisted(value, found) {
				return true
			}
		}
		if entry, err = skip(rest, number, wire, depth+1); err != nil {
			return false
		}
	}
	return false
}
