package payload

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tollfree/tollfree/go/internal/pool"
)

var errCutOff = errors.New("proto: the message's bytes are cut off, or are no message's")

// Decode fills a message that is empty. Fields of bytes that lie in the pool by themselves are not copied: they are slices of memory that this
// process can't write to, and each is held by one of the buffers, until that is freed. All else is copied, strings always.
//
// Errors: what proto.Unmarshal has; nothing is held then.
func Decode(p *pool.Pool, data mem.BufferSlice, message proto.Message) (held []mem.Buffer, err error) {
	m := message.ProtoReflect()
	d := decoder{pool: p, cursor: cursor{more: data, left: data.Len()}}
	err = d.message(m, d.left, protowire.DefaultRecursionLimit)
	if err == nil {
		err = proto.CheckInitialized(message)
	}
	if err != nil {
		for _, buffer := range d.held {
			buffer.Free()
		}
		return nil, err
	}
	return d.held, nil
}

// LiesIn says whether a part of a message may be read in the pool.
func LiesIn(p *pool.Pool, data mem.BufferSlice) bool {
	for _, part := range data {
		if part.Len() < LenMin {
			continue
		}
		if held, ok := p.Hold(part.ReadOnlyData()); ok {
			held.Free()
			return true
		}
	}
	return false
}

type decoder struct {
	cursor
	pool *pool.Pool
	held []mem.Buffer
}

// message fills m by the next n bytes. Fields are taken in their order: of a field that comes twice, the last counts.
func (d *decoder) message(m protoreflect.Message, n, depth int) error {
	if depth < 0 {
		return errors.New("proto: exceeded maximum recursion depth")
	}
	fields, end := m.Descriptor().Fields(), d.left-n
	rest := d.cursor
	// flush decodes what lies between rest and the place before which the cursor is.
	flush := func(before cursor) error {
		if rest.left == before.left {
			return nil
		}
		bytes := rest.copy(rest.left - before.left)
		return proto.UnmarshalOptions{Merge: true, AllowPartial: true, RecursionLimit: max(depth, 1)}.Unmarshal(bytes, m.Interface())
	}
	for d.left > end {
		start := d.cursor
		number, length, err := d.field(end, depth)
		if err != nil {
			return err
		}
		field := fields.ByNumber(number)
		if length < LenMin || field == nil || field.IsMap() {
			d.skip(max(length, 0))
			continue
		}
		switch field.Kind() {
		case protoreflect.BytesKind:
			held, bytes := d.hold(length)
			if held == nil {
				d.skip(length)
				continue
			}
			d.held = append(d.held, held)
			if err := flush(start); err != nil {
				return err
			}
			if field.IsList() {
				m.Mutable(field).List().Append(protoreflect.ValueOfBytes(bytes))
			} else {
				m.Set(field, protoreflect.ValueOfBytes(bytes))
			}
			d.skip(length)
		case protoreflect.MessageKind:
			if !reaches(field.Message()) {
				d.skip(length)
				continue
			}
			if err := flush(start); err != nil {
				return err
			}
			var inner protoreflect.Message
			if field.IsList() {
				inner = m.Mutable(field).List().AppendMutable().Message()
			} else {
				inner = m.Mutable(field).Message()
			}
			if err := d.message(inner, length, depth-1); err != nil {
				return err
			}
		default:
			d.skip(length)
			continue
		}
		rest = d.cursor
	}
	return flush(d.cursor)
}

// field reads the head of the next field, and the whole of one that has no length. length is that of what follows; below 0: nothing does. end is how
// many bytes are left behind the message.
func (d *decoder) field(end, depth int) (number protowire.Number, length int, err error) {
	tag, ok := d.varint(end)
	number, kind := protowire.DecodeTag(tag)
	if !ok || number < protowire.MinValidNumber || number > protowire.MaxValidNumber {
		return 0, 0, errCutOff
	}
	n := 0
	switch kind {
	case protowire.VarintType:
		_, ok = d.varint(end)
	case protowire.Fixed32Type:
		n = 4
	case protowire.Fixed64Type:
		n = 8
	case protowire.BytesType:
		var length uint64
		if length, ok = d.varint(end); ok && length <= uint64(d.left-end) {
			return number, int(length), nil
		}
		return 0, 0, errCutOff
	case protowire.StartGroupType:
		return number, -1, d.group(number, end, depth-1)
	default:
		return 0, 0, fmt.Errorf("proto: a field with wire type %d, where none can be", kind)
	}
	if !ok || n > d.left-end {
		return 0, 0, errCutOff
	}
	d.skip(n)
	return number, -1, nil
}

// group passes over a group. What ends it is checked again where the group is decoded.
func (d *decoder) group(of protowire.Number, end, depth int) error {
	if depth < 0 {
		return errors.New("proto: exceeded maximum recursion depth")
	}
	for {
		before := d.cursor
		tag, ok := d.varint(end)
		if !ok {
			return errCutOff
		}
		if number, kind := protowire.DecodeTag(tag); kind == protowire.EndGroupType {
			if number != of {
				return errCutOff
			}
			return nil
		}
		d.cursor = before
		_, length, err := d.field(end, depth)
		if err != nil {
			return err
		}
		d.skip(max(length, 0))
	}
}

// hold holds the next n bytes, if they lie in the pool by themselves.
func (d *decoder) hold(n int) (mem.Buffer, []byte) {
	bytes, ok := d.together(n)
	if !ok {
		return nil, nil
	}
	held, ok := d.pool.Hold(bytes)
	if !ok {
		return nil, nil
	}
	return held, bytes
}

// A cursor is a place in a message.
type cursor struct {
	data []byte // what is left of the part that the place is in
	more mem.BufferSlice
	left int // bytes in all
}

// settle goes on to the next part where this one is used up. Something is left.
func (c *cursor) settle() {
	for len(c.data) == 0 {
		c.data, c.more = c.more[0].ReadOnlyData(), c.more[1:]
	}
}

// varint reads a varint that ends where end bytes are left at the latest.
func (c *cursor) varint(end int) (value uint64, ok bool) {
	var bytes [10]byte
	for i := range bytes {
		if c.left <= end {
			return 0, false
		}
		c.settle()
		bytes[i] = c.data[0]
		c.data = c.data[1:]
		c.left--
		if bytes[i] < 0x80 {
			value, n := protowire.ConsumeVarint(bytes[:i+1])
			return value, n > 0
		}
	}
	return 0, false
}

// skip passes over n bytes, which are there.
func (c *cursor) skip(n int) {
	c.left -= n
	for n > 0 {
		c.settle()
		step := min(n, len(c.data))
		c.data = c.data[step:]
		n -= step
	}
}

// together gives the next n bytes, unless they lie in several parts. An append to them copies.
func (c *cursor) together(n int) ([]byte, bool) {
	if c.settle(); n > len(c.data) {
		return nil, false
	}
	return c.data[:n:n], true
}

// copy copies the next n bytes, and passes over them.
func (c *cursor) copy(n int) []byte {
	bytes := make([]byte, 0, n)
	c.left -= n
	for len(bytes) < n {
		c.settle()
		step := min(len(c.data), n-len(bytes))
		bytes = append(bytes, c.data[:step]...)
		c.data = c.data[step:]
	}
	return bytes
}
