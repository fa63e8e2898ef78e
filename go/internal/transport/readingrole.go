package transport

import "sync/atomic"

// A readingRole says who reads the peer's ring, and who sleeps until somebody does.
//
// Invariants: one goroutine has the role at a time, and only it uses the looker; the role is taken while handed is set;
// sleepers counts the sleepers whose sleeping is set. The link's lock guards all but look.
type readingRole struct {
	taken  atomic.Bool
	looker looker
	// handed gives the role, which stays taken, to the link's goroutine.
	handed bool
	// loop is the number of the goroutine that is the link's now.
	loop int
	// sleepers counts callers that sleep until somebody rouses them.
	sleepers int
	// spare are channels that no sleeper uses.
	spare []chan struct{}
	// roused says that a reader has woken others, who want its processor.
	roused bool
}

const (
	// firstLoop is the number of a link's first goroutine.
	firstLoop = 1
	// sparesMax bounds the channels that are kept for sleepers.
	sparesMax = 64
)

func newReadingRole() readingRole { return readingRole{looker: newLooker(), loop: firstLoop} }

// take takes the role, if it is free; free gives it up.
func (r *readingRole) take() bool { return r.taken.CompareAndSwap(false, true) }
func (r *readingRole) free()      { r.taken.Store(false) }

// hand leaves the role, which the caller has, to the link's goroutine; takeHanded takes it there.
func (r *readingRole) hand() { r.handed = true }
func (r *readingRole) takeHanded() bool {
	handed := r.handed
	r.handed = false
	return handed
}

// look looks until something is there, or it is time to sleep: see looker. The caller has the role, and not the lock.
func (r *readingRole) look(there func() bool, at waitedFor, yields bool, peerCPU uint32) bool {
	return r.looker.look(there, at, yields, peerCPU)
}

// woken notes that something has come while nobody looked. The caller has the role.
func (r *readingRole) woken() { r.looker.slept() }

// awaited says whether anybody sleeps.
func (r *readingRole) awaited() bool { return r.sleepers > 0 }

// tookRoused says whether sleepers were woken since it was called last.
func (r *readingRole) tookRoused() bool {
	roused := r.roused
	r.roused = false
	return roused
}

// isLoop says whether the goroutine of this number is the link's; replace makes another one so, and gives its number.
func (r *readingRole) isLoop(loop int) bool { return r.loop == loop }
func (r *readingRole) replace() (loop int) {
	r.loop++
	return r.loop
}

// sleeper is somebody who may sleep until something has changed.
type sleeper struct {
	wake     chan struct{}
	sleeping bool
	// loop, if not 0, is the link's goroutine that it runs on.
	loop int
	// waited says that there was something to wait for.
	waited bool
}

// tookWaited says whether there was something to wait for since it was called last.
func (s *sleeper) tookWaited() bool {
	waited := s.waited
	s.waited = false
	return waited
}

// runOn says on which of the link's goroutines the sleeper runs.
func (s *sleeper) runOn(loop int) { s.loop = loop }

// begin notes that a sleeper is about to sleep, until something can be received from wake; done that it sleeps no more.
func (r *readingRole) begin(s *sleeper) {
	if n := len(r.spare); n > 0 {
		s.wake, r.spare = r.spare[n-1], r.spare[:n-1]
	} else {
		s.wake = make(chan struct{}, 1)
	}
	s.sleeping = true
	r.sleepers++
}

func (r *readingRole) done(s *sleeper) {
	if len(r.spare) < sparesMax {
		r.spare = append(r.spare, s.wake)
	}
	s.wake = nil
}

// rouse wakes a sleeper that sleeps.
func (r *readingRole) rouse(s *sleeper) {
	if s.sleeping {
		s.sleeping = false
		r.sleepers--
		r.roused = true
		s.wake <- struct{}{}
	}
}

// giveUp has a sleeper sleep no more; false: it was roused already, and has to receive from wake.
func (r *readingRole) giveUp(s *sleeper) bool {
	if !s.sleeping {
		return false
	}
	s.sleeping = false
	r.sleepers--
	return true
}
