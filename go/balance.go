package tollfree

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	rules "github.com/tollfree/tollfree/go/internal/balancer"
)

// A balancer is a client's endpoints, and chooses among them by the rules of package balancer.
//
// Invariant: the list's endpoints never change; mu guards which are ejected, where any may be.
type balancer struct {
	policy    rules.Policy
	endpoints []*endpoint // by priority, and as they were given
	mu        sync.RWMutex
	list      *rules.List[*endpoint]
	began     time.Time
}

// newBalancer makes an endpoint of each target.
func newBalancer(config *serviceConfig, targets []rules.Target, newEndpoint func(target *rules.Target, eager bool, record *rules.Record) *endpoint) *balancer {
	b := &balancer{policy: config.balance, list: rules.New[*endpoint](config.balance, config.outliers, rand.Uint64()), began: time.Now()}
	first := targets[0].Priority
	for _, target := range targets {
		first = min(first, target.Priority)
	}
	// Endpoints can always be made.
	_, _ = b.list.Replace(targets, 0, func(target *rules.Target, record *rules.Record) (*endpoint, error) {
		return newEndpoint(target, b.policy != rules.PickFirst && target.Priority == first, record), nil
	})
	for _, member := range b.list.Members() {
		b.endpoints = append(b.endpoints, member.Endpoint)
	}
	return b
}

// goOn has the next endpoints connect where those before them fail: of pick_first one after the other, otherwise by priority.
func (b *balancer) goOn() {
	for first := 0; first < len(b.endpoints); {
		after := first + 1
		for b.policy != rules.PickFirst && after < len(b.endpoints) && b.endpoints[after].priority == b.endpoints[first].priority {
			after++
		}
		failing := true
		for _, e := range b.endpoints[first:after] {
			state := e.state()
			if state == connectivity.Idle && first > 0 {
				e.connect()
			}
			failing = failing && state == connectivity.TransientFailure
		}
		if !failing {
			return
		}
		first = after
	}
}

// ready is a session that takes calls, or nil.
func (b *balancer) ready() *session {
	if len(b.endpoints) == 1 && !b.list.Detecting() {
		return b.endpoints[0].ready()
	}
	choice, _ := b.choose((*endpoint).reach)
	return b.session(choice)
}

// session is that of a choice; nil: there is none, or not any more.
func (b *balancer) session(choice rules.Choice) *session {
	if choice.Outcome != rules.Chosen {
		return nil
	}
	return b.list.Members()[choice.Place].Endpoint.ready()
}

// choose lets endpoints that were ejected return, and chooses one. returns is when it is to be called again where none can be used for that.
func (b *balancer) choose(look func(*endpoint) rules.Reach) (choice rules.Choice, returns time.Duration) {
	if !b.list.Detecting() {
		return b.list.Pick(nil, look, (*endpoint).load), 0
	}
	now := time.Since(b.began)
	b.mu.RLock()
	if b.list.Due(now) {
		b.mu.RUnlock()
		b.mu.Lock()
		b.list.Sweep(now)
		b.mu.Unlock()
		b.mu.RLock()
	}
	defer b.mu.RUnlock()
	choice = b.list.Pick(nil, look, (*endpoint).load)
	if choice.Outcome == rules.Failing {
		if at, some := b.list.Returns(); some {
			returns = max(at-now, time.Millisecond)
		}
	}
	return choice, returns
}

// errNoneUsable is of a call where endpoints can be reached, and none may be used.
var errNoneUsable = status.Error(codes.Unavailable, "tollfree: no endpoint may be used now: calls have failed at each of them (outlier detection), or their weights are 0")

// pick waits for a session that takes calls. It fails once an attempt to connect has failed, which began after pick was called, at every
// endpoint that may be used; unless the call waits for a server.
func (cc *ClientConn) pick(ctx context.Context, deadline time.Time, failFast bool) (*session, error) {
	if s := cc.balancer.ready(); s != nil {
		return s, nil
	}
	return cc.pickSlowly(ctx, deadline, failFast)
}

func (cc *ClientConn) pickSlowly(ctx context.Context, deadline time.Time, failFast bool) (*session, error) {
	expiry := make(<-chan time.Time)
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		expiry = timer.C
	}
	waits := map[*endpoint]*wait{}
	defer func() {
		for _, w := range waits {
			w.leave()
		}
	}()
	var last error
	// It begins to connect where that is needed.
	look := func(e *endpoint) rules.Reach {
		if waits[e] == nil {
			waits[e] = e.join(failFast)
		}
		// The session of the attempt that the call waits for may be over already.
		e.connect()
		if e.ready() != nil {
			return rules.Ready
		}
		if err, unhealthy := e.unhealthy(); unhealthy {
			if err == nil {
				return rules.Waits
			}
			last = err
			return rules.Fails
		}
		err, final := waits[e].failure()
		if err != nil {
			last = err
		}
		if final {
			return rules.Fails
		}
		return rules.Waits
	}
	for {
		changed := cc.state.changes()
		choice, returns := cc.balancer.choose(look)
		if s := cc.balancer.session(choice); s != nil {
			return s, nil
		}
		if choice.Outcome == rules.Failing {
			if choice.Place < 0 {
				last = errNoneUsable
			}
			if failFast {
				return nil, last
			}
		}
		if err := cc.awaitChange(ctx, changed, expiry, returns, last); err != nil {
			return nil, err
		}
	}
}

// awaitChange waits until an endpoint's state may be another, or returns is over, if it is not 0.
func (cc *ClientConn) awaitChange(ctx context.Context, changed <-chan struct{}, expiry <-chan time.Time, returns time.Duration, last error) error {
	back := make(<-chan time.Time)
	if returns > 0 {
		timer := time.NewTimer(returns)
		defer timer.Stop()
		back = timer.C
	}
	select {
	case <-changed:
	case <-back:
	case <-ctx.Done():
		return waitError(ctx.Err(), last)
	case <-expiry:
		return waitError(context.DeadlineExceeded, last)
	case <-cc.context.Done():
		return errClosing
	}
	return nil
}

// waitError is of a call that ended while it waited for a session; last is why there is none, if that is known.
func waitError(err, last error) error {
	s := status.FromContextError(err)
	if last == nil {
		return status.Error(s.Code(), s.Message()+" while waiting for a session")
	}
	return status.Errorf(s.Code(), "%s while waiting for a session; the last attempt: %s", s.Message(), status.Convert(last).Message())
}
