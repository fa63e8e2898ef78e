package balancer

// A Reach is how an endpoint fares, as its owner sees it at this moment.
type Reach int

const (
	// Ready says that calls can be made there.
	Ready Reach = iota
	// Waits says that it is being connected, and has not failed.
	Waits
	// Fails says that calls can't be made there.
	Fails
)

// An Outcome is what a choice came to.
type Outcome int

const (
	// Chosen says that the call goes to an endpoint.
	Chosen Outcome = iota
	// Wait says that there is none yet: the list is empty, or one is being connected.
	Wait
	// Failing says that none can be used.
	Failing
)

// A Choice is an endpoint for a call, or that there is none.
type Choice struct {
	Outcome Outcome
	// Place is that of the chosen endpoint among Members; of those that fail the first one's; -1 where none does: all are ejected, or out of
	// use by their source's word.
	Place int
}

// seen is what was seen of the endpoints that were not chosen.
type seen struct {
	failing int // -1: none
	waits   bool
	// passedOver says that the endpoint to avoid is being connected again, and is not waited for.
	passedOver bool
	spare      int // the endpoint to avoid, where it can be used; -1: none
}

// Pick chooses an endpoint, not one to avoid if its priority has another that can be used. look says how an endpoint fares; it is asked of no
// more endpoints than needed. load gives the calls under way at one that is ready, where the policy counts them. avoid may be nil.
func (l *List[E]) Pick(avoid func(E) bool, look func(E) Reach, load func(E) uint32) Choice {
	if len(l.members) == 0 {
		return Choice{Wait, -1}
	}
	s := seen{failing: -1, spare: -1}
	for _, g := range l.groups {
		var place int
		var wait bool
		if l.policy == PickFirst {
			place, wait = l.firstOf(g, avoid, look, &s)
		} else {
			place, wait = l.oneOf(g, avoid, look, load, &s)
		}
		if place >= 0 {
			return Choice{Chosen, place}
		}
		if wait {
			return Choice{Wait, -1}
		}
	}
	if s.failing < 0 && s.passedOver {
		return Choice{Wait, -1}
	}
	return Choice{Failing, s.failing}
}

func (l *List[E]) firstOf(g *group, avoid func(E) bool, look func(E) Reach, s *seen) (place int, wait bool) {
	for place := g.first; place < g.after; place++ {
		m := &l.members[place]
		if !m.open() {
			continue
		}
		switch look(m.Endpoint) {
		case Ready:
			return place, false
		case Fails:
			s.fails(place)
		case Waits:
			// Just lost: while it is tried again, a call that was there already goes on to the next.
			if len(l.members) == 1 || avoid == nil || !avoid(m.Endpoint) {
				return -1, true
			}
			s.passedOver = true
		}
	}
	return -1, false
}

func (s *seen) fails(place int) {
	if s.failing < 0 {
		s.failing = place
	}
}

func (l *List[E]) oneOf(g *group, avoid func(E) bool, look func(E) Reach, load func(E) uint32, s *seen) (place int, wait bool) {
	usable := func(at int) bool {
		place := g.first + at
		m := &l.members[place]
		if !m.open() {
			return false
		}
		switch look(m.Endpoint) {
		case Ready:
			if avoid == nil || !avoid(m.Endpoint) {
				return true
			}
			s.spare = place
		case Waits:
			s.waits = true
		case Fails:
			s.fails(place)
		}
		return false
	}
	n := g.after - g.first
	var at int
	switch {
	case l.policy == LeastOutstanding:
		at = g.turn.least(n, func(at int) (uint32, uint32, bool) {
			if !usable(at) {
				return 0, 0, false
			}
			m := &l.members[g.first+at]
			return load(m.Endpoint), m.share, true
		})
	case g.weighted:
		at = g.turn.nextByShare(n, func(at int) uint32 {
			if !usable(at) {
				return 0
			}
			return l.members[g.first+at].share
		})
	default:
		at = g.turn.next(n, usable)
	}
	switch {
	case at >= 0:
		return g.first + at, false
	case s.spare >= 0:
		place, s.spare = s.spare, -1
		return place, false
	}
	return -1, s.waits
}
