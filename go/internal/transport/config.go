// Package transport makes calls through shared memory: sessions of two processes, as their client or their server.
//
// # Who reads
//
// The peer's ring has one reader at a time, who holds the session's reading role. A caller that waits takes it where it is
// free, and looks at the ring by itself; others sleep until the reader wakes them. Where nobody reads, the session says so in
// its waiting word, and its own goroutine sleeps in the runtime's poller until the peer rings. A caller that leaves while
// others sleep hands the role to that goroutine.
//
// # Locks
//
// A link's mutex guards the session's state and both rings, but for the head word that the reader looks at. Nobody waits
// while it is held, and no callback of an application is called.
package transport

import (
	"github.com/tollfree/tollfree/go/internal/pool"
	"github.com/tollfree/tollfree/go/internal/rendezvous"
	"github.com/tollfree/tollfree/go/internal/session"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// Config is what a client or a server may choose. The zero value is what the protocol's reference does.
type Config struct {
	// Agent is the name and version that the peer is told, of at most 120 bytes: "name/version".
	Agent string
	// Admits says whether a process of this user may be at the other end; nil: only the own effective user.
	Admits func(uid uint32) bool
	// MessageLenMax is the length of the longest message taken; 0: 4 MiB.
	MessageLenMax uint32
	// StreamCount is how many calls at once each session of a server takes; 0: 1024.
	StreamCount uint32
	// Pool, if not nil, is a pool by which large payloads go, where the peer is a member of it too.
	Pool *pool.Pool
	// Objects, if not nil, says of which methods a server takes flat messages.
	Objects session.ObjectsOf
}

func (c Config) filled() Config {
	if c.Agent == "" {
		c.Agent = "tollfree-go"
	}
	if c.Admits == nil {
		c.Admits = rendezvous.SameUser
	}
	if c.MessageLenMax == 0 {
		c.MessageLenMax = wire.MessageLenDefault
	}
	if c.StreamCount == 0 {
		c.StreamCount = wire.StreamCountDefault
	}
	return c
}
