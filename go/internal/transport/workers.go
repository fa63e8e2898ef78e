package transport

import (
	"sync"

	"github.com/tollfree/tollfree/go/internal/call"
)

// A job is a call to be served.
type job struct {
	call    *serverCall
	service *call.Service
}

// workers are goroutines that serve calls one after the other: a new one for each call would cost more.
type workers struct {
	serve  func(job)
	mu     sync.Mutex
	work   chan job
	idle   int
	closed bool
}

// workersIdleMax bounds the workers that wait for work.
const workersIdleMax = 64

func newWorkers(serve func(job)) workers {
	return workers{serve: serve, work: make(chan job, workersIdleMax)}
}

func (w *workers) do(j job) {
	w.mu.Lock()
	if w.idle > 0 {
		w.idle--
		w.work <- j
		w.mu.Unlock()
		return
	}
	w.mu.Unlock()
	go w.run(j)
}

func (w *workers) run(j job) {
	for {
		w.serve(j)
		w.mu.Lock()
		if w.closed || w.idle >= workersIdleMax {
			w.mu.Unlock()
			return
		}
		w.idle++
		w.mu.Unlock()
		var more bool
		if j, more = <-w.work; !more {
			return
		}
	}
}

// close has idle workers end, and others when their calls have.
func (w *workers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.closed, w.idle = true, 0
		close(w.work)
	}
}
