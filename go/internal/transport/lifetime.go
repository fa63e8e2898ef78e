package transport

import "sync/atomic"

// A lifetime is how far a session has come on its way to its end: it takes calls, it drains, it is over, and its memory and
// socket are given back.
//
// Invariants: a step is made once and never taken back; a session that is over drains, too; the reason is there when over
// says so. The link's lock guards all steps; over may be called without it.
type lifetime struct {
	isOver atomic.Bool
	drains bool
	why    error
	// draining is closed when no call begins any more, done when the session is over.
	draining, done chan struct{}
	// unwatched is closed when nobody watches the peer's process any more, cleaned when all is given back.
	unwatched, cleaned chan struct{}
}

func newLifetime() lifetime {
	return lifetime{
		draining: make(chan struct{}), done: make(chan struct{}), unwatched: make(chan struct{}), cleaned: make(chan struct{}),
	}
}

// over says whether the session is over; reason is why, and nil before.
func (t *lifetime) over() bool    { return t.isOver.Load() }
func (t *lifetime) reason() error { return t.why }

// drain notes that no call begins any more.
func (t *lifetime) drain() {
	if !t.drains {
		t.drains = true
		close(t.draining)
	}
}

// end notes that the session is over. It is called once.
func (t *lifetime) end(why error) {
	t.why = why
	t.isOver.Store(true)
	t.drain()
	close(t.done)
}
