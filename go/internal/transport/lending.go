package transport

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/pool"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// joinTime bounds how long a coordinator has to let this process in.
const joinTime = 5 * time.Second

// lending is a pool of a gateway's, in which it places what it sends: spec/wire.md, section 24. The link's lock guards it.
type lending struct {
	// allowed says that the feature LENDING is in force.
	allowed bool
	// begun says that the session has joined a pool, or is about to: it joins once.
	begun  bool
	joined *pool.Pool
}

// newLending is of a session with a peer: what comes from anybody but a gateway does not lie in a pool that only one end is a member of.
func newLending(peer call.Peer, said *wire.Hello) lending {
	return lending{allowed: peer.Gateway && said.Features&wire.FeatureLending != 0}
}

// Join has this process join the pool that is coordinated at an address, by an invitation, so that what the gateway sends may lie there.
//
// Errors: a status.
func (c *serverCall) Join(ctx context.Context, address string, invitation [16]byte) error {
	l := c.link
	l.mu.Lock()
	allowed, begun := l.lending.allowed, l.lending.begun
	l.lending.begun = true
	l.mu.Unlock()
	switch {
	case !allowed:
		return status.Error(codes.FailedPrecondition, "the session has not the feature LENDING")
	case begun:
		return status.Error(codes.AlreadyExists, "this session has joined a pool, or is about to")
	}
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	member, err := pool.JoinInvited(ctx, address, invitation)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.lending.begun = false
		return status.Error(codes.Unavailable, err.Error())
	}
	if l.life.over() {
		member.Leave()
		return status.Error(codes.Unavailable, overText(l.life.reason()))
	}
	l.lending.joined = member
	return nil
}

// leave lets go of the pool as soon as nothing that came by it is in use. The session is over.
func (d *lending) leave() {
	if d.joined != nil {
		d.joined.Leave()
	}
}

// readsIn is the pool in which segmented messages of the peer lie; nil: none. The caller holds the lock.
func (l *link) readsIn() *pool.Pool {
	if l.lending.joined != nil {
		return l.lending.joined
	}
	return l.pool
}
