package transport

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/rendezvous"
	"github.com/tollfree/tollfree/go/internal/system"
	"github.com/tollfree/tollfree/go/internal/wire"
)

const (
	// attachPauseMin and attachPauseMax are the pauses before the gateway is looked for again.
	attachPauseMin, attachPauseMax = 10 * time.Millisecond, time.Second
)

// attachment serves what a gateway hands in: spec/wire.md, section 24. It is a listener that listens nowhere: its sessions are those that it
// has attached by.
type attachment struct {
	*listener
	registration []byte
	// where is the gateway's socket, unless stream says at which other host it is.
	where   rendezvous.Address
	stream  *streamAddress
	context context.Context
	cancel  context.CancelFunc
}

// Attach gives what serves behind a gateway, by names of the group and the services. Certificates are for one of another host.
//
// Errors: no address, or a name that none has.
func Attach(address, group string, services []string, certificates *Certificates, config Config) (call.Listener, error) {
	a := &attachment{}
	var where fmt.Stringer
	var err error
	if certificates != nil && strings.HasPrefix(address, StreamScheme) {
		a.stream, err = parseStreamAddress(address, certificates)
		where = a.stream
	} else {
		a.where, err = rendezvous.ParseAddress(address)
		where = a.where
	}
	if err != nil {
		return nil, err
	}
	registration := wire.Registration{Group: group, Services: services}
	// It never fails.
	_, _ = rand.Read(registration.Process[:])
	said, err := registration.Encode()
	if err != nil {
		return nil, err
	}
	a.listener, a.registration = newListener(nil, where, config), said
	a.context, a.cancel = context.WithCancel(context.Background())
	return a, nil
}

// Serve attaches, and serves calls, again and again. A gateway that is not there yet is waited for.
//
// Errors: the gateway refuses this process for good the first time.
func (a *attachment) Serve(service call.Service) error {
	a.mu.Lock()
	if a.closing {
		a.mu.Unlock()
		return nil
	}
	a.parts.Add(1)
	a.mu.Unlock()
	defer a.parts.Done()
	pause, attached := attachPauseMin, false
	var awaited chan<- struct{}
	for a.context.Err() == nil {
		met, err := a.meet()
		if err == nil {
			attached, pause = true, attachPauseMin
			if awaited != nil {
				close(awaited)
			}
			if awaited = a.hostUntilMoved(met, &service); awaited != nil {
				continue
			}
		} else if final := isFinal(err); final && !attached {
			return fmt.Errorf("%s: %w", a.address, err)
		}
		select {
		case <-time.After(pause + mathrand.N(pause)):
		case <-a.context.Done():
		}
		pause = min(2*pause, attachPauseMax)
	}
	return nil
}

// hostUntilMoved serves a session until it ends. Where its gateway wants the next one beside it, it returns what that waits to be closed, and the
// session goes on.
func (a *attachment) hostUntilMoved(met *meeting, service *call.Service) (awaited chan<- struct{}) {
	moves, over := make(chan chan<- struct{}, 1), make(chan struct{})
	a.parts.Add(1)
	go func() {
		defer a.parts.Done()
		defer close(over)
		a.hostMoving(met, service, gateway, moves)
	}()
	select {
	case <-over:
		return nil
	case awaited = <-moves:
		return awaited
	}
}

// Move has this process attach anew while the session goes on, and returns when it has. A session moves once.
//
// Errors: a status.
func (c *serverCall) Move(ctx context.Context) error {
	host := &c.link.host
	if host.moves == nil {
		return status.Error(codes.FailedPrecondition, "the session is with no gateway")
	}
	if !c.link.moved.CompareAndSwap(false, true) {
		return status.Error(codes.AlreadyExists, "this session has moved, or is about to")
	}
	attached := make(chan struct{})
	host.moves <- attached
	select {
	case <-attached:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// refusedError is a gateway's refusal.
type refusedError struct{ said wire.Hello }

func (e *refusedError) Error() string {
	return fmt.Sprintf("reason %d: %s", e.said.Reason, e.said.Text)
}

// isFinal says whether another attempt would end as this one.
func isFinal(err error) bool {
	var refused *refusedError
	var users *usersError
	return errors.As(err, &refused) && refused.said.Reason != wire.ReasonBusy || errors.As(err, &users) || errors.Is(err, system.EACCES) || isTLS(err)
}

// meet makes one attempt.
func (a *attachment) meet() (*meeting, error) {
	ctx, cancel := context.WithTimeout(a.context, handshakeTime)
	defer cancel()
	as := &presentation{kind: wire.KindAttach, registration: a.registration}
	if a.stream != nil {
		return a.stream.meet(ctx, &a.config, as)
	}
	conn, err := rendezvous.Connect(ctx, a.where)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	conn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	met, err := attach(conn, &a.config, as)
	if err != nil {
		stop()
		return nil, err
	}
	if !stop() {
		met.close()
		return nil, ctx.Err()
	}
	conn.SetDeadline(time.Time{})
	return met, nil
}

// Drain and Close end what there is, and attach no more.
func (a *attachment) Drain(ctx context.Context) error {
	a.cancel()
	return a.listener.Drain(ctx)
}

func (a *attachment) Close() error {
	a.cancel()
	return a.listener.Close()
}

// Offer: there is nothing to offer.
func (a *attachment) Offer() (offer Offer, ok bool) { return offer, false }
