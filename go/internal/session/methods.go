package session

import "github.com/tollfree/tollfree/go/internal/wire"

// methods are what a session has named: spec/wire.md, section 10. Each end keeps its own, and both decide alike.
type methods struct {
	paths    []string
	pathsLen int
	// byPath is the client's.
	byPath map[string]uint16
	// objects are the fingerprints of the methods of which the server has said OBJECTS, by index.
	objects map[uint32]uint64
}

// next is the index that one more path gets, if there is one.
func (m *methods) next(pathLen int) (index uint16, ok bool) {
	if len(m.paths) >= wire.MethodCountMax || m.pathsLen+pathLen > wire.MethodPathsLenMax {
		return 0, false
	}
	return uint16(len(m.paths)), true
}

func (m *methods) add(path string) {
	m.paths = append(m.paths, path)
	m.pathsLen += len(path)
}

// named notes a path that this end has named.
func (m *methods) named(path string) {
	if m.byPath == nil {
		m.byPath = map[string]uint16{}
	}
	m.byPath[path] = uint16(len(m.paths))
	m.add(path)
}

// takesObjects notes that the server takes objects of a method whose types have a fingerprint; false: there is no such method, or it has said
// so before.
func (m *methods) takesObjects(index uint32, fingerprint uint64) bool {
	if _, again := m.objects[index]; again || uint64(index) >= uint64(len(m.paths)) {
		return false
	}
	if m.objects == nil {
		m.objects = map[uint32]uint64{}
	}
	m.objects[index] = fingerprint
	return true
}
