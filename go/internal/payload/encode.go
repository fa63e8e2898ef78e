package payload

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tollfree/tollfree/go/internal/pool"
)

// Encode encodes a message of which fields of bytes lie in memory of the pool: each of these is a buffer of its own, which holds that memory.
// lent is false where none does; then nothing was encoded.
//
// Errors: what proto.Marshal has.
func Encode(p *pool.Pool, message proto.Message) (data mem.BufferSlice, lent bool, err error) {
	m := message.ProtoReflect()
	if !m.IsValid() || !reaches(m.Descriptor()) || !p.InUse() {
		return nil, false, nil
	}
	e := encoder{pool: p}
	pieces, err := e.cut(m)
	if err == nil && pieces != nil {
		// Parts were encoded by themselves, of which some may lack what the whole has.
		err = proto.CheckInitialized(message)
	}
	if err != nil {
		for _, piece := range pieces {
			piece.free()
		}
		return nil, false, err
	}
	if pieces == nil {
		return nil, false, nil
	}
	var run []byte
	for i := range pieces {
		piece := &pieces[i]
		if piece.held == nil {
			run = append(run, piece.bytes...)
			continue
		}
		if len(run) > 0 {
			data = append(data, mem.SliceBuffer(run))
			run = nil
		}
		data = append(data, piece.held)
	}
	if len(run) > 0 {
		data = append(data, mem.SliceBuffer(run))
	}
	return data, true, nil
}

// A piece of an encoding is bytes of this process's, or held memory of the pool.
type piece struct {
	bytes []byte
	held  mem.Buffer
}

func (p *piece) len() int {
	if p.held != nil {
		return p.held.Len()
	}
	return len(p.bytes)
}

func (p *piece) free() {
	if p.held != nil {
		p.held.Free()
	}
}

type encoder struct{ pool *pool.Pool }

// cut gives the pieces of a message's encoding; nil: nothing of it lies in the pool. With an error the pieces so far are the caller's to free.
func (e encoder) cut(m protoreflect.Message) (pieces []piece, err error) {
	cuts := map[protoreflect.FieldNumber]bool{}
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		var own []piece
		if own, err = e.field(field, value); own != nil {
			pieces = append(pieces, own...)
			cuts[field.Number()] = true
		}
		return err == nil
	})
	if err != nil || pieces == nil {
		return pieces, err
	}
	// All other fields, in a message that has those alone. What is in them is not copied.
	rest := m.New()
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if field.IsExtension() || !cuts[field.Number()] {
			rest.Set(field, value)
		}
		return true
	})
	rest.SetUnknown(m.GetUnknown())
	bytes, err := proto.MarshalOptions{AllowPartial: true}.Marshal(rest.Interface())
	return append([]piece{{bytes: bytes}}, pieces...), err
}

// field gives the pieces of a field's encoding, with its tag; nil: nothing of it lies in the pool.
func (e encoder) field(field protoreflect.FieldDescriptor, value protoreflect.Value) (pieces []piece, err error) {
	isBytes := field.Kind() == protoreflect.BytesKind
	if field.IsExtension() || field.IsMap() || !isBytes && (field.Kind() != protoreflect.MessageKind || !reaches(field.Message())) {
		return nil, nil
	}
	if !field.IsList() {
		own, err := e.value(isBytes, value)
		if own == nil || err != nil {
			return own, err
		}
		return prefixed(field, own), nil
	}
	list := value.List()
	values := make([][]piece, list.Len())
	some := false
	for i := range values {
		own, err := e.value(isBytes, list.Get(i))
		values[i], some = own, some || own != nil
		if err != nil {
			return flatten(field, values[:i+1]), err
		}
	}
	if !some {
		return nil, nil
	}
	// The values of a list stay together.
	for i, own := range values {
		if own != nil {
			continue
		}
		bytes, err := e.plain(isBytes, list.Get(i))
		values[i] = []piece{{bytes: bytes}}
		if err != nil {
			return flatten(field, values), err
		}
	}
	return flatten(field, values), nil
}

// value gives the pieces of one value's encoding; nil: nothing of it lies in the pool.
func (e encoder) value(isBytes bool, value protoreflect.Value) ([]piece, error) {
	if !isBytes {
		return e.cut(value.Message())
	}
	bytes := value.Bytes()
	if len(bytes) < LenMin {
		return nil, nil
	}
	if held, ok := e.pool.Hold(bytes); ok {
		return []piece{{held: held}}, nil
	}
	return nil, nil
}

// plain is the encoding of a value of which nothing lies in the pool.
func (e encoder) plain(isBytes bool, value protoreflect.Value) ([]byte, error) {
	if isBytes {
		return value.Bytes(), nil
	}
	return proto.MarshalOptions{AllowPartial: true}.Marshal(value.Message().Interface())
}

func flatten(field protoreflect.FieldDescriptor, values [][]piece) (pieces []piece) {
	for _, own := range values {
		pieces = append(pieces, prefixed(field, own)...)
	}
	return pieces
}

// prefixed are a value's pieces behind its tag and length.
func prefixed(field protoreflect.FieldDescriptor, pieces []piece) []piece {
	n := 0
	for i := range pieces {
		n += pieces[i].len()
	}
	head := protowire.AppendTag(nil, field.Number(), protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(n))
	return append([]piece{{bytes: head}}, pieces...)
}
