package tollfree

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"

	rules "github.com/tollfree/tollfree/go/internal/balancer"
	"github.com/tollfree/tollfree/go/internal/system"
)

var _ grpc.ClientConnInterface = (*ClientConn)(nil)

// errClosing is what calls of a closed connection end with: programs may still compare with it.
//
//lint:ignore SA1019 it is what a grpc.ClientConn gives
var errClosing = grpc.ErrClientConnClosing

// A ClientConn makes calls over shared memory. Generated clients take it in the place of a *grpc.ClientConn. All methods are
// safe for use by several goroutines; one ClientConn for all of them is best.
type ClientConn struct {
	target   string
	options  *dialOptions
	handler  stats.Handler // nil: none
	balancer *balancer
	throttle *throttle   // nil: none
	header   metadata.MD // of calls without a header of their own; nobody changes it
	context  context.Context
	cancel   context.CancelFunc
	state    stateManager
	plain    *plainLimits // nil: all calls go the whole way
	objects  atomic.Int64 // that have come

	// shown is what interceptors get, nil where there are none. It never connects.
	shown  *grpc.ClientConn
	unary  grpc.UnaryInvoker
	stream grpc.Streamer
}

// NewClient makes a client of the server at address, "shm:///run/app/greeter.sock" or "shm-abstract:greeter". It does not
// connect: the first call does, or Connect. An error says what is wrong with the address or an option.
func NewClient(address string, options ...DialOption) (*ClientConn, error) {
	o, err := newDialOptions(address, options)
	if err != nil {
		return nil, err
	}
	if err := system.Check(); err != nil {
		return nil, fmt.Errorf("tollfree: %s: %w", address, err)
	}
	cc := &ClientConn{target: address, options: o, handler: oneHandler(o.handlers), header: metadata.MD{}}
	if accepted := acceptedEncodings(""); accepted != "" {
		cc.header[headerAccept] = []string{accepted}
	}
	if o.config.throttling != nil {
		cc.throttle = newThrottle(*o.config.throttling)
	}
	cc.context, cc.cancel = context.WithCancel(context.Background())
	cc.balancer = newBalancer(o.config, o.targets, func(target *rules.Target, eager bool, record *rules.Record) *endpoint {
		return newEndpoint(cc.context, target, o, cc.handler, eager, record, cc.update)
	})
	cc.state.init()
	cc.plain = plainLimitsOf(o, cc.handler != nil)
	if err := cc.intercept(); err != nil {
		cc.cancel()
		return nil, err
	}
	return cc, nil
}

// intercept makes unary and stream of the interceptors.
func (cc *ClientConn) intercept() error {
	cc.unary = func(ctx context.Context, method string, request, reply any, _ *grpc.ClientConn, options ...grpc.CallOption) error {
		return cc.invoke(ctx, method, request, reply, options)
	}
	cc.stream = func(ctx context.Context, desc *grpc.StreamDesc, _ *grpc.ClientConn, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
		stream, err := cc.newStream(ctx, desc, method, nil, options)
		if err != nil {
			return nil, err
		}
		return stream, nil
	}
	if len(cc.options.unary) == 0 && len(cc.options.stream) == 0 {
		return nil
	}
	shown, err := grpc.NewClient(cc.target, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableServiceConfig(),
		grpc.WithUnaryInterceptor(UnaryOver(cc)), grpc.WithStreamInterceptor(StreamOver(cc)))
	if err != nil {
		return fmt.Errorf("tollfree: the connection that interceptors see: %w", err)
	}
	cc.shown = shown
	for i := len(cc.options.unary) - 1; i >= 0; i-- {
		interceptor, next := cc.options.unary[i], cc.unary
		cc.unary = func(ctx context.Context, method string, request, reply any, shown *grpc.ClientConn, options ...grpc.CallOption) error {
			return interceptor(ctx, method, request, reply, shown, next, options...)
		}
	}
	for i := len(cc.options.stream) - 1; i >= 0; i-- {
		interceptor, next := cc.options.stream[i], cc.stream
		cc.stream = func(ctx context.Context, desc *grpc.StreamDesc, shown *grpc.ClientConn, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
			return interceptor(ctx, desc, shown, method, next, options...)
		}
	}
	return nil
}

// intercepted says whether interceptors have a part in calls.
func (cc *ClientConn) intercepted() bool { return cc.shown != nil }

// Invoke makes a unary call. Generated code calls it. An error is a status.
func (cc *ClientConn) Invoke(ctx context.Context, method string, request, reply any, options ...grpc.CallOption) error {
	if !cc.intercepted() && sayNothing(options) {
		in, isProto := request.(proto.Message)
		out, isToo := reply.(proto.Message)
		if isProto && isToo {
			if done, err := cc.invokePlain(ctx, method, in, out, false, false); done {
				return err
			}
		}
	}
	return cc.unary(ctx, method, request, reply, cc.shown, cc.withDefaults(options)...)
}

// NewStream begins a call with streams. Generated code calls it. The call is over, and nothing of it is left, once RecvMsg
// has returned an error, ctx is done, or Close was called.
func (cc *ClientConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	return cc.stream(ctx, desc, cc.shown, method, cc.withDefaults(options)...)
}

func (cc *ClientConn) withDefaults(options []grpc.CallOption) []grpc.CallOption {
	defaults := cc.options.calls
	if len(defaults) == 0 {
		return options
	}
	return append(defaults[:len(defaults):len(defaults)], options...)
}

// Target is the address that NewClient was given.
func (cc *ClientConn) Target() string { return cc.target }

// Connect begins to connect; it does not wait.
func (cc *ClientConn) Connect() {
	for i, e := range cc.balancer.endpoints {
		if i == 0 || e.eager {
			e.connect()
		}
	}
}

// GetState is READY where a call would find a session, else the state of the endpoint that is nearest to one.
func (cc *ClientConn) GetState() connectivity.State { return cc.state.get() }

// WaitForStateChange waits until the state is not source, and returns true, or until ctx is done, and returns false.
func (cc *ClientConn) WaitForStateChange(ctx context.Context, source connectivity.State) bool {
	for {
		changed := cc.state.changes()
		if cc.state.get() != source {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// Close ends all calls and sessions, and waits until nothing of them is left. Calls end with CANCELED.
func (cc *ClientConn) Close() error {
	if cc.context.Err() != nil {
		return errClosing
	}
	cc.cancel()
	for _, e := range cc.balancer.endpoints {
		e.close()
	}
	cc.update()
	if cc.shown != nil {
		return cc.shown.Close()
	}
	return nil
}

// update is called when an endpoint's state may be another.
func (cc *ClientConn) update() {
	cc.state.update(func() connectivity.State {
		nearest := connectivity.TransientFailure
		for _, e := range cc.balancer.endpoints {
			switch s := e.state(); {
			case s == connectivity.Ready, s == connectivity.Shutdown:
				return s
			case s == connectivity.Connecting:
				nearest = s
			case s == connectivity.Idle && nearest == connectivity.TransientFailure:
				nearest = s
			}
		}
		return nearest
	})
	cc.balancer.goOn()
}

// A stateManager has the client's state, and wakes those who wait for a change.
type stateManager struct {
	mu      sync.Mutex
	state   connectivity.State
	changed chan struct{}
}

func (m *stateManager) init() {
	m.state, m.changed = connectivity.Idle, make(chan struct{})
}

func (m *stateManager) get() connectivity.State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

// changes is closed at the next update.
func (m *stateManager) changes() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// update wakes all who wait also where the state is the same: calls wait for attempts, which it does not show.
func (m *stateManager) update(current func() connectivity.State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = current()
	close(m.changed)
	m.changed = make(chan struct{})
}
