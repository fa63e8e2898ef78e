package session

import "github.com/tollfree/tollfree/go/internal/wire"

// An ObjectsOf says of a method whether its messages may be flat messages, and the fingerprint of its types: spec/wire.md, section 12.
type ObjectsOf func(path string) (fingerprint uint64, ok bool)

// SetObjects has a server say of methods, as soon as they are named, that it takes objects. Nothing has been received before.
func (s *Session) SetObjects(of ObjectsOf) { s.objectsOf = of }

// sayObjects says that the server takes objects of a method that has been named just now, if it does.
func (s *Session) sayObjects(path string, index uint16) {
	if s.objectsOf == nil {
		return
	}
	if fingerprint, ok := s.objectsOf(path); ok {
		s.pending.Push(wire.Head{Events: wire.Control, Code: wire.Objects, Stream: fingerprint, ChunkLen: uint32(index)})
	}
}

// TakesObjects says to a client whether the server has said that it takes objects of a method, and the fingerprint of its types there.
func (s *Session) TakesObjects(path string) (fingerprint uint64, ok bool) {
	index, named := s.methods.byPath[path]
	if !named {
		return 0, false
	}
	fingerprint, ok = s.methods.objects[uint32(index)]
	return fingerprint, ok
}
