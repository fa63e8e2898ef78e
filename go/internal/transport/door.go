package transport

import (
	"sync"

	"github.com/tollfree/tollfree/go/internal/rendezvous"
)

// door are clients that have not sent all of their handshake message. Where too many are silent, the
// oldest goes.
type door struct {
	mu      sync.Mutex
	most    int
	waiting []*rendezvous.Conn
}

func newDoor() door { return door{most: int(min(max(descriptorsMax()/8, 4), 256))} }

func (d *door) enter(conn *rendezvous.Conn) (leave func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting = append(d.waiting, conn)
	own := 0
	for _, other := range d.waiting {
		if other.PID() == conn.PID() {
			own++
		}
	}
	for i, other := range d.waiting {
		if len(d.waiting) > d.most || own > d.most/4 && other.PID() == conn.PID() {
			// It leaves later. Those that come meanwhile have others turned out.
			d.waiting = append(d.waiting[:i], d.waiting[i+1:]...)
			other.TurnOut()
			break
		}
	}
	return func() { d.leave(conn) }
}

func (d *door) leave(conn *rendezvous.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, other := range d.waiting {
		if other == conn {
			d.waiting = append(d.waiting[:i], d.waiting[i+1:]...)
			return
		}
	}
}

func (d *door) clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, conn := range d.waiting {
		conn.TurnOut()
	}
}
