package flat

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"unicode/utf8"
)

const (
	objectMagic   = "TFLO"
	objectHeadLen = 32
	blockHeadLen  = 8
	spanLen       = 8
	stringLenMax  = 1<<31 - 1
	objectLenMax  = 1<<32 - 4096

	// depthMax is how deep records nest in records, as in protobuf's parsers.
	depthMax = 100
)

// A verifier makes sure of what readers rely on: spec/flat.md, Soundness. It never changes the bytes, which nobody else may change either.
type verifier struct {
	*Table
	bytes []byte
	// left are bytes of the object that nothing has claimed yet.
	left uint64
	// lacks says that a record lacks a required field.
	lacks bool
}

// Verify makes an object of bytes, which are a message's as a peer has sent it. Nobody may change them from then on: of memory that a peer can
// write, verify a copy.
//
// Errors: bytes that are no sound object of the type, with the rule that they break; one that lacks a required field.
func (y Type) Verify(object []byte) (Object, error) {
	o, lacks, err := y.verify(object)
	if err == nil && lacks {
		err = fmt.Errorf("an object of %s lacks a required field", y.Name())
	}
	if err != nil {
		return Object{}, err
	}
	return o, nil
}

// VerifyShared verifies an object where it lies in memory that another process can write, but has promised not to, as members of a pool do. Strings that
// readers give are copies; all else lies in the memory. If the process breaks its promise, readers give other values, or panic; they read
// nothing outside of object.
//
// Errors: those of Verify.
func (y Type) VerifyShared(object []byte) (Object, error) {
	// Readers can't slice beyond the capacity.
	o, err := y.Verify(slices.Clip(object))
	o.shared = err == nil
	return o, err
}

func (y Type) verify(object []byte) (o Object, lacks bool, err error) {
	root, bytes, err := y.head(object)
	if err != nil {
		return o, false, fmt.Errorf("no object of %s: %w", y.Name(), err)
	}
	v := verifier{Table: y.table, bytes: bytes, left: uint64(len(bytes)) - objectHeadLen}
	if err = v.place(root, y.row().recordLen); err == nil {
		err = v.record(root, y.index, depthMax)
	}
	if err != nil {
		return o, false, fmt.Errorf("no object of %s: %w", y.Name(), err)
	}
	return Object{of: y, bytes: bytes, root: root}, v.lacks, nil
}

// head checks an object's header, and cuts what is behind the object off.
func (y Type) head(b []byte) (root uint32, bytes []byte, err error) {
	le := binary.LittleEndian
	if len(b) < objectHeadLen {
		return 0, nil, fmt.Errorf("%d bytes, where a header has %d", len(b), objectHeadLen)
	}
	n := le.Uint32(b[8:])
	switch {
	case string(b[:4]) != objectMagic:
		err = errors.New("it does not begin as an object does")
	case le.Uint16(b[4:]) != objectVersion:
		err = fmt.Errorf("version %d of flat messages, where %d is known", le.Uint16(b[4:]), objectVersion)
	case le.Uint16(b[6:]) != 0 || le.Uint64(b[24:]) != 0:
		err = errors.New("a flag, or a reserved word of the header")
	case n < objectHeadLen || uint64(n) > uint64(len(b)) || n > objectLenMax:
		err = fmt.Errorf("a length of %d bytes, where there are %d", n, len(b))
	case le.Uint64(b[16:]) != y.print:
		err = fmt.Errorf("its type has the fingerprint %#016x, and %#016x here: it is another type, or another version of the schema", le.Uint64(b[16:]), y.print)
	}
	return le.Uint32(b[12:]), b[:max(min(int(n), len(b)), 0)], err
}

var errOutside = errors.New("an offset leads out of the object")

// claim takes bytes from what is left: no piece is reached by many paths.
func (v *verifier) claim(n uint64) error {
	if n > v.left {
		return errors.New("its parts are longer than the object: they overlap, or nest in a circle")
	}
	v.left -= n
	return nil
}

// place claims a record or block at an offset.
func (v *verifier) place(at, n uint32) error {
	if at < objectHeadLen || at%8 != 0 {
		return errors.New("an offset is not aligned, or leads into the header")
	}
	if uint64(at)+uint64(n) > uint64(len(v.bytes)) {
		return errOutside
	}
	return v.claim(uint64(n))
}

func (v *verifier) word(at uint32) uint32 { return binary.LittleEndian.Uint32(v.bytes[at:]) }

// span checks a string whose span lies in the object.
func (v *verifier) span(at uint32, text bool) error {
	off, n := uint64(v.word(at)), uint64(v.word(at+4))
	if n > stringLenMax || off+n > uint64(len(v.bytes)) {
		return errors.New("a string leads out of the object")
	}
	if err := v.claim(n); err != nil {
		return err
	}
	if text && !utf8.Valid(v.bytes[off:off+n]) {
		return errors.New("a string is not UTF-8")
	}
	return nil
}

// block claims a block of elements, and gives their count.
func (v *verifier) block(at, stride uint32) (uint32, error) {
	if err := v.place(at, blockHeadLen); err != nil {
		return 0, err
	}
	count, capacity := v.word(at), v.word(at+4)
	n := uint64(capacity) * uint64(stride)
	switch {
	case count > capacity:
		return 0, errors.New("a list has more elements than room")
	case uint64(at)+blockHeadLen+n > uint64(len(v.bytes)):
		return 0, errors.New("a list leads out of the object")
	}
	return count, v.claim(n)
}

func (v *verifier) spans(at uint32, text bool) error {
	count, err := v.block(at, spanLen)
	for i := uint32(0); i < count && err == nil; i++ {
		err = v.span(at+blockHeadLen+spanLen*i, text)
	}
	return err
}

// record checks what a record that is claimed declares.
func (v *verifier) record(at, typeIdx uint32, depth int) error {
	row, shape, fields := &v.types[typeIdx], &v.shapes[typeIdx], v.fieldsOf(typeIdx)
	fail := func(i int, err error) error {
		return fmt.Errorf("%s.%s: %w", v.shortText(row.name), v.shortText(fields[i].name), err)
	}
	if unknown := v.word(at); unknown != 0 {
		if err := v.spans(unknown, false); err != nil {
			return fmt.Errorf("%s, unknown fields: %w", v.shortText(row.name), err)
		}
	}
	for w := range presenceWords(row.count) {
		present := v.word(at + 4 + 4*w)
		if shape.required != nil && shape.required[w]&^present != 0 {
			v.lacks = true
		}
		for present != 0 {
			i := int(w)*32 + bits.TrailingZeros32(present)
			present &= present - 1
			if i >= len(fields) {
				return fmt.Errorf("%s: a presence bit belongs to no field", v.shortText(row.name))
			}
			if f := &fields[i]; !f.kind.isScalar() || f.label.isList() {
				if err := v.field(at+f.slot, f, depth); err != nil {
					return fail(i, err)
				}
			}
		}
	}
	return v.oneofs(at, typeIdx)
}

// shortText is a name that is not too long for an error: tables may come from elsewhere.
func (t *Table) shortText(at text) string {
	const most = 256
	at.n = min(at.n, most)
	return t.text(at)
}

// field checks what a slot leads to.
func (v *verifier) field(slot uint32, f *fieldRow, depth int) error {
	if !f.label.isList() {
		if f.kind != kindMessage {
			return v.span(slot, f.has(flagUTF8))
		}
		at := v.word(slot)
		if err := v.place(at, v.types[f.aux].recordLen); err != nil {
			return err
		}
		return v.deeper(at, f.aux, depth)
	}
	at := v.word(slot)
	switch f.kind {
	case kindString, kindBytes:
		return v.spans(at, f.has(flagUTF8))
	case kindMessage:
		stride := v.types[f.aux].recordLen
		count, err := v.block(at, stride)
		for i := uint32(0); i < count && err == nil; i++ {
			err = v.deeper(at+blockHeadLen+stride*i, f.aux, depth)
		}
		return err
	}
	_, err := v.block(at, f.kind.width())
	return err
}

func (v *verifier) deeper(at, typeIdx uint32, depth int) error {
	if depth == 0 {
		return fmt.Errorf("records nest deeper than %d", depthMax)
	}
	return v.record(at, typeIdx, depth-1)
}

// oneofs checks that the members that are present are those that the tags name.
func (v *verifier) oneofs(at, typeIdx uint32) error {
	shape := &v.shapes[typeIdx]
	if len(shape.oneofs) == 0 {
		return nil
	}
	differ := fmt.Errorf("%s: a oneof's tag and the presence of its members differ", v.shortText(v.types[typeIdx].name))
	fields, chosen := v.fieldsOf(typeIdx), 0
	for _, oneof := range shape.oneofs {
		tag := v.word(at + oneof)
		if tag == 0 {
			continue
		}
		i, known := shape.byNumber[tag]
		if !known || fields[i].oneof != oneof || !v.present(at, int(i)) {
			return differ
		}
		chosen++
	}
	for w, members := range shape.members {
		chosen -= bits.OnesCount32(v.word(at+4+4*uint32(w)) & members)
	}
	if chosen != 0 {
		return differ
	}
	return nil
}

func (v *verifier) present(at uint32, i int) bool {
	return v.word(at+4+4*uint32(i/32))>>(i%32)&1 != 0
}
