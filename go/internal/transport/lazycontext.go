package transport

import (
	"context"
	"sync/atomic"
	"time"
)

// A lazyContext is the context of a call without a deadline. It makes a real one when somebody waits for its end, which few handlers do.
type lazyContext struct {
	call   *serverCall
	parent context.Context
	made   atomic.Pointer[realContext]
}

type realContext struct {
	context.Context
	stop context.CancelFunc
}

// cancel ends the context. The caller holds the link's lock.
func (l *lazyContext) cancel() {
	if made := l.made.Load(); made != nil {
		made.stop()
	}
}

// real is the real context, which is made where there is none.
func (l *lazyContext) real() *realContext {
	if made := l.made.Load(); made != nil {
		return made
	}
	link := l.call.link
	link.mu.Lock()
	defer link.mu.Unlock()
	if l.made.Load() == nil {
		ctx, stop := context.WithCancel(l.parent)
		if l.call.over() {
			stop()
		}
		l.made.Store(&realContext{ctx, stop})
	}
	return l.made.Load()
}

func (l *lazyContext) Deadline() (time.Time, bool) { return l.parent.Deadline() }
func (l *lazyContext) Done() <-chan struct{}       { return l.real().Done() }

func (l *lazyContext) Err() error {
	if made := l.made.Load(); made != nil {
		return made.Err()
	}
	link := l.call.link
	link.mu.Lock()
	defer link.mu.Unlock()
	if l.call.over() {
		return context.Canceled
	}
	return l.parent.Err()
}

// Value asks the real context, where there is one: contexts that are made of this one find it so, and need no goroutine.
func (l *lazyContext) Value(key any) any {
	if made := l.made.Load(); made != nil {
		return made.Value(key)
	}
	return l.parent.Value(key)
}
