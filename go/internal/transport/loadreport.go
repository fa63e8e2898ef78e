package transport

import (
	"sync/atomic"
	"time"
)

// loadReport says to all clients how many calls the server has under way. It has a timer only while that changes.
type loadReport struct {
	// links are the sessions there are.
	links   func() []*link
	calls   atomic.Int64
	pending atomic.Bool
}

func newLoadReport(links func() []*link) loadReport { return loadReport{links: links} }

// loadPause is how late a report may be.
const loadPause = 2 * time.Millisecond

func (r *loadReport) add(n int64) {
	r.calls.Add(n)
	if r.pending.CompareAndSwap(false, true) {
		time.AfterFunc(loadPause, r.report)
	}
}

func (r *loadReport) report() {
	r.pending.Store(false)
	calls := uint32(max(r.calls.Load(), 0))
	for _, link := range r.links() {
		link.storeLoad(calls)
	}
}

func (r *loadReport) join(link *link) { link.storeLoad(uint32(max(r.calls.Load(), 0))) }
