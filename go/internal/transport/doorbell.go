package transport

import (
	"sync/atomic"
	"time"

	"github.com/tollfree/tollfree/go/internal/ring"
	"github.com/tollfree/tollfree/go/internal/steps"
)

// A doorbell has the peer wake this side while nobody here looks at the ring, and wakes the peer while nobody looks there:
// spec/wire.md, section 6.
//
// Invariant: the waiting word in this side's region says "parked" exactly while parked is set. The link's lock guards all but
// ring and awaited.
type doorbell struct {
	conn   socket
	waiter *ring.Waiter
	ringer *ring.Ringer
	// parked says that the waiting word is set, forRoom whether for room too.
	parked, forRoom bool
	// released says that room was given back, and the peer not rung for it.
	released bool
	// rung says that the peer was rung since awaited was called last.
	rung atomic.Bool
}

// linkEpoch is what times are counted from.
var linkEpoch = time.Now()

// monotonic is the time since linkEpoch. It takes half of what time.Now does.
func monotonic() time.Duration { return time.Since(linkEpoch) }

func newDoorbell(m *meeting) doorbell {
	return doorbell{conn: m.conn, waiter: ring.NewWaiter(m.own.Memory()), ringer: ring.NewRinger(m.peer)}
}

// park has the peer ring from now on: for room too where forRoom is set.
func (d *doorbell) park(forRoom bool) {
	d.parked, d.forRoom = true, forRoom
	d.waiter.Park(forRoom)
}

// unpark has the peer ring no more.
func (d *doorbell) unpark() {
	if d.parked {
		d.parked = false
		d.waiter.Unpark()
	}
}

// deaf says whether the peer would not ring for room though it rings for records.
func (d *doorbell) deaf() bool { return d.parked && !d.forRoom }

// release notes that room was given back.
func (d *doorbell) release() { d.released = true }

// due says whether the peer sleeps and is to be rung: for records where published is set, and for room given back.
func (d *doorbell) due(published bool) (due bool) {
	if published {
		due = d.ringer.Published()
	}
	if d.released {
		d.released = false
		due = d.ringer.Released() || due
	}
	return due
}

// ring rings the peer.
func (d *doorbell) ring() {
	d.rung.Store(true)
	d.conn.Ring()
	steps.Pass(steps.Rung)
}

// awaited is what an answer of the peer waits for.
func (d *doorbell) awaited() waitedFor {
	if d.rung.Swap(false) {
		return peerAwake
	}
	return peerAtWork
}
