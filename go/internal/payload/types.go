// Package payload has fields of protobuf messages lie in memory of a pool, with the messages of protoc-gen-go as they are: what is sent from
// there goes by ref, and what came by ref can be read there.
package payload

import (
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// LenMin is the length of the shortest field that goes, or is read, by itself: a page.
const LenMin = 4096

// reachingMax is of how many types it is kept what they reach: a program may make types as it runs.
const reachingMax = 4096

// reaching says of message types whether they, or messages in them, have fields of bytes.
var reaching struct {
	types sync.Map // protoreflect.MessageDescriptor to bool
	count atomic.Int64
}

// reaches says whether a message of this type can have a field of bytes that goes by itself.
func reaches(message protoreflect.MessageDescriptor) bool {
	if known, ok := reaching.types.Load(message); ok {
		return known.(bool)
	}
	seen := map[protoreflect.FullName]bool{}
	var visit func(protoreflect.MessageDescriptor) bool
	visit = func(m protoreflect.MessageDescriptor) bool {
		if seen[m.FullName()] || isMessageSet(m) {
			return false
		}
		seen[m.FullName()] = true
		if m.ExtensionRanges().Len() > 0 {
			// Which extensions there are only a message shows.
			return true
		}
		for i := range m.Fields().Len() {
			value := valueOf(m.Fields().Get(i))
			if value.Kind() == protoreflect.BytesKind || value.Message() != nil && visit(value.Message()) {
				return true
			}
		}
		return false
	}
	found := visit(message)
	if reaching.count.Load() < reachingMax {
		if _, there := reaching.types.LoadOrStore(message, found); !there {
			reaching.count.Add(1)
		}
	}
	return found
}

// valueOf is the field that says what the values of a field are: of a map, that of its entries.
func valueOf(field protoreflect.FieldDescriptor) protoreflect.FieldDescriptor {
	if field.IsMap() {
		return field.MapValue()
	}
	return field
}

// mayHold says whether values of a field are bytes, or messages that have some.
func mayHold(field protoreflect.FieldDescriptor) bool {
	value := valueOf(field)
	return value.Kind() == protoreflect.BytesKind || value.Message() != nil && reaches(value.Message())
}

// isMessageSet says of an old kind of message that it is encoded otherwise than all others.
func isMessageSet(m protoreflect.MessageDescriptor) bool {
	options, ok := m.Options().(interface{ GetMessageSetWireFormat() bool })
	return ok && options.GetMessageSetWireFormat()
}
