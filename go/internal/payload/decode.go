package payload

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/tollfree/tollfree/go/internal/pool"
)

var (
	errCutOff  = errors.New("proto: the message's bytes are cut off, or are no message's")
	errTooDeep = errors.New("proto: exceeded maximum recursion depth")
)

// Decode fills a message that is empty. Fields of bytes that lie in the pool by themselves are not copied: they are slices of memory that this
// process can't write to, and each is held by one of the buffers, until that is freed. All else is copied, strings always.
//
// Errors: what proto.Unmarshal has; nothing is held then.
func Decode(p *pool.Pool, data mem.BufferSlice, message proto.Message) (held []mem.Buffer, err error) {
	m := message.ProtoReflect()
	d := decoder{pool: p, cursor: cursor{more: data, left: data.Len()}}
	err = d.message(m, 0, 0, protowire.DefaultRecursionLimit)
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

// message fills m by what is there until end bytes are left, or by a group's fields until that ends (group is its number, else 0). Fields are taken
// in their order: of a field that comes twice, the last counts.
func (d *decoder) message(m protoreflect.Message, end int, group protowire.Number, depth int) error {
	if depth < 0 {
		return errTooDeep
	}
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
		number, kind, err := d.tag(end)
		if err != nil {
			return err
		}
		if kind == protowire.EndGroupType && group != 0 {
			if number != group {
				return errCutOff
			}
			return flush(start)
		}
		field := fieldOf(m.Descriptor(), number)
		isGroup := kind == protowire.StartGroupType && field != nil && field.Kind() == protoreflect.GroupKind && mayHold(field)
		length := -1
		if !isGroup {
			if length, err = d.value(number, kind, end, depth); err != nil {
				return err
			}
			if length < LenMin || field == nil || !mayHold(field) || field.Kind() == protoreflect.GroupKind {
				d.skip(max(length, 0))
				continue
			}
		}
		var held mem.Buffer
		var bytes []byte
		if field.Kind() == protoreflect.BytesKind {
			if held, bytes = d.hold(length); held == nil {
				d.skip(length)
				continue
			}
			d.held = append(d.held, held)
		}
		if err := flush(start); err != nil {
			return err
		}
		switch {
		case held != nil && field.IsList():
			m.Mutable(field).List().Append(protoreflect.ValueOfBytes(bytes))
			d.skip(length)
		case held != nil:
			m.Set(field, protoreflect.ValueOfBytes(bytes))
			d.skip(length)
		case field.IsMap():
			err = d.entry(m, field, d.left-length, depth-1)
		case isGroup:
			err = d.message(innerOf(m, field), end, number, depth-1)
		default:
			err = d.message(innerOf(m, field), d.left-length, 0, depth-1)
		}
		if err != nil {
			return err
		}
		rest = d.cursor
	}
	if group != 0 {
		return errCutOff
	}
	return flush(d.cursor)
}

// fieldOf is a message's field or extension; nil: there is none with this number.
func fieldOf(m protoreflect.MessageDescriptor, number protowire.Number) protoreflect.FieldDescriptor {
	if field := m.Fields().ByNumber(number); field != nil {
		return field
	}
	if !m.ExtensionRanges().Has(number) || isMessageSet(m) {
		return nil
	}
	// As proto.Unmarshal finds it.
	if extension, err := protoregistry.GlobalTypes.FindExtensionByNumber(m.FullName(), number); err == nil {
		return extension.TypeDescriptor()
	}
	return nil
}

// innerOf is the message that a field's next value goes into.
func innerOf(m protoreflect.Message, field protoreflect.FieldDescriptor) protoreflect.Message {
	if field.IsList() {
		return m.Mutable(field).List().AppendMutable().Message()
	}
	return m.Mutable(field).Message()
}

// entry sets an entry of a map by what is there until end bytes are left.
func (d *decoder) entry(m protoreflect.Message, field protoreflect.FieldDescriptor, end, depth int) error {
	value := m.NewField(field).Map().NewValue()
	// All but the value: its key, and what belongs to no entry.
	var rest []byte
	for d.left > end {
		start := d.cursor
		number, kind, err := d.tag(end)
		if err != nil {
			return err
		}
		length, err := d.value(number, kind, end, depth)
		switch {
		case err != nil:
			return err
		case number != field.MapValue().Number() || length < 0:
			d.skip(max(length, 0))
			rest = append(rest, start.copy(start.left-d.left)...)
		case field.MapValue().Kind() != protoreflect.BytesKind:
			if err := d.message(value.Message(), d.left-length, 0, depth-1); err != nil {
				return err
			}
		default:
			if held, bytes := d.hold(length); held != nil && length >= LenMin {
				d.held = append(d.held, held)
				d.skip(length)
				value = protoreflect.ValueOfBytes(bytes)
			} else {
				if held != nil {
					held.Free()
				}
				value = protoreflect.ValueOfBytes(d.copy(length))
			}
		}
	}
	// An entry without its value: its key is what proto.Unmarshal says.
	shell := m.New()
	encoded := protowire.AppendBytes(protowire.AppendTag(nil, field.Number(), protowire.BytesType), rest)
	err := proto.UnmarshalOptions{AllowPartial: true, RecursionLimit: max(depth, 2)}.Unmarshal(encoded, shell.Interface())
	if err != nil {
		return err
	}
	shell.Get(field).Map().Range(func(key protoreflect.MapKey, _ protoreflect.Value) bool {
		m.Mutable(field).Map().Set(key, value)
		return true
	})
	return nil
}

// tag reads the head of the next field. end is how many bytes are left behind the message.
func (d *decoder) tag(end int) (protowire.Number, protowire.Type, error) {
	tag, ok := d.varint(end)
	number, kind := protowire.DecodeTag(tag)
	if !ok || number < protowire.MinValidNumber || number > protowire.MaxValidNumber {
		return 0, 0, errCutOff
	}
	return number, kind, nil
}

// value reads the value of a field that has no length, or only the length of one that has: below 0, nothing follows.
func (d *decoder) value(number protowire.Number, kind protowire.Type, end, depth int) (length int, err error) {
	ok, n := true, 0
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
			return int(length), nil
		}
		return 0, errCutOff
	case protowire.StartGroupType:
		return -1, d.group(number, end, depth-1)
	default:
		return 0, fmt.Errorf("proto: a field with wire type %d, where none can be", kind)
	}
	if !ok || n > d.left-end {
		return 0, errCutOff
	}
	d.skip(n)
	return -1, nil
}

// group passes over a group. What ends it is checked again where the group is decoded.
func (d *decoder) group(of protowire.Number, end, depth int) error {
	if depth < 0 {
		return errTooDeep
	}
	for {
		number, kind, err := d.tag(end)
		if err != nil {
			return err
		}
		if kind == protowire.EndGroupType {
			if number != of {
				return errCutOff
			}
			return nil
		}
		length, err := d.value(number, kind, end, depth)
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
