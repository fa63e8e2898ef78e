package transport

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollfree/tollfree/go/internal/region"
	"github.com/tollfree/tollfree/go/internal/rendezvous"
	"github.com/tollfree/tollfree/go/internal/ring"
	"github.com/tollfree/tollfree/go/internal/session"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// recordsPerTurn bounds what is received at one go, before what answers it is published.
const recordsPerTurn = 64

// A link is one session at work.
type link struct {
	role   wire.Role
	config *Config
	conn   *rendezvous.Conn
	said   wire.Hello
	shift  int64
	// address is where the session was made.
	address string
	// parent is what contexts of the session's calls descend from.
	parent context.Context
	// ended has reader's goroutine tell the listener; taken is what to do with calls that have come, in the reader's place.
	ended func()
	taken func(calls []*serverCall, loop int) (elsewhere bool)

	// reading is 1 while somebody has the reading role.
	reading atomic.Int32
	looker  looker
	// stopped says that nothing is to be received while room is lacking: the peer doesn't read.
	stopped atomic.Bool
	// lacksRoom says that something waits until the peer has read on from roomSeen.
	lacksRoom atomic.Bool
	roomSeen  atomic.Uint64
	isOver    atomic.Bool
	rangAt    atomic.Int64

	mu       sync.Mutex
	session  *session.Session
	sender   *ring.Sender
	receiver *ring.Receiver
	waiter   *ring.Waiter
	ringer   *ring.Ringer
	own      *region.Own
	peer     []byte
	areas    areas
	// parked says that the waiting word is set, parkedFor whether for room too.
	parked, parkedForRoom bool
	// released says that room was given back and the peer not rung for it.
	released bool
	// handed gives the reading role, which stays taken, to the link's goroutine.
	handed bool
	// loop is the number of the goroutine that is the link's now.
	loop int
	// sleepers counts callers that sleep until somebody reads.
	sleepers int
	// roused says that a reader has woken others, who want its processor.
	roused bool
	// starters wait to open calls, in order; startersLackRoom says that they wait for room.
	starters         []*sleeper
	startersLackRoom bool
	// fresh are calls that have come and were not delivered, spare is room for the next.
	fresh, spare []*serverCall
	draining     chan struct{}
	isDraining   bool
	done         chan struct{}
	// dead is closed when nobody watches the peer's process any more, cleaned when all is given back.
	dead, cleaned chan struct{}
	err           error
	unmapped      bool
}

func newLink(role wire.Role, m *meeting, config *Config) *link {
	l := &link{
		role: role, config: config, conn: m.conn, said: m.said, shift: m.clockShift(), looker: newLooker(),
		own: m.own, peer: m.peer, draining: make(chan struct{}), done: make(chan struct{}), parent: context.Background(),
	}
	own := m.own.Memory()
	l.sender = ring.NewSender(own, m.peer, wire.RingLenDefault)
	l.receiver = ring.NewReceiver(own, m.peer, int(m.said.RingLen))
	l.waiter, l.ringer = ring.NewWaiter(own), ring.NewRinger(m.peer)
	l.areas.link = l
	local := config.limits()
	l.session = session.New(role, local, peerLimits(&m.said), &l.areas, func() *session.Stream { return &newServerCall(l).Stream })
	return l
}

// sleeper is somebody who may sleep until something has changed.
type sleeper struct {
	wake     chan struct{}
	sleeping bool
	// loop, if not 0, is the link's goroutine that it runs on.
	loop int
}

// rouse wakes a sleeper. The caller holds the lock.
func (s *sleeper) rouse(l *link) {
	if s.sleeping {
		s.sleeping = false
		l.sleepers--
		l.roused = true
		s.wake <- struct{}{}
	}
}

// there says whether the reader has something to do.
func (l *link) there() bool {
	if l.isOver.Load() {
		return true
	}
	lacks := l.lacksRoom.Load()
	if lacks && l.sender.Moved(l.roomSeen.Load()) {
		return true
	}
	return !(lacks && l.stopped.Load()) && l.receiver.HasNext()
}

// tryRead takes the reading role, if it is free. The caller holds the lock.
func (l *link) tryRead() bool { return !l.isOver.Load() && l.reading.CompareAndSwap(0, 1) }

// receive takes what has come. The caller holds the lock and the reading role.
func (l *link) receive(most int) {
	set(&l.stopped, l.session.Congested())
	for ; most > 0 && !l.stopped.Load() && l.session.Closed() == nil; most-- {
		record, ok, err := l.receiver.Next()
		if err != nil {
			l.end(&session.Violation{Place: "ring", What: err.Error()}, true)
			return
		}
		if !ok {
			return
		}
		inArea, err := l.session.Receive(record)
		due := l.receiver.Advance()
		if err != nil {
			l.end(err, true)
			return
		}
		if inArea || due {
			l.released = l.receiver.Release() || l.released
		}
		set(&l.stopped, l.session.Congested())
	}
}

// accept takes calls that have come to a server. The caller holds the lock.
func (l *link) accept() {
	if l.role != wire.Server {
		return
	}
	for st := l.session.NextOpened(); st != nil; st = l.session.NextOpened() {
		l.fresh = append(l.fresh, st.Owner().(*serverCall))
	}
}

// unlock sends what there is, wakes whom that concerns, and gives the lock back.
func (l *link) unlock() {
	if l.unmapped {
		l.mu.Unlock()
		return
	}
	rings := l.send()
	l.settle()
	l.mu.Unlock()
	if rings {
		l.ring()
	}
}

// ring wakes the peer, and notes when.
func (l *link) ring() {
	l.rangAt.Store(int64(time.Since(linkEpoch)))
	l.conn.Ring()
}

// rang is when the peer was woken, if it has been since that was asked last.
func (l *link) rang() time.Time {
	at := l.rangAt.Swap(0)
	if at == 0 {
		return time.Time{}
	}
	return linkEpoch.Add(time.Duration(at))
}

// set stores what is not there yet: a store takes longer than a look.
func set(flag *atomic.Bool, value bool) {
	if flag.Load() != value {
		flag.Store(value)
	}
}

// linkEpoch is what rangAt counts from.
var linkEpoch = time.Now()

// send flushes and publishes, and says whether to ring the peer. The caller holds the lock.
func (l *link) send() (rings bool) {
	if !l.isOver.Load() {
		if l.lacksRoom.Load() {
			l.sender.Consumed()
		}
		flushed := l.session.Flush(l)
		if err := l.sender.Err(); err != nil {
			l.end(&session.Violation{Place: "ring", What: err.Error()}, true)
		} else {
			if l.startersLackRoom && l.sender.Seen() != l.roomSeen.Load() {
				l.startersLackRoom = false
			}
			lacks := !flushed || l.startersLackRoom
			if seen := l.sender.Seen(); seen != l.roomSeen.Load() {
				l.roomSeen.Store(seen)
			}
			set(&l.lacksRoom, lacks)
			if lacks && l.parked && !l.parkedForRoom {
				// The goroutine that parked did not know that room would be lacking.
				l.parkAgain()
			}
		}
	}
	if l.sender.Publish() {
		rings = l.ringer.Published()
	}
	if l.released {
		l.released = false
		rings = l.ringer.Released() || rings
	}
	return rings
}

// settle does what follows from what has changed. The caller holds the lock.
func (l *link) settle() {
	if l.session.Closed() != nil && !l.isOver.Load() {
		l.over()
	}
	if l.session.Draining() && !l.isDraining {
		l.isDraining = true
		close(l.draining)
	}
	over := l.isOver.Load()
	if l.isDraining && l.role == wire.Server && !over && l.session.Live() == 0 && len(l.fresh) == 0 && !l.lacksRoom.Load() {
		l.end(&session.Closed{Text: "the server has drained the session"}, true)
		over = true
	}
	switch {
	case len(l.starters) == 0:
	case over || l.isDraining:
		for _, starter := range l.starters {
			starter.rouse(l)
		}
	case l.session.MayOpen() && !l.startersLackRoom:
		// It wakes the next when it has opened its call.
		l.starters[0].rouse(l)
	}
}

// end ends the session: with a word to the peer where tell is set. The caller holds the lock.
func (l *link) end(reason error, tell bool) {
	if l.isOver.Load() {
		return
	}
	if tell {
		l.session.Close(l, reason)
		if l.sender.Publish() && l.ringer.Published() {
			l.conn.Ring()
		}
	} else {
		l.session.End(reason)
	}
	l.over()
}

// over takes note that the session is over. The caller holds the lock.
func (l *link) over() {
	l.err = l.session.Closed()
	l.isOver.Store(true)
	l.areas.closeGiven()
	l.conn.Shutdown()
	if !l.isDraining {
		l.isDraining = true
		close(l.draining)
	}
	close(l.done)
}

// park says that nobody looks at the ring any more, unless something is there. The caller holds the lock and the reading
// role, and gives the latter up where the answer is true.
func (l *link) park() bool {
	l.parked, l.parkedForRoom = true, l.lacksRoom.Load()
	l.waiter.Park(l.parkedForRoom)
	if l.there() {
		l.unpark()
		return false
	}
	l.reading.Store(0)
	return true
}

func (l *link) unpark() {
	if l.parked {
		l.parked = false
		l.waiter.Unpark()
	}
}

// parkAgain parks for room too. Nobody has the reading role; if something is there, the link's goroutine gets it.
func (l *link) parkAgain() {
	l.parkedForRoom = true
	l.waiter.Park(true)
	if l.there() && l.tryRead() {
		l.unpark()
		l.handOver()
	}
}

// handOver gives the reading role, which the caller has, to the link's goroutine. The caller holds the lock.
func (l *link) handOver() {
	l.handed = true
	l.conn.Wake()
}

// leave gives the reading role up. The caller holds the lock.
func (l *link) leave() {
	for !l.isOver.Load() {
		if l.sleepers > 0 {
			l.handOver()
			return
		}
		if l.park() {
			return
		}
		l.pass()
	}
	l.reading.Store(0)
}

// pass receives, and sends what answers that, with the lock held before and after. The caller has the reading role.
func (l *link) pass() {
	l.receive(recordsPerTurn)
	l.accept()
	rings := l.send()
	l.settle()
	if rings {
		l.ring()
	}
}

// await waits until ready says so, which is called with the lock held, as await is and returns, and not again once it has; it
// returns earlier only where ctx is done. It reads the ring by itself where nobody else does.
func (l *link) await(ctx context.Context, s *sleeper, ready func() bool) {
	for !ready() && ctx.Err() == nil {
		if !l.tryRead() {
			l.sleep(ctx, s)
		} else if l.read(ctx, s, ready) {
			return
		}
	}
}

// read has the reading role until ready says so, or nothing comes. It says whether await is to return.
func (l *link) read(ctx context.Context, s *sleeper, ready func() bool) bool {
	l.unpark()
	yields := false
	for {
		l.unlock()
		found := l.looker.look(l.there, l.rang(), yields)
		l.mu.Lock()
		yields = false
		if found {
			l.pass()
			yields, l.roused = l.roused, false
			yields = l.deliver(0) || yields
		}
		if ready() || ctx.Err() != nil {
			l.leave()
			return true
		}
		if l.isOver.Load() {
			l.leave()
			return false
		}
		if !found && l.park() {
			l.sleep(ctx, s)
			return false
		}
	}
}

// sleep sleeps until somebody rouses s. The caller holds the lock, and has it again afterwards.
func (l *link) sleep(ctx context.Context, s *sleeper) {
	if s.wake == nil {
		s.wake = make(chan struct{}, 1)
	}
	if s.loop != 0 && s.loop == l.loop {
		// A handler sleeps on the link's goroutine: another one listens to the socket from now on.
		l.loop++
		go l.listen(l.loop)
	}
	s.sleeping = true
	l.sleepers++
	l.unlock()
	select {
	case <-s.wake:
		l.mu.Lock()
		return
	case <-ctx.Done():
	}
	l.mu.Lock()
	if s.sleeping {
		s.sleeping = false
		l.sleepers--
		return
	}
	<-s.wake
}

// deliver has calls that have come served: on the goroutine loop where their handlers may run there; 0: none may. It says
// whether other goroutines serve any. The caller holds the lock, which is given up meanwhile.
func (l *link) deliver(loop int) (elsewhere bool) {
	if len(l.fresh) == 0 {
		return false
	}
	// Another reader may have calls of its own to deliver.
	fresh := l.fresh
	l.fresh, l.spare = l.spare[:0], nil
	l.mu.Unlock()
	elsewhere = l.taken(fresh, loop)
	clear(fresh)
	l.mu.Lock()
	if cap(fresh) <= recordsPerTurn {
		l.spare = fresh[:0]
	}
	return elsewhere
}

// run is the link's own goroutine. It returns when nothing of the session is left.
func (l *link) run() {
	l.dead, l.cleaned = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(l.dead)
		if l.conn.AwaitDeath() {
			// A child that the process forked may keep the socket open.
			l.hangUp("the peer's process has ended")
		}
	}()
	l.loop = 1
	l.listen(l.loop)
	<-l.cleaned
}

// listen sleeps in the poller until the peer rings, reads while there is something to read or somebody waits, and cleans up at
// the end. It returns early where another goroutine has taken its place.
func (l *link) listen(loop int) {
	around := func(drain func()) {
		l.mu.Lock()
		drain()
		l.mu.Unlock()
	}
	// Nobody has said yet that nobody looks.
	if !l.serve(loop) {
		return
	}
	for !l.isOver.Load() {
		err := l.conn.AwaitDoorbell(l.areas.given, around)
		if err == nil && l.areas.tooMany.Load() {
			err = rendezvous.ErrTooMany
		}
		switch {
		case errors.Is(err, rendezvous.ErrTooMany):
			l.mu.Lock()
			l.end(&session.Violation{Place: "socket", What: err.Error()}, true)
			l.unlock()
		case errors.Is(err, io.EOF):
			l.hangUp("the peer has hung up")
		case err != nil:
			l.hangUp("the peer is gone: " + err.Error())
		case !l.serve(loop):
			return
		}
	}
	<-l.dead
	l.clean()
}

// serve reads while there is something, or somebody waits; false: another goroutine has taken this one's place.
func (l *link) serve(loop int) bool {
	l.mu.Lock()
	switch {
	case l.handed:
		l.handed = false
	case !l.tryRead():
		l.mu.Unlock()
		return true
	default:
		l.looker.slept(l.rang())
	}
	l.unpark()
	for {
		l.pass()
		yields := l.roused
		l.roused = false
		if len(l.fresh) > 0 && !l.isOver.Load() {
			// A handler that runs here may have to read for itself.
			l.reading.Store(0)
			yields = l.deliver(loop) || yields
			if l.loop != loop {
				l.unlock()
				return false
			}
			if !l.tryRead() {
				break
			}
			l.unpark()
		}
		if l.isOver.Load() || l.role == wire.Client && l.sleepers == 0 {
			l.leave()
			break
		}
		l.unlock()
		found := l.looker.look(l.there, l.rang(), yields)
		l.mu.Lock()
		if !found && l.park() {
			break
		}
	}
	l.unlock()
	return true
}

// takeRole waits for the reading role, which nobody keeps for long once isOver is set or the peer is silent.
func (l *link) takeRole() {
	for {
		l.mu.Lock()
		if l.handed {
			l.handed = false
			return
		}
		if l.reading.CompareAndSwap(0, 1) {
			return
		}
		l.mu.Unlock()
		time.Sleep(50 * time.Microsecond)
	}
}

// hangUp ends the session after what the peer had published before it went.
func (l *link) hangUp(why string) {
	l.takeRole()
	if !l.isOver.Load() {
		l.receive(wire.RingLenMax / wire.LineLen)
		l.accept()
		l.end(&session.Closed{ByPeer: true, Text: why}, false)
	}
	l.reading.Store(0)
	l.deliver(0)
	l.unlock()
}

// clean gives back what the session has taken, when nobody uses it any more.
func (l *link) clean() {
	l.takeRole()
	l.deliver(0)
	l.settle()
	l.unmapped = true
	l.own.Unmap()
	region.Unmap(l.peer)
	l.peer = nil
	l.areas.unmapAll()
	l.mu.Unlock()
	l.conn.Close()
	if l.ended != nil {
		l.ended()
	}
	close(l.cleaned)
}

// load is what the peer's word says.
func (l *link) load() (uint32, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unmapped || l.said.Features&wire.FeatureLoad == 0 {
		return 0, false
	}
	return ring.LoadOf(l.peer)
}

// storeLoad says how many calls this server has under way.
func (l *link) storeLoad(calls uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.unmapped && l.said.Features&wire.FeatureLoad != 0 {
		ring.StoreLoad(l.own.Memory(), wire.LoadWord(calls))
	}
}

// RecordLenMax, Begin and BeginArea make the link the session's way out.
func (l *link) RecordLenMax() int { return l.sender.RecordLenMax() }

func (l *link) Begin(n int) (ring.Place, bool) { return l.sender.Begin(n) }

func (l *link) BeginArea(n, want int) (record, chunk ring.Place, at wire.AreaRange, ok bool) {
	return l.areas.begin(n, want)
}
