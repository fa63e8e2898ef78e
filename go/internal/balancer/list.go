// Package balancer says which endpoint gets a call. It has no goroutine, no clock and no lock, and knows neither how an endpoint is
// reached nor what a call is.
//
// A List holds the endpoints of a client. Its owner replaces the whole list, asks it for each call, and says how each endpoint fares.
// Times are arguments: the time since any beginning. Pick may be called by several goroutines at once; what changes the list may not be
// called beside anything.
//
//   - The endpoints of the highest priority, the smallest number, are used as long as one of them can be. When all of them fail, the next
//     priority is used; when one can be used again, the calls go back. While one is still being connected, calls wait for it.
//   - Among the endpoints of a priority the policy chooses. Equals have their turns.
//   - An endpoint whose calls fail is ejected and returns by itself (gRFC A50), within its priority.
package balancer

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// A Policy says how an endpoint is chosen among those of a priority.
type Policy int

const (
	// PickFirst chooses the first that can be used.
	PickFirst Policy = iota
	// RoundRobin chooses each in turn, as often as its weight says.
	RoundRobin
	// LeastOutstanding chooses the one with the fewest calls under way beside its weight; equals in turn.
	LeastOutstanding
)

// A Member is one endpoint of a list. E is what its owner has made of it.
type Member[E any] struct {
	Target   Target
	Endpoint E
	share    uint32 // of its priority's calls; 0: it gets none
	suspect  *suspect
}

// Ejected says whether the endpoint gets no calls now for how its calls have ended.
func (m *Member[E]) Ejected() bool { return m.suspect != nil && m.suspect.ejected }

// open says whether it gets calls as far as its source and the detection say.
func (m *Member[E]) open() bool { return m.share > 0 && !m.Ejected() }

// group is the endpoints of one priority.
type group struct {
	priority     uint32
	first, after int // places
	weighted     bool
	turn         turn
	swept        time.Duration // when the last sweep was made, or the first interval began
}

// A List is the endpoints of a client.
type List[E any] struct {
	policy    Policy
	members   []Member[E] // by priority, and as they were given
	groups    []*group
	detection *OutlierDetection // nil: none are ejected
	alarm     atomic.Bool
	random    random
	due       time.Duration // when the next sweep is
}

// New makes a list without endpoints. seed decides only whether an ejection is enforced that is enforced in some cases.
func New[E any](policy Policy, detection *OutlierDetection, seed uint64) *List[E] {
	l := &List[E]{policy: policy, random: random(seed), due: math.MaxInt64}
	if detection.On() {
		l.detection = detection
	}
	return l
}

// Replace puts another list in the place of this one. An endpoint whose address was in the list stays, with what is known of it; of the
// others make makes one each. It is given the record to count calls in, nil where none are counted. Replace gives the endpoints that are in
// the list no more. With an error of make's, the list is what it was.
func (l *List[E]) Replace(targets []Target, now time.Duration, make func(target *Target, record *Record) (E, error)) (gone []E, err error) {
	targets = slices.Clone(targets)
	slices.SortStableFunc(targets, func(a, b Target) int { return cmp.Compare(a.Priority, b.Priority) })
	places := map[string][]int{}
	for at := range l.members {
		address := l.members[at].Target.Address
		places[address] = append(places[address], at)
	}
	members, stay := []Member[E]{}, map[int]bool{}
	for i := range targets {
		target := &targets[i]
		if known := places[target.Address]; len(known) > 0 {
			places[target.Address] = known[1:]
			stay[known[0]] = true
			kept := l.members[known[0]]
			members = append(members, Member[E]{Target: *target, Endpoint: kept.Endpoint, suspect: kept.suspect})
			continue
		}
		member := Member[E]{Target: *target}
		var record *Record
		if l.detection != nil {
			record = &Record{threshold: l.detection.consecutiveThreshold(), alarm: &l.alarm}
			member.suspect = &suspect{address: target.Address, record: record}
		}
		if member.Endpoint, err = make(target, record); err != nil {
			return nil, err
		}
		members = append(members, member)
	}
	for at := range l.members {
		if !stay[at] {
			gone = append(gone, l.members[at].Endpoint)
		}
	}
	l.members = members
	l.regroup(now)
	return gone, nil
}

// regroup finds the priorities of the list. Turns and intervals go on.
func (l *List[E]) regroup(now time.Duration) {
	old := l.groups
	l.groups = nil
	for first := 0; first < len(l.members); {
		priority := l.members[first].Target.Priority
		g := &group{priority: priority, first: first, after: first, swept: now}
		var targets []*Target
		for g.after < len(l.members) && l.members[g.after].Target.Priority == priority {
			targets = append(targets, &l.members[g.after].Target)
			g.after++
		}
		some := uint32(0)
		for i, share := range shares(targets) {
			l.members[first+i].share = share
			g.weighted = g.weighted || share > 0 && some > 0 && share != some
			some = max(some, share)
		}
		for _, known := range old {
			if known.priority == priority {
				g.swept = known.swept
				g.turn.count.Store(known.turn.count.Load())
			}
		}
		l.groups = append(l.groups, g)
		first = g.after
	}
	l.settleDue()
}

func (l *List[E]) settleDue() {
	l.due = math.MaxInt64
	if l.detection == nil {
		return
	}
	for _, g := range l.groups {
		l.due = min(l.due, g.swept+l.detection.interval())
	}
}

// Members are the endpoints: by priority, and as they were given.
func (l *List[E]) Members() []Member[E] { return l.members }

// Detecting says whether calls are counted and endpoints may be ejected.
func (l *List[E]) Detecting() bool { return l.detection != nil }

// Due says whether Sweep has something to do: an interval is over, or an endpoint's calls fail one after the other. It is to be asked
// before a choice, and may be called by several goroutines at once. A sweep that comes late decides as it would have in time: nobody has
// been chosen meanwhile.
func (l *List[E]) Due(now time.Duration) bool {
	return l.detection != nil && (now >= l.due || l.alarm.Load())
}

// Returns is when the next interval is over, where an endpoint is ejected: who waits for it is to make a sweep then.
func (l *List[E]) Returns() (at time.Duration, ok bool) {
	for i := range l.members {
		if l.members[i].Ejected() {
			return l.due, true
		}
	}
	return 0, false
}

// Sweep ejects endpoints and lets them return, and gives what has changed.
func (l *List[E]) Sweep(now time.Duration) (events []Event) {
	if l.detection == nil {
		return nil
	}
	alarmed := l.alarm.Swap(false)
	interval := l.detection.interval()
	for _, g := range l.groups {
		s := sweep{config: l.detection, random: &l.random, events: &events}
		for at := g.first; at < g.after; at++ {
			s.suspects = append(s.suspects, l.members[at].suspect)
		}
		if passed := (now - g.swept) / interval; passed > 0 {
			s.endInterval(g.swept+interval, int64(passed)-1)
			g.swept += passed * interval
		}
		if alarmed {
			s.lookAtAlarms(now)
		}
	}
	l.settleDue()
	return events
}
