package transport

import (
	"sync/atomic"

	"github.com/tollfree/tollfree/go/internal/ring"
)

// A room is what the reader has to know of this side's ring, in which others send: whether something waits until the peer has
// read on, and whether so much waits that nothing more is to be received.
//
// Invariant: seen is how far the peer had read when lacks was set last. The link's lock guards what changes; the reader looks
// without it.
type room struct {
	sender *ring.Sender
	// lacks says that something waits until the peer has read on from seen.
	lacks atomic.Bool
	seen  atomic.Uint64
	// stops says that nothing is to be received while room is lacking: the peer doesn't read.
	stops atomic.Bool
}

func newRoom(sender *ring.Sender) room { return room{sender: sender} }

// lacking says whether something waits for room.
func (r *room) lacking() bool { return r.lacks.Load() }

// allows says whether the reader is to receive, cameBack whether the peer has read on while something waited for that.
func (r *room) allows() bool   { return !(r.lacks.Load() && r.stops.Load()) }
func (r *room) cameBack() bool { return r.lacks.Load() && r.sender.Moved(r.seen.Load()) }

// stop sets whether receiving stops while room is lacking; stopped says what was set.
func (r *room) stop(stop bool) { set(&r.stops, stop) }
func (r *room) stopped() bool  { return r.stops.Load() }

// look takes the peer's word on how far it has read, if something waits for that.
func (r *room) look() {
	if r.lacks.Load() {
		r.sender.Consumed()
	}
}

// note sets how far the peer had read when sending was tried, and says whether it has read on since the time before.
func (r *room) note() (moved bool) {
	seen := r.sender.Seen()
	if seen == r.seen.Load() {
		return false
	}
	r.seen.Store(seen)
	return true
}

// lack sets whether something waits for room.
func (r *room) lack(lacks bool) { set(&r.lacks, lacks) }

// set stores what is not there yet: a store takes longer than a look.
func set(flag *atomic.Bool, value bool) {
	if flag.Load() != value {
		flag.Store(value)
	}
}
