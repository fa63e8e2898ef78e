package balancer

import "sync/atomic"

// A Record counts how the calls of one endpoint end. Several goroutines may use it at once. It stays of use to calls under way when the
// endpoint has left the list.
type Record struct {
	successes, failures atomic.Uint64
	consecutive         atomic.Uint32 // failures since the last success
	threshold           uint32        // so many of those are to be looked at soon; 0: none ever are
	alarm               *atomic.Bool  // set when there is something to be looked at; all endpoints of a list share it
}

// Succeeded notes that a call has ended with status OK.
func (r *Record) Succeeded() {
	r.successes.Add(1)
	if r.consecutive.Load() != 0 {
		r.consecutive.Store(0)
	}
}

// Failed notes that a call has ended with another status.
func (r *Record) Failed() {
	r.failures.Add(1)
	if r.consecutive.Add(1) == r.threshold {
		r.alarm.Store(true)
	}
}

// volume is calls that have ended in an interval.
type volume struct{ successes, failures uint64 }

func (v volume) total() uint64 { return v.successes + v.failures }

// take is what has ended since it was called last.
func (r *Record) take() volume { return volume{r.successes.Swap(0), r.failures.Swap(0)} }

// takeAlarm says whether so many calls have failed one after the other that it is to be looked at. The count begins anew then.
func (r *Record) takeAlarm() bool {
	due := r.threshold > 0 && r.consecutive.Load() >= r.threshold
	if due {
		r.forgive()
	}
	return due
}

// forgive has failures so far not count as consecutive any more.
func (r *Record) forgive() { r.consecutive.Store(0) }

// random is splitmix64: every seed is good, and equal seeds give equal runs.
type random uint64

// hits says whether something happens that happens in so many of a hundred cases.
func (r *random) hits(percentage uint32) bool {
	*r += 0x9e3779b97f4a7c15
	word := uint64(*r)
	word = (word ^ word>>30) * 0xbf58476d1ce4e5b9
	word = (word ^ word>>27) * 0x94d049bb133111eb
	word ^= word >> 31
	return word%100 < uint64(percentage)
}
