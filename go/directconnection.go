package tollfree

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/transport"
)

const (
	// directTime bounds one attempt to get a direct connection.
	directTime = 10 * time.Second
	// directPauseMin and directPauseMax are the pauses before a gateway is asked again.
	directPauseMin, directPauseMax = 100 * time.Millisecond, 30 * time.Second
	// directProven is how long a direct connection lasts that has not failed.
	directProven = time.Second
	// directIdle is how long a direct connection that takes no more calls has none under way before it is closed.
	directIdle = time.Second
)

// A directConnection has an endpoint's calls go to the process that a gateway would hand them to: spec/wire.md, section 24. The gateway is
// asked in the session with it, again and again while that stands.
type directConnection struct {
	endpoint *endpoint
	config   transport.Config

	mu  sync.Mutex
	err error // why there is none; nil: there is one
}

func newDirectConnection(e *endpoint, config transport.Config) *directConnection {
	return &directConnection{endpoint: e, config: config, err: errors.New("the gateway has not been asked yet")}
}

// Direct is nil while calls go by a direct connection, and else says why not. A client has direct connections only if its one address is a
// gateway's, and the gateway's config allows them.
func (cc *ClientConn) Direct() error {
	d := cc.balancer.endpoints[0].direct
	if d == nil {
		return errors.New("tollfree: only a client of one gateway of this host (WithVia) has direct connections")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return fmt.Errorf("tollfree: no direct connection: %w", d.err)
	}
	return nil
}

// settle notes what asking came to.
func (d *directConnection) settle(err error) {
	d.mu.Lock()
	d.err = err
	d.mu.Unlock()
}

// keep asks in a session with a gateway, until that takes no more calls.
func (d *directConnection) keep(gateway *session) {
	e := d.endpoint
	defer e.watchers.Done()
	ctx, stop := context.WithCancel(e.context)
	defer stop()
	go func() {
		select {
		case <-gateway.client.Draining():
			stop()
		case <-ctx.Done():
		}
	}()
	for failures := 1; ctx.Err() == nil; failures++ {
		if lasted := d.use(ctx, gateway); lasted >= directProven {
			failures = 1
		}
		timer := time.NewTimer(backoff(directPauseMin, directPauseMax, failures))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	d.settle(errors.New("the session with the gateway has ended"))
}

// use has calls go by a direct connection while there is one, and says how long there was.
func (d *directConnection) use(ctx context.Context, gateway *session) (lasted time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	patience := time.AfterFunc(directTime, cancel)
	asked, client, err := d.meet(ctx, gateway)
	if !patience.Stop() && err != nil {
		err = fmt.Errorf("it takes longer than %v: %w", directTime, err)
	}
	if err != nil {
		d.settle(err)
		return 0
	}
	begun := time.Now()
	e := d.endpoint
	direct := e.newSession(client)
	direct.gateway, direct.health = gateway, gateway.health // Its group's answer.
	_, end := beginSession(e.context, e.handler, direct.peer, true)
	if !e.current.CompareAndSwap(gateway, direct) {
		client.Close()
		end()
		return 0
	}
	d.settle(nil)
	over := make(chan struct{})
	go func() {
		defer close(over)
		// It brings no messages: whatever comes is its end.
		if message, err := asked.Recv(); err == nil {
			message.Data.Free()
		}
	}()
	select {
	case <-over:
	case <-client.Draining():
	case <-ctx.Done():
	}
	d.settle(errors.New("the last one is over; the gateway is asked again"))
	e.current.CompareAndSwap(direct, gateway)
	e.changed()
	cancel()
	<-over
	e.watchers.Add(1)
	go func() {
		defer e.watchers.Done()
		defer end()
		defer client.Close()
		direct.awaitIdle(e.context)
	}()
	return time.Since(begun)
}

// awaitIdle waits until a session that gets no more calls is over, or has no call under way any more.
func (s *session) awaitIdle(ctx context.Context) {
	ticks := time.NewTicker(directIdle)
	defer ticks.Stop()
	// A call may have chosen the session and not begun: so it has to be idle twice.
	for idle := 0; idle < 2; {
		select {
		case <-s.client.Done():
			return
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		if idle++; s.outstanding.Load() > 0 {
			idle = 0
		}
	}
}

// meet asks once. The answer stands as long as the call; ctx ends it.
func (d *directConnection) meet(ctx context.Context, gateway *session) (asked call.ClientCall, client call.Client, err error) {
	asked, err = gateway.client.Start(ctx, &call.Start{Method: directAskMethod, Last: true})
	if err != nil {
		return nil, nil, err
	}
	if client, err = d.connect(ctx, asked); err != nil {
		asked.Cancel(codes.Canceled)
		return nil, nil, err
	}
	return asked, client, nil
}

// connect connects to the process that an answer names.
func (d *directConnection) connect(ctx context.Context, asked call.ClientCall) (call.Client, error) {
	header, ok := asked.Header()
	if !ok {
		return nil, errors.New(asked.Outcome().Status.Message())
	}
	process, ok := transport.ParseProcess(first(header, headerProcess))
	address := first(header, headerOffer)
	if !ok || !strings.HasPrefix(address, schemeAbstract+":") {
		return nil, errors.New("the gateway names no process that can be met")
	}
	return transport.DialDirect(ctx, address, process, d.config)
}
