package pool_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/tollfree/tollfree/go/internal/payload"
	"github.com/tollfree/tollfree/go/internal/pool"
)

// shapes has fields of bytes in each place that a message has.
const shapes = `
name: "shapes.proto" package: "shapes" syntax: "proto2"
message_type {
  name: "M"
  field { name: "one" number: 1 type: TYPE_BYTES label: LABEL_OPTIONAL }
  field { name: "many" number: 2 type: TYPE_BYTES label: LABEL_REPEATED }
  field { name: "inner" number: 3 type: TYPE_MESSAGE type_name: ".shapes.M" label: LABEL_OPTIONAL }
  field { name: "list" number: 4 type: TYPE_MESSAGE type_name: ".shapes.M" label: LABEL_REPEATED }
  field { name: "chosen" number: 5 type: TYPE_BYTES label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "other" number: 6 type: TYPE_MESSAGE type_name: ".shapes.M" label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "map" number: 7 type: TYPE_MESSAGE type_name: ".shapes.M.MapEntry" label: LABEL_REPEATED }
  field { name: "text" number: 8 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "numbers" number: 9 type: TYPE_FIXED64 label: LABEL_REPEATED options { packed: true } }
  field { name: "group" number: 10 type: TYPE_GROUP type_name: ".shapes.M.Group" label: LABEL_OPTIONAL }
  field { name: "named" number: 12 type: TYPE_MESSAGE type_name: ".shapes.M.NamedEntry" label: LABEL_REPEATED }
  field { name: "groups" number: 13 type: TYPE_GROUP type_name: ".shapes.M.Groups" label: LABEL_REPEATED }
  field { name: "plain" number: 11 type: TYPE_MESSAGE type_name: ".shapes.Plain" label: LABEL_OPTIONAL }
  nested_type {
    name: "MapEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_BYTES label: LABEL_OPTIONAL }
  }
  nested_type { name: "Group" field { name: "x" number: 1 type: TYPE_BYTES label: LABEL_OPTIONAL } }
  nested_type {
    name: "NamedEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_MESSAGE type_name: ".shapes.M" label: LABEL_OPTIONAL }
  }
  nested_type {
    name: "Groups"
    field { name: "x" number: 1 type: TYPE_BYTES label: LABEL_OPTIONAL }
    field { name: "m" number: 2 type: TYPE_MESSAGE type_name: ".shapes.M" label: LABEL_OPTIONAL }
  }
  oneof_decl { name: "choice" }
  extension_range { start: 100 end: 200 }
}
extension { name: "more" number: 100 type: TYPE_BYTES label: LABEL_OPTIONAL extendee: ".shapes.M" }
extension { name: "parts" number: 101 type: TYPE_BYTES label: LABEL_REPEATED extendee: ".shapes.M" }
extension { name: "deeper" number: 102 type: TYPE_MESSAGE type_name: ".shapes.M" label: LABEL_OPTIONAL extendee: ".shapes.M" }
message_type {
  name: "Plain"
  field { name: "must" number: 1 type: TYPE_INT32 label: LABEL_REQUIRED }
  field { name: "text" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
}
`

// shapesMessage is M. Its extensions are known to all of the process, as generated ones are.
var shapesMessage = sync.OnceValue(func() protoreflect.MessageDescriptor {
	var file descriptorpb.FileDescriptorProto
	err := prototext.Unmarshal([]byte(shapes), &file)
	descriptor, err2 := protodesc.NewFile(&file, new(protoregistry.Files))
	if err := errors.Join(err, err2); err != nil {
		panic(err)
	}
	for i := range descriptor.Extensions().Len() {
		if err := protoregistry.GlobalTypes.RegisterExtension(dynamicpb.NewExtensionType(descriptor.Extensions().Get(i))); err != nil {
			panic(err)
		}
	}
	return descriptor.Messages().ByName("M")
})

// A maker makes random messages, of which some bytes lie in a pool.
type maker struct {
	t      *testing.T
	random *rand.Rand
	pool   *pool.Pool
	kept   []mem.Buffer
}

func (m *maker) done() {
	for _, buffer := range m.kept {
		buffer.Free()
	}
}

// bytes are short, long, or long and in the pool.
func (m *maker) bytes() []byte {
	n := []int{0, 3, payload.LenMin - 1, payload.LenMin, 3*payload.LenMin + 5}[m.random.IntN(5)]
	data := make([]byte, n)
	if n > 1024 && m.random.IntN(2) == 0 {
		room, buffer, err := m.pool.Buffer(n)
		if err != nil {
			m.t.Fatal(err)
		}
		m.kept = append(m.kept, buffer)
		data = room
	}
	for i := range data {
		data[i] = byte(m.random.Uint32())
	}
	return data
}

// fieldsOf are a message's fields and extensions.
func fieldsOf(of protoreflect.MessageDescriptor) (fields []protoreflect.FieldDescriptor) {
	for i := range of.Fields().Len() {
		fields = append(fields, of.Fields().Get(i))
	}
	protoregistry.GlobalTypes.RangeExtensionsByMessage(of.FullName(), func(extension protoreflect.ExtensionType) bool {
		fields = append(fields, extension.TypeDescriptor())
		return true
	})
	slices.SortFunc(fields, func(a, b protoreflect.FieldDescriptor) int { return int(a.Number() - b.Number()) })
	return fields
}

func (m *maker) message(of protoreflect.MessageDescriptor, depth int) *dynamicpb.Message {
	made := dynamicpb.NewMessage(of)
	m.fill(made, depth)
	return made
}

func (m *maker) fill(made protoreflect.Message, depth int) {
	for _, field := range fieldsOf(made.Descriptor()) {
		if m.random.IntN(3) == 0 || field.ContainingOneof() != nil && m.random.IntN(2) == 0 {
			continue
		}
		switch name := field.Name(); {
		case name == "map":
			made.Mutable(field).Map().Set(protoreflect.ValueOfInt32(7).MapKey(), protoreflect.ValueOfBytes(m.bytes()))
			made.Mutable(field).Map().Set(protoreflect.ValueOfInt32(-1).MapKey(), protoreflect.ValueOfBytes(m.bytes()))
		case name == "named" && depth > 0:
			for _, key := range []string{"", "one", "zwölf"} {
				inner := made.Mutable(field).Map().Mutable(protoreflect.ValueOfString(key).MapKey()).Message()
				m.fill(inner, depth-1)
			}
		case name == "many", name == "parts":
			for range m.random.IntN(4) {
				made.Mutable(field).List().Append(protoreflect.ValueOfBytes(m.bytes()))
			}
		case name == "plain":
			inner := made.Mutable(field).Message()
			inner.Set(inner.Descriptor().Fields().ByName("must"), protoreflect.ValueOfInt32(1))
			inner.Set(inner.Descriptor().Fields().ByName("text"), protoreflect.ValueOfString(string(bytes.Repeat([]byte("x"), 5000))))
		case (name == "list" || name == "groups") && depth > 0:
			for range m.random.IntN(3) {
				m.fill(made.Mutable(field).List().AppendMutable().Message(), depth-1)
			}
		case field.Message() != nil && !field.IsMap() && !field.IsList() && depth > 0:
			m.fill(made.Mutable(field).Message(), depth-1)
		case field.Kind() == protoreflect.BytesKind && !field.IsList():
			made.Set(field, protoreflect.ValueOfBytes(m.bytes()))
		case name == "text":
			made.Set(field, protoreflect.ValueOfString(string(bytes.Repeat([]byte("ä"), m.random.IntN(5000)))))
		case name == "numbers":
			for i := range m.random.IntN(1500) {
				made.Mutable(field).List().Append(protoreflect.ValueOfUint64(uint64(i)))
			}
		}
	}
	made.SetUnknown(protoreflect.RawFields{0x98, 0x3f, 0x01})
}

// countLent counts fields that lie in the pool, and that go by themselves.
func countLent(p *pool.Pool, m protoreflect.Message) (n int) {
	count := func(data []byte) {
		if held, ok := p.Hold(data); ok && len(data) >= payload.LenMin {
			held.Free()
			n++
		} else if ok {
			held.Free()
		}
	}
	one := func(field protoreflect.FieldDescriptor, value protoreflect.Value) {
		switch {
		case field.Kind() == protoreflect.BytesKind:
			count(value.Bytes())
		case field.Message() != nil:
			n += countLent(p, value.Message())
		}
	}
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap():
			value.Map().Range(func(_ protoreflect.MapKey, value protoreflect.Value) bool {
				one(field.MapValue(), value)
				return true
			})
		case field.IsList():
			for i := range value.List().Len() {
				one(field, value.List().Get(i))
			}
		default:
			one(field, value)
		}
		return true
	})
	return n
}

// pass has data go from one member to another, as sessions do: what lies in the pool by ref, all else copied.
func pass(t *testing.T, one, two *pool.Pool, data mem.BufferSlice) (passed mem.BufferSlice, refs int) {
	t.Helper()
	for _, part := range data {
		ref, kept, ok := one.Lend(part.ReadOnlyData())
		if !ok {
			passed = append(passed, mem.SliceBuffer(bytes.Clone(part.ReadOnlyData())))
			continue
		}
		refs++
		for {
			taken, err := two.Take([]pool.Ref{ref})
			if err == nil {
				passed = append(passed, taken[0])
				break
			}
			if !errors.Is(err, pool.Gone) {
				t.Fatal(err)
			}
		}
		kept.Free()
	}
	return passed, refs
}

func twoMembers(t *testing.T) (one, two *pool.Pool) {
	address := pool.NewCoordinator(t)
	return pool.JoinFor(t, address), pool.JoinFor(t, address)
}

// What lies in the pool goes without a copy, wherever it stands in a message, and is read without a copy; the message is the same.
func TestFieldsOfMessagesGoByRef(t *testing.T) {
	one, two := twoMembers(t)
	of, total := shapesMessage(), 0
	for seed := range uint64(120) {
		m := maker{t: t, random: rand.New(rand.NewPCG(seed, 0)), pool: one}
		message := m.message(of, 2)
		want := countLent(one, message)
		data, lent, err := payload.Encode(one, message)
		if err != nil || lent != (want > 0) {
			t.Fatalf("seed %d: %v, %v, and %d fields lie in the pool", seed, err, lent, want)
		}
		if lent {
			again := dynamicpb.NewMessage(of)
			if err := proto.Unmarshal(data.Materialize(), again); err != nil || !proto.Equal(again, message) {
				t.Fatalf("seed %d: another message was encoded: %v", seed, err)
			}
			passed, refs := pass(t, one, two, data)
			if refs != want {
				t.Fatalf("seed %d: %d refs, where %d fields lie in the pool", seed, refs, want)
			}
			got := dynamicpb.NewMessage(of)
			held, err := payload.Decode(two, passed, got)
			if err != nil || !proto.Equal(got, message) {
				t.Fatalf("seed %d: another message came: %v", seed, err)
			}
			passed.Free()
			if read := countLent(two, got); read != want || len(held) != want {
				t.Fatalf("seed %d: %d fields are read in the pool, and %d are held, where %d came by ref", seed, read, len(held), want)
			}
			// They are kept without the buffers that they came in.
			if !proto.Equal(got, message) {
				t.Fatalf("seed %d: the message has changed", seed)
			}
			for _, buffer := range held {
				buffer.Free()
			}
			data.Free()
			total += want
		}
		m.done()
	}
	if total < 300 {
		t.Errorf("only %d fields lay in the pool", total)
	}
}

// Decode takes what proto.Unmarshal takes, and makes the same of it.
func TestWhatIsNoMessageIsRefused(t *testing.T) {
	one, two := twoMembers(t)
	of, refused, taken := shapesMessage(), 0, 0
	for seed := range uint64(160) {
		random := rand.New(rand.NewPCG(seed, 1))
		m := maker{t: t, random: random, pool: one}
		encoded, err := proto.Marshal(m.message(of, 2))
		m.done()
		if err != nil || len(encoded) < 2*payload.LenMin {
			continue
		}
		for range 1 + random.IntN(3) {
			encoded[random.IntN(min(len(encoded), 200))] = byte(random.Uint32())
		}
		encoded = encoded[:len(encoded)-random.IntN(2)]
		// All of it lies in the pool, in two blocks.
		cut := payload.LenMin + random.IntN(len(encoded)-2*payload.LenMin+1)
		var data mem.BufferSlice
		for _, part := range [][]byte{encoded[:cut], encoded[cut:]} {
			room, buffer, err := one.Buffer(len(part))
			if err != nil {
				t.Fatal(err)
			}
			copy(room, part)
			data = append(data, buffer)
		}
		passed, _ := pass(t, one, two, data)
		data.Free()
		want, got := dynamicpb.NewMessage(of), dynamicpb.NewMessage(of)
		wrong := proto.Unmarshal(encoded, want)
		held, err := payload.Decode(two, passed, got)
		if (err != nil) != (wrong != nil) {
			t.Fatalf("seed %d: %v, where proto.Unmarshal says %v", seed, err, wrong)
		}
		if err == nil && !proto.Equal(got, want) {
			t.Fatalf("seed %d: another message", seed)
		}
		if err != nil {
			refused++
		} else {
			taken++
		}
		for _, buffer := range held {
			buffer.Free()
		}
		passed.Free()
	}
	if refused < 30 || taken < 30 {
		t.Errorf("%d were refused, and %d taken", refused, taken)
	}
}

// A slice of memory that another member writes is read alone: a write to it is a fault, and an append a copy.
func TestWhatIsReadInThePoolIsNotWritten(t *testing.T) {
	one, two := twoMembers(t)
	room, buffer, err := one.Buffer(payload.LenMin)
	if err != nil {
		t.Fatal(err)
	}
	room[0] = 7
	of := shapesMessage()
	message, got := dynamicpb.NewMessage(of), dynamicpb.NewMessage(of)
	field := of.Fields().ByName("one")
	message.Set(field, protoreflect.ValueOfBytes(room))
	data, _, err := payload.Encode(one, message)
	if err != nil {
		t.Fatal(err)
	}
	buffer.Free()
	passed, _ := pass(t, one, two, data)
	data.Free()
	held, err := payload.Decode(two, passed, got)
	if err != nil || len(held) != 1 {
		t.Fatal(held, err)
	}
	passed.Free()
	read := got.Get(field).Bytes()
	if longer := append(read, 1); &longer[0] == &read[0] {
		t.Error("an append writes to the pool")
	}
	func() {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() {
			if recover() == nil {
				t.Error("another member's memory can be written")
			}
		}()
		read[0] = 8
	}()
	if read[0] != 7 {
		t.Errorf("the first byte is %d", read[0])
	}
	held[0].Free()
	if _, ok := two.Hold(read); ok {
		t.Error("what was let go of can be held")
	}
}
