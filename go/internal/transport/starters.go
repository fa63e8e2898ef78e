package transport

import "slices"

// starters are callers that wait to open a call, in order: a later call waits behind earlier ones.
//
// Invariant: only the first tries to open its call, and lackRoom is what came of that. The link's lock guards all.
type starters struct {
	queue []*sleeper
	// lackRoom says that the first waits for room in the ring.
	lackRoom bool
}

func (q *starters) none() bool              { return len(q.queue) == 0 }
func (q *starters) isFirst(s *sleeper) bool { return q.queue[0] == s }
func (q *starters) join(s *sleeper)         { q.queue = append(q.queue, s) }
func (q *starters) leave(s *sleeper) {
	q.queue = slices.DeleteFunc(q.queue, func(other *sleeper) bool { return other == s })
}

// tried notes whether the first waits for room.
func (q *starters) tried(lackRoom bool) { q.lackRoom = lackRoom }

// lacking says whether the first waits for room; roomMoved that there may be some.
func (q *starters) lacking() bool { return q.lackRoom }
func (q *starters) roomMoved()    { q.lackRoom = false }

// rouseAll wakes all, rouseFirst the first, unless it waits for room. That one wakes the next when it has opened its call.
func (q *starters) rouseAll(role *readingRole) {
	for _, starter := range q.queue {
		role.rouse(starter)
	}
}

func (q *starters) rouseFirst(role *readingRole) {
	if !q.lackRoom {
		role.rouse(q.queue[0])
	}
}
