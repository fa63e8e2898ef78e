package schema

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/tollfree/tollfree/go/flat"
)

// shop is a schema of the vectors: implicit fields, a oneof, a map, a type that contains itself. old has required fields, defaults, closed enums
// and a group; Go's protobuf refuses the vectors' own, for an enum in a map that does not begin with 0.
const shop = `
name: "a.proto" package: "shop" syntax: "proto3"
enum_type { name: "State" value { name: "UNKNOWN" number: 0 } value { name: "OPEN" number: 1 } value { name: "DONE" number: 5 } }
message_type { name: "Item"
  field { name: "name" json_name: "name" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "child" json_name: "child" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".shop.Item" }
  field { name: "count" json_name: "count" number: 3 label: LABEL_OPTIONAL type: TYPE_SINT32 }
}
message_type { name: "Order"
  field { name: "id" json_name: "id" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "amount" json_name: "amount" number: 2 label: LABEL_OPTIONAL type: TYPE_INT64 }
  field { name: "item" json_name: "item" number: 3 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".shop.Item" }
  field { name: "items" json_name: "items" number: 4 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".shop.Item" }
  field { name: "numbers" json_name: "numbers" number: 5 label: LABEL_REPEATED type: TYPE_INT32 }
  field { name: "counts" json_name: "counts" number: 6 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".shop.Order.CountsEntry" }
  field { name: "card" json_name: "card" number: 7 label: LABEL_OPTIONAL type: TYPE_STRING oneof_index: 0 }
  field { name: "cash" json_name: "cash" number: 8 label: LABEL_OPTIONAL type: TYPE_BYTES oneof_index: 0 }
  field { name: "barter" json_name: "barter" number: 9 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".shop.Item" oneof_index: 0 }
  field { name: "state" json_name: "state" number: 10 label: LABEL_OPTIONAL type: TYPE_ENUM type_name: ".shop.State" }
  field { name: "rate" json_name: "rate" number: 11 label: LABEL_OPTIONAL type: TYPE_DOUBLE oneof_index: 1 proto3_optional: true }
  field { name: "paid" json_name: "paid" number: 12 label: LABEL_OPTIONAL type: TYPE_BOOL }
  field { name: "code" json_name: "code" number: 13 label: LABEL_OPTIONAL type: TYPE_FIXED32 }
  field { name: "tags" json_name: "tags" number: 14 label: LABEL_REPEATED type: TYPE_STRING }
  oneof_decl { name: "pay" } oneof_decl { name: "_rate" }
  nested_type { name: "CountsEntry" options { map_entry: true }
    field { name: "key" json_name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
    field { name: "value" json_name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_INT32 }
  }
}`

const old = `
name: "a.proto" package: "old" syntax: "proto2"
enum_type { name: "Size" value { name: "SMALL" number: 3 } value { name: "LARGE" number: 1 } }
message_type { name: "Order"
  field { name: "id" json_name: "id" number: 1 label: LABEL_REQUIRED type: TYPE_INT32 }
  field { name: "size" json_name: "size" number: 2 label: LABEL_OPTIONAL type: TYPE_ENUM type_name: ".old.Size" default_value: "LARGE" }
  field { name: "note" json_name: "note" number: 3 label: LABEL_OPTIONAL type: TYPE_STRING default_value: "none" }
  field { name: "part" json_name: "part" number: 4 label: LABEL_OPTIONAL type: TYPE_GROUP type_name: ".old.Order.Part" }
  field { name: "sizes" json_name: "sizes" number: 5 label: LABEL_REPEATED type: TYPE_ENUM type_name: ".old.Size" }
  field { name: "packed" json_name: "packed" number: 6 label: LABEL_REPEATED type: TYPE_SINT64 options { packed: true } }
  field { name: "by_id" json_name: "byId" number: 7 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".old.Order.ByIdEntry" }
  field { name: "less" json_name: "less" number: 8 label: LABEL_OPTIONAL type: TYPE_INT32 default_value: "-1" }
  nested_type { name: "Part" field { name: "whole" json_name: "whole" number: 1 label: LABEL_OPTIONAL type: TYPE_BOOL } }
  nested_type { name: "ByIdEntry" options { map_entry: true }
    field { name: "key" json_name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_INT32 }
    field { name: "value" json_name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_SINT32 }
  }
}`

func fileOf(t *testing.T, source string) protoreflect.FileDescriptor {
	t.Helper()
	var file descriptorpb.FileDescriptorProto
	if err := prototext.Unmarshal([]byte(source), &file); err != nil {
		t.Fatal(err)
	}
	descriptor, err := protodesc.NewFile(&file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return descriptor
}

// The reference compiles this schema to the table of the vectors: two tables of one schema are equal byte for byte.
func TestTheTableIsTheReferences(t *testing.T) {
	encoded, err := os.ReadFile("../../../spec/vectors/tables.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors struct {
		Cases []struct {
			Topic, Name string
			Input       struct{ Table string }
		}
	}
	if err := json.Unmarshal(encoded, &vectors); err != nil {
		t.Fatal(err)
	}
	for name, source := range map[string]string{"proto3": shop} {
		compared := false
		for _, c := range vectors.Cases {
			if c.Topic != "table" || c.Name != name {
				continue
			}
			compared = true
			table, err := Compile([]protoreflect.FileDescriptor{fileOf(t, source)})
			if err != nil {
				t.Fatal(err)
			}
			want, _ := hex.DecodeString(c.Input.Table)
			for i := range min(len(table), len(want)) {
				if table[i] != want[i] {
					t.Fatalf("%s: byte %d is %#x, and not %#x", name, i, table[i], want[i])
				}
			}
			if len(table) != len(want) {
				t.Errorf("%s: %d bytes, and not %d", name, len(table), len(want))
			}
		}
		if !compared {
			t.Errorf("the vectors have no table %q", name)
		}
	}
}

// random fills a message with random values; deep bounds how deep. Required fields it sets always.
func random(r *rand.Rand, m protoreflect.Message, deep int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Cardinality() != protoreflect.Required && (deep < 0 || r.IntN(3) == 0) {
			continue
		}
		switch {
		case f.IsMap():
			for range r.IntN(4) {
				value := m.Mutable(f).Map().NewValue()
				if f.MapValue().Message() != nil {
					random(r, value.Message(), deep-1)
				} else {
					value = scalar(r, f.MapValue())
				}
				m.Mutable(f).Map().Set(scalar(r, f.MapKey()).MapKey(), value)
			}
		case f.IsList():
			for range r.IntN(5) {
				if f.Message() == nil {
					m.Mutable(f).List().Append(scalar(r, f))
				} else {
					random(r, m.Mutable(f).List().AppendMutable().Message(), deep-1)
				}
			}
		case f.Message() == nil:
			m.Set(f, scalar(r, f))
		default:
			random(r, m.Mutable(f).Message(), deep-1)
		}
	}
}

func scalar(r *rand.Rand, f protoreflect.FieldDescriptor) protoreflect.Value {
	n := r.Uint64() >> r.IntN(64)
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(n%2 == 0)
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(int64(n))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(n)
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(n))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(n))
	case protoreflect.EnumKind:
		values := f.Enum().Values()
		return protoreflect.ValueOfEnum(values.Get(r.IntN(values.Len())).Number())
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(make([]byte, n%40))
	}
	return protoreflect.ValueOfString("käse"[:[]int{0, 1, 3, 5}[n%4]])
}

// unmarshal is Go's protobuf's, which panics at a map's key of another wire type in messages without generated code.
func unmarshal(encoded []byte, into proto.Message) (err error) {
	defer func() {
		if recover() != nil {
			err = errPanics
		}
	}()
	return proto.Unmarshal(encoded, into)
}

var errPanics = errors.New("protobuf's Go library panics")

// subject is a message with its type.
type subject struct {
	name string
	of   flat.Type
	make func() proto.Message
	// closed says that it has closed enums, which Go's protobuf takes for open: unlisted values of a list stand elsewhere here.
	closed bool
}

func subjects(t *testing.T) (all []subject) {
	t.Helper()
	add := func(file protoreflect.FileDescriptor, name protoreflect.Name, make func() proto.Message) {
		table, err := Compile([]protoreflect.FileDescriptor{file})
		if err != nil {
			t.Fatal(err)
		}
		loaded, err := flat.LoadTable(table)
		if err != nil {
			t.Fatal(err)
		}
		m := file.Messages().ByName(name)
		of, ok := loaded.Type(string(m.FullName()))
		if !ok {
			t.Fatalf("no type %s", m.FullName())
		}
		if make == nil {
			make = func() proto.Message { return dynamicpb.NewMessage(m) }
		}
		all = append(all, subject{string(m.FullName()), of, make, file.Syntax() == protoreflect.Proto2})
	}
	add(fileOf(t, shop), "Order", nil)
	add(fileOf(t, old), "Order", nil)
	add(structpb.File_google_protobuf_struct_proto, "Struct", func() proto.Message { return new(structpb.Struct) })
	add(descriptorpb.File_google_protobuf_descriptor_proto, "FileDescriptorProto", func() proto.Message { return new(descriptorpb.FileDescriptorProto) })
	return all
}

// Messages go through objects unharmed, as Go's protobuf reads them.
func TestMessagesGoThroughObjects(t *testing.T) {
	for _, s := range subjects(t) {
		r := rand.New(rand.NewPCG(3, 4))
		for round := range 150 {
			in := s.make()
			random(r, in.ProtoReflect(), 4)
			encoded, err := proto.Marshal(in)
			if err != nil {
				t.Fatal(err)
			}
			o, err := s.of.Decode(encoded, 1<<22)
			if err != nil {
				t.Fatalf("%s %d: %v", s.name, round, err)
			}
			if _, err := s.of.Verify(o.Bytes()); err != nil {
				t.Fatalf("%s %d: what Decode has made is not sound: %v", s.name, round, err)
			}
			back, err := o.Protobuf()
			if err != nil {
				t.Fatal(err)
			}
			out := s.make()
			if err := proto.Unmarshal(back, out); err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(in, out) {
				t.Fatalf("%s %d: %v\nhas become %v", s.name, round, in, out)
			}
		}
	}
}

// Bytes that are damaged are refused, or mean the same to Go's protobuf; nothing panics.
func TestDamagedMessages(t *testing.T) {
	for _, s := range subjects(t) {
		r := rand.New(rand.NewPCG(5, 6))
		taken := 0
		for range 600 {
			in := s.make()
			random(r, in.ProtoReflect(), 3)
			encoded, _ := proto.Marshal(in)
			for range 1 + r.IntN(3) {
				if len(encoded) > 0 {
					encoded[r.IntN(len(encoded))] ^= 1 << r.IntN(8)
				}
			}
			encoded = encoded[:len(encoded)-r.IntN(2)*r.IntN(len(encoded)+1)]
			o, err := s.of.Decode(encoded, 1<<22)
			if err != nil {
				continue
			}
			taken++
			theirs := s.make()
			if err := unmarshal(encoded, theirs); err == errPanics {
				continue
			} else if err != nil {
				t.Fatalf("%s: %x is taken, and by Go's protobuf: %v", s.name, encoded, err)
			}
			back, err := o.Protobuf()
			if err != nil {
				t.Fatal(err)
			}
			ours := s.make()
			if err := unmarshal(back, ours); err == errPanics {
				continue
			} else if err != nil || !s.closed && !proto.Equal(ours, theirs) {
				t.Fatalf("%s: %x is %v here (%v), and to Go's protobuf %v", s.name, encoded, ours, err, theirs)
			}
		}
		if taken < 60 {
			t.Errorf("%s: only %d damaged messages were taken", s.name, taken)
		}
	}
}

// Objects that are damaged are refused, or can be walked as a whole; nothing panics.
func TestDamagedObjects(t *testing.T) {
	for _, s := range subjects(t) {
		r := rand.New(rand.NewPCG(7, 8))
		taken := 0
		for range 600 {
			in := s.make()
			random(r, in.ProtoReflect(), 3)
			encoded, _ := proto.Marshal(in)
			o, err := s.of.Decode(encoded, 1<<22)
			if err != nil {
				t.Fatal(err)
			}
			damaged := append([]byte(nil), o.Bytes()...)
			for range 1 + r.IntN(3) {
				damaged[32+r.IntN(len(damaged)-32)] ^= 1 << r.IntN(8)
			}
			sound, err := s.of.Verify(damaged)
			if err != nil {
				continue
			}
			taken++
			if _, err := sound.Protobuf(); err != nil {
				t.Fatal(err)
			}
		}
		if taken < 10 {
			t.Errorf("%s: only %d damaged objects were taken", s.name, taken)
		}
	}
}
