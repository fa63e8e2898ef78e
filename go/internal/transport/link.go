package transport

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/pool"
	"github.com/tollfree/tollfree/go/internal/ring"
	"github.com/tollfree/tollfree/go/internal/session"
	"github.com/tollfree/tollfree/go/internal/steps"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// recordsPerTurn bounds what is received at one go, before what answers it is published.
const recordsPerTurn = 64

// A link is one session at work: this file receives and sends, waiting.go has callers wait, and loop.go is the link's own
// goroutine.
//
// Each part owns its fields, and says in its file which invariants it keeps.
type link struct {
	side
	mu       sync.Mutex
	session  *session.Session
	rings    rings
	room     room
	bell     doorbell
	areas    areas
	reading  readingRole
	starters starters
	cork     cork
	arrivals arrivals
	life     lifetime
	headers  lastHeaders
	// segmented messages looks for segmented messages that the peer has taken.
	segmented segmentedWatch
	lending   lending
	// moved says that its gateway has asked the process to attach anew.
	moved atomic.Bool
}

// A side is what is known of a session's ends when its link is made, and never changes.
type side struct {
	role   wire.Role
	config *Config
	conn   socket
	said   wire.Hello
	shift  int64
	peer   call.Peer
	// agent is the peer's, as a header's value. Nobody changes it.
	agent []string
	// pool is the one that both ends are members of; nil: none.
	pool *pool.Pool
	host host
}

// A host is what a server's listener does for its links. Clients have none.
type host struct {
	// parent is what contexts of the session's calls descend from.
	parent context.Context
	// serve serves calls that have come: on the goroutine loop where their handlers may run there; 0: none may. It says whether
	// other goroutines serve any.
	serve func(calls []*serverCall, loop int) (elsewhere bool)
	// ended, if not nil, is called when nothing of the session is left.
	ended func(*link)
	// moves, if not nil, gets what a gateway waits to be closed that wants the process to attach anew.
	moves chan<- chan<- struct{}
}

func newLink(role wire.Role, m *meeting, peer call.Peer, config *Config, host host) *link {
	l := &link{
		side: side{
			role: role, config: config, conn: m.conn, said: m.said, shift: m.clockShift(), peer: peer, agent: []string{peer.Agent},
			pool: config.poolWith(&m.said), host: host,
		},
		rings: newRings(m), bell: newDoorbell(m), reading: newReadingRole(), life: newLifetime(),
		lending: newLending(peer, &m.said),
	}
	l.room, l.areas = newRoom(l.rings.sender), newAreas(l)
	local := config.limits()
	l.session = session.New(role, local, peerLimits(&m.said), l.pool != nil || l.lending.allowed, &l.areas, func() *session.Stream { return &newServerCall(l).Stream })
	if role == wire.Server && config.Objects != nil {
		l.session.SetObjects(config.Objects)
	}
	return l
}

// there says whether the reader has something to do.
func (l *link) there() bool {
	return l.life.over() || l.room.cameBack() || l.room.allows() && l.rings.receiver.HasNext()
}

// receive takes what has come. The caller holds the lock and the reading role.
func (l *link) receive(most int) {
	l.room.stop(l.session.Congested())
	for ; most > 0 && !l.room.stopped() && l.session.Closed() == nil; most-- {
		record, ok, err := l.rings.receiver.Next()
		if err != nil {
			l.end(&session.Violation{Place: "ring", What: err.Error()}, true)
			return
		}
		if !ok {
			return
		}
		inArea, err := l.session.Receive(record)
		due := l.rings.receiver.Advance()
		if err != nil {
			l.end(err, true)
			return
		}
		if (inArea || due) && l.rings.receiver.Release() {
			l.bell.release()
		}
		l.room.stop(l.session.Congested())
	}
}

// unlock sends what there is, wakes whom that concerns, and gives the lock back.
func (l *link) unlock() {
	if !l.rings.mapped() || l.quiet() {
		l.mu.Unlock()
		return
	}
	rings := l.push()
	l.mu.Unlock()
	if rings {
		l.bell.ring()
	}
}

// quiet says that push would do nothing. The caller holds the lock.
func (l *link) quiet() bool {
	return l.session.Quiet() && l.rings.sender.Staged() == l.rings.sender.Published() && l.starters.none() && !l.room.lacking() &&
		!l.bell.released && !l.life.drains
}

// push sends what there is, wakes whom that concerns, and says whether to ring the peer. The caller holds the lock.
func (l *link) push() (rings bool) {
	rings = l.send()
	l.settle()
	return rings
}

// send flushes and publishes, and says whether to ring the peer. The caller holds the lock.
func (l *link) send() (rings bool) {
	if !l.life.over() {
		l.room.look()
		flushed := l.session.Flush(l)
		if err := l.rings.sender.Err(); err != nil {
			l.end(&session.Violation{Place: "ring", What: err.Error()}, true)
		} else {
			if l.room.note() {
				l.starters.roomMoved()
			}
			lacks := !flushed || l.starters.lacking()
			l.room.lack(lacks)
			if lacks && l.bell.deaf() {
				// The goroutine that parked did not know that room would be lacking.
				l.parkAgain()
			}
		}
	}
	if l.session.KeepsSegmentedMessages() {
		l.segmented.arm(l)
	}
	published := l.rings.sender.Publish()
	return l.bell.due(l.session.TookLoud() && published)
}

// settle does what follows from what has changed. The caller holds the lock.
func (l *link) settle() {
	if l.session.Closed() != nil && !l.life.over() {
		l.over()
	}
	if l.session.Draining() {
		l.life.drain()
	}
	if l.life.drains && l.role == wire.Server && !l.life.over() && l.session.Live() == 0 && l.arrivals.none() && !l.room.lacking() {
		l.end(&session.Closed{Text: "the server has drained the session"}, true)
	}
	switch {
	case l.starters.none():
	case l.life.drains:
		l.starters.rouseAll(&l.reading)
	case l.session.MayOpen():
		l.starters.rouseFirst(&l.reading)
	}
}

// end ends the session: with a word to the peer where tell is set. The caller holds the lock.
func (l *link) end(reason error, tell bool) {
	if l.life.over() {
		return
	}
	if tell {
		steps.Pass(steps.Closing)
		l.session.Close(l, reason)
		if l.rings.sender.Publish() && l.bell.due(true) {
			l.bell.ring()
		}
	} else {
		l.session.End(reason)
	}
	l.over()
}

// over does what follows from the session's end. The caller holds the lock.
func (l *link) over() {
	l.life.end(l.session.Closed())
	l.areas.closeGiven()
	l.conn.Shutdown()
}

// pass receives, and sends what answers that, with the lock held before and after. The caller has the reading role.
func (l *link) pass() {
	l.receive(recordsPerTurn)
	l.collect()
	rings := l.send()
	l.settle()
	if rings {
		l.bell.ring()
	}
}

// collect takes calls that have come to a server. The caller holds the lock.
func (l *link) collect() {
	if l.role == wire.Server {
		l.arrivals.collect(l.session)
	}
}

// deliver has calls that have come served: see host. The caller holds the lock, which is given up meanwhile.
func (l *link) deliver(loop int) (elsewhere bool) {
	if l.arrivals.none() {
		return false
	}
	calls := l.arrivals.take()
	l.mu.Unlock()
	elsewhere = l.host.serve(calls, loop)
	clear(calls)
	l.mu.Lock()
	l.arrivals.giveBack(calls)
	return elsewhere
}

// drain has a server take no more calls.
func (l *link) drain() {
	l.mu.Lock()
	l.session.Drain()
	l.unlock()
}

// close ends the session, and tells the peer why.
func (l *link) close(why string) {
	l.mu.Lock()
	l.end(&session.Closed{Text: why}, true)
	l.unlock()
}

// reason is why the session is over; nil while it isn't.
func (l *link) reason() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.life.reason()
}

// load is what the peer's word says.
func (l *link) load() (calls uint32, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.rings.mapped() || l.said.Features&wire.FeatureLoad == 0 {
		return 0, false
	}
	return l.rings.load()
}

// storeLoad says how many calls this server has under way.
func (l *link) storeLoad(calls uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rings.mapped() && l.said.Features&wire.FeatureLoad != 0 {
		l.rings.storeLoad(calls)
	}
}

// RecordLenMax, Begin and BeginArea make the link the session's way out.
func (l *link) RecordLenMax() int                       { return l.rings.sender.RecordLenMax() }
func (l *link) Begin(n int) (place ring.Place, ok bool) { return l.rings.sender.Begin(n) }
func (l *link) BeginArea(n, want int) (record, chunk ring.Place, at wire.AreaRange, ok bool) {
	return l.areas.begin(n, want)
}
