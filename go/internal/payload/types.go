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

// reaches says whether a message of this type can have a field of bytes that goes by itself. Those of maps, groups and extensions don't.
func reaches(message protoreflect.MessageDescriptor) bool {
	if known, ok := reaching.types.Load(message); ok {
		return known.(bool)
	}
	seen := map[protoreflect.FullName]bool{}
	var visit func(protoreflect.MessageDescriptor) bool
	visit = func(m protoreflect.MessageDescriptor) bool {
		if seen[m.FullName()] {
			return false
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			switch field := m.Fields().Get(i); {
			case field.IsMap():
			case field.Kind() == protoreflect.BytesKind, field.Kind() == protoreflect.MessageKind && visit(field.Message()):
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
