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
	if isMessageSet(m.Descriptor()) {
		return nil, nil
	}
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
		if !cuts[field.Number()] {
			rest.Set(field, value)
		}
		return true
	})
	rest.SetUnknown(m.GetUnknown())
	bytes, err := proto.MarshalOptions{AllowPartial: true}.Marshal(rest.Interface())
	return append([]piece{{bytes: bytes}}, pieces...), err
}

// field gives the pieces of a field's encoding, with its tag; nil: nothing of it lies in the pool.
func (e encoder) field(field protoreflect.FieldDescriptor, value protoreflect.Value) ([]piece, error) {
	switch {
	case !mayHold(field):
		return nil, nil
	case field.IsMap():
		return e.entries(field, value.Map())
	case field.IsList():
		return e.list(field, value.List())
	}
	own, err := e.value(field, value)
	if own == nil || err != nil {
		return own, err
	}
	return prefixed(field, own), nil
}

// list gives the pieces of all values of a list, which stay together; nil: nothing of them lies in the pool.
func (e encoder) list(field protoreflect.FieldDescriptor, list protoreflect.List) (pieces []piece, err error) {
	some := false
	for i := range list.Len() {
		own, lent, err := e.either(field, list.Get(i))
		pieces, some = append(pieces, prefixed(field, own)...), some || lent
		if err != nil {
			return pieces, err
		}
	}
	if !some {
		return nil, nil
	}
	return pieces, nil
}

// entries gives the pieces of all entries of a map; nil: nothing of them lies in the pool.
func (e encoder) entries(field protoreflect.FieldDescriptor, entries protoreflect.Map) (pieces []piece, err error) {
	some := false
	entries.Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
		var own []piece
		var lent bool
		own, lent, err = e.either(field.MapValue(), value)
		some = some || lent
		entry := append([]piece{{bytes: keyOf(field.MapKey(), key)}}, prefixed(field.MapValue(), own)...)
		pieces = append(pieces, prefixed(field, entry)...)
		return err == nil
	})
	if err == nil && !some {
		return nil, nil
	}
	return pieces, err
}

// either gives the pieces of one value's encoding, also where nothing of it lies in the pool.
func (e encoder) either(field protoreflect.FieldDescriptor, value protoreflect.Value) (pieces []piece, lent bool, err error) {
	pieces, err = e.value(field, value)
	if pieces != nil || err != nil {
		return pieces, true, err
	}
	if field.Kind() == protoreflect.BytesKind {
		return []piece{{bytes: value.Bytes()}}, false, nil
	}
	bytes, err := proto.MarshalOptions{AllowPartial: true}.Marshal(value.Message().Interface())
	return []piece{{bytes: bytes}}, false, err
}

// value gives the pieces of one value's encoding; nil: nothing of it lies in the pool.
func (e encoder) value(field protoreflect.FieldDescriptor, value protoreflect.Value) ([]piece, error) {
	if field.Kind() != protoreflect.BytesKind {
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

// prefixed are a value's pieces behind its tag and length; those of a group between its two tags.
func prefixed(field protoreflect.FieldDescriptor, pieces []piece) []piece {
	if field.Kind() == protoreflect.GroupKind {
		begin := protowire.AppendTag(nil, field.Number(), protowire.StartGroupType)
		end := protowire.AppendTag(nil, field.Number(), protowire.EndGroupType)
		return append(append([]piece{{bytes: begin}}, pieces...), piece{bytes: end})
	}
	n := 0
	for i := range pieces {
		n += pieces[i].len()
	}
	head := protowire.AppendTag(nil, field.Number(), protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(n))
	return append([]piece{{bytes: head}}, pieces...)
}

// keyOf is the encoding of a map's key, with its tag.
func keyOf(field protoreflect.FieldDescriptor, key protoreflect.MapKey) []byte {
	tag := func(kind protowire.Type) []byte { return protowire.AppendTag(nil, field.Number(), kind) }
	switch field.Kind() {
	case protoreflect.StringKind:
		return protowire.AppendString(tag(protowire.BytesType), key.String())
	case protoreflect.BoolKind:
		return protowire.AppendVarint(tag(protowire.VarintType), protowire.EncodeBool(key.Bool()))
	case protoreflect.Sint32Kind, protoreflect.Sint64Kind:
		return protowire.AppendVarint(tag(protowire.VarintType), protowire.EncodeZigZag(key.Int()))
	case protoreflect.Sfixed32Kind:
		return protowire.AppendFixed32(tag(protowire.Fixed32Type), uint32(key.Int()))
	case protoreflect.Sfixed64Kind:
		return protowire.AppendFixed64(tag(protowire.Fixed64Type), uint64(key.Int()))
	case protoreflect.Fixed32Kind:
		return protowire.AppendFixed32(tag(protowire.Fixed32Type), uint32(key.Uint()))
	case protoreflect.Fixed64Kind:
		return protowire.AppendFixed64(tag(protowire.Fixed64Type), key.Uint())
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		return protowire.AppendVarint(tag(protowire.VarintType), key.Uint())
	default: // int32 and int64: protobuf has no other keys
		return protowire.AppendVarint(tag(protowire.VarintType), uint64(key.Int()))
	}
}
