package balancer

import "sync/atomic"

// A turn counts choices, so that equals are chosen in turn. Several goroutines may use it at once.
type turn struct{ count atomic.Uint64 }

// start is the number of this choice among n candidates.
func (t *turn) start() uint64 { return t.count.Add(1) - 1 }

// passOver notes that so many candidates before the one that was chosen have had their turn.
func (t *turn) passOver(passed int) {
	if passed > 0 {
		t.count.Add(uint64(passed))
	}
}

// next is the next of n candidates that can be used, or -1. usable is asked of no more than needed.
func (t *turn) next(n int, usable func(at int) bool) int {
	if n == 0 {
		return -1
	}
	ticket := t.start()
	for passed := range n {
		at := int((ticket + uint64(passed)) % uint64(n))
		if usable(at) {
			t.passOver(passed)
			return at
		}
	}
	return -1
}

// nextByShare is the next of n candidates, each as often as its share says, or -1. share is 0 of those that can't be used; it is asked
// twice, since who can be used decides whose turn it is.
func (t *turn) nextByShare(n int, share func(at int) uint32) int {
	largest := uint64(0)
	for at := range n {
		largest = max(largest, uint64(share(at)))
	}
	if largest == 0 {
		return -1
	}
	ticket := t.start()
	for passed := range n {
		number := ticket + uint64(passed)
		round, at := number/uint64(n), number%uint64(n)
		if own := uint64(share(int(at))); own > 0 && dueIn(round, own, largest, at*largest/uint64(n)) {
			t.passOver(passed)
			return int(at)
		}
	}
	// The one with the largest share is due in every round: it can't be used any more.
	for at := range n {
		if share(at) > 0 {
			return at
		}
	}
	return -1
}

// dueIn says whether a candidate has its turn in this round: in share of largest rounds one after the other, at even distances. offset says
// where in that row it begins.
func dueIn(round, share, largest, offset uint64) bool {
	before := round%largest*share + offset
	return (before+share)/largest > before/largest
}

// least is the one of n candidates with the least load beside its share; among equals the next; or -1. ok is false of those that can't be
// used.
func (t *turn) least(n int, look func(at int) (load, share uint32, ok bool)) int {
	if n == 0 {
		return -1
	}
	ticket := t.start()
	best, bestPassed := -1, 0
	var bestLoad, bestShare uint64
	for passed := range n {
		at := int((ticket + uint64(passed)) % uint64(n))
		load, share, ok := look(at)
		// One with twice the share may have twice the calls.
		if ok && (best < 0 || uint64(load)*bestShare < bestLoad*uint64(share)) {
			best, bestPassed, bestLoad, bestShare = at, passed, uint64(load), uint64(share)
		}
	}
	if best >= 0 {
		t.passOver(bestPassed)
	}
	return best
}
