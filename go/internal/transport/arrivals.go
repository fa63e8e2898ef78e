package transport

import "github.com/tollfree/tollfree/go/internal/session"

// arrivals are calls that have come to a server, until they are delivered.
//
// Invariants: a call is in fresh from collect until take, once; a reader that has collected calls delivers them before it gives the
// reading role up, or leaves that to the goroutine it hands the role to. The link's lock guards all.
type arrivals struct {
	// fresh are calls that have come and were not delivered, spare is room for the next.
	fresh, spare []*serverCall
}

func (a *arrivals) none() bool { return len(a.fresh) == 0 }

// collect takes calls that have come to the session.
func (a *arrivals) collect(s *session.Session) {
	for st := s.NextOpened(); st != nil; st = s.NextOpened() {
		a.fresh = append(a.fresh, st.Owner().(*serverCall))
	}
}

// take gives the calls to be delivered; giveBack gives their room back, cleared, when they are.
func (a *arrivals) take() []*serverCall {
	// Another reader may have calls of its own to deliver meanwhile.
	fresh := a.fresh
	a.fresh, a.spare = a.spare[:0], nil
	return fresh
}

func (a *arrivals) giveBack(delivered []*serverCall) {
	if cap(delivered) <= recordsPerTurn {
		a.spare = delivered[:0]
	}
}
