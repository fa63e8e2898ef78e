package transport

import (
	"github.com/tollfree/tollfree/go/internal/rendezvous"
)

// A socket is by what the two ends of a session ring each other, and hear of each other's end: a Unix socket, or a stream to another host.
type socket interface {
	// PID, UID and GID are the peer's, as the kernel says.
	PID() int32
	UID() uint32
	GID() uint32
	// Ring rings the peer, and Wake has Await return. Neither waits.
	Ring()
	Wake()
	// Shutdown has the peer hear of the end, and goroutines that wait here. Close gives back what there is.
	Shutdown()
	Close()
	// AwaitDeath waits until the peer's process has ended; false: that can't be watched, or Shutdown was called.
	AwaitDeath() bool
	// SendDescriptor sends a descriptor, and Drain takes those that have come.
	SendDescriptor(fd int) error
	Drain(take func(fd int)) (rung bool, err error)
}

// A bell waits for the peer to ring; Await's errors say that the session is over.
type bell interface{ Await() error }

// bellOf is what the link's goroutine waits at.
func (l *link) bellOf() bell {
	switch s := l.conn.(type) {
	case *rendezvous.Conn:
		return rendezvous.NewDoorbell(s, l.areas.given, func(drain func()) {
			l.mu.Lock()
			drain()
			l.mu.Unlock()
		})
	case *stream:
		return s
	}
	panic("a socket of no kind that there is")
}

// settleSocket waits until nothing but the session touches its memory. Shutdown has been called.
func (l *link) settleSocket() {
	if s, is := l.conn.(*stream); is {
		s.parts.Wait()
	}
}
