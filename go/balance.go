package tollfree

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
)

// balance says which endpoint a call goes to.
type balance int

const (
	pickFirst        balance = iota // the first that is connected, in the order given
	roundRobin                      // each that is connected, in turn
	leastOutstanding                // the one with the fewest calls under way
)

// balances has the policies by the names of loadBalancingConfig.
var balances = map[string]balance{"pick_first": pickFirst, "round_robin": roundRobin, "least_outstanding": leastOutstanding}

// A balancer chooses among endpoints.
type balancer struct {
	policy    balance
	endpoints []*endpoint
	turn      atomic.Uint32
}

// eager is true where endpoints are to be connected before calls need them.
func (b *balancer) eager() bool { return b.policy != pickFirst }

// ready is a session that takes calls, or nil.
func (b *balancer) ready() *session {
	if len(b.endpoints) == 1 {
		return b.endpoints[0].ready()
	}
	switch b.policy {
	case roundRobin:
		turn := b.turn.Add(1)
		for i := range b.endpoints {
			if s := b.endpoints[(uint64(turn)+uint64(i))%uint64(len(b.endpoints))].ready(); s != nil {
				return s
			}
		}
	case leastOutstanding:
		// Endpoints that are equal take turns.
		var least *session
		fewest, turn := uint32(math.MaxUint32), b.turn.Add(1)
		for i := range b.endpoints {
			s := b.endpoints[(uint64(turn)+uint64(i))%uint64(len(b.endpoints))].ready()
			if s == nil {
				continue
			}
			if load := s.load(); least == nil || load < fewest {
				least, fewest = s, load
			}
		}
		return least
	default:
		for _, e := range b.endpoints {
			if s := e.ready(); s != nil {
				return s
			}
		}
	}
	return nil
}

// pick waits for a session that takes calls. It fails once every endpoint's attempt to connect has failed that began after pick
// was called, unless the call waits for a server.
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
	waits := make([]*wait, 0, len(cc.balancer.endpoints))
	defer func() {
		for _, w := range waits {
			w.leave()
		}
	}()
	var last error
	for {
		changed := cc.state.changes()
		if s := cc.balancer.ready(); s != nil {
			return s, nil
		}
		failed := 0
		for i, e := range cc.balancer.endpoints {
			if i == len(waits) {
				waits = append(waits, e.join(failFast))
			}
			// The session of the attempt that the call waits for may be over already.
			e.connect()
			err, final := waits[i].failure()
			if err != nil {
				last = err
			}
			if final {
				failed++
			} else if !cc.balancer.eager() {
				break // pick_first: the next endpoint is for when this one has failed.
			}
		}
		if failed == len(cc.balancer.endpoints) && failFast {
			return nil, last
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, waitError(ctx.Err(), last)
		case <-expiry:
			return nil, waitError(context.DeadlineExceeded, last)
		case <-cc.context.Done():
			return nil, grpc.ErrClientConnClosing
		}
	}
}
