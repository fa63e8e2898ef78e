package call

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A Context is the context of a call without a deadline. It makes a real one when somebody waits for its end, which few handlers do.
//
// The lock is the carrier's, and guards over.
type Context struct {
	lock   sync.Locker
	parent context.Context
	over   bool
	made   atomic.Pointer[realContext]
}

type realContext struct {
	context.Context
	stop context.CancelFunc
}

// Begin makes c a context that descends from parent. Nobody uses it before.
func (c *Context) Begin(lock sync.Locker, parent context.Context) { c.lock, c.parent = lock, parent }

// Rebase has c descend from another parent. Nobody uses it before.
func (c *Context) Rebase(parent context.Context) { c.parent = parent }

// End cancels the context. The caller holds the lock.
func (c *Context) End() {
	c.over = true
	if made := c.made.Load(); made != nil {
		made.stop()
	}
}

// real is the real context, which is made where there is none.
func (c *Context) real() *realContext {
	if made := c.made.Load(); made != nil {
		return made
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.made.Load() == nil {
		ctx, stop := context.WithCancel(c.parent)
		if c.over {
			stop()
		}
		c.made.Store(&realContext{ctx, stop})
	}
	return c.made.Load()
}

// Deadline is the parent's.
func (c *Context) Deadline() (time.Time, bool) { return c.parent.Deadline() }

// Done is closed when the call is over.
func (c *Context) Done() <-chan struct{} { return c.real().Done() }

// Err is nil while the call is under way.
func (c *Context) Err() error {
	if made := c.made.Load(); made != nil {
		return made.Err()
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.over {
		return context.Canceled
	}
	return c.parent.Err()
}

// Value asks the real context, where there is one: contexts that are made of this one find it so, and need no goroutine.
func (c *Context) Value(key any) any {
	if made := c.made.Load(); made != nil {
		return made.Value(key)
	}
	return c.parent.Value(key)
}
