package tollfree

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	rules "github.com/tollfree/tollfree/go/internal/balancer"
	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/transport"
)

const (
	// attemptTimeout is how long an attempt to connect may take.
	attemptTimeout = 20 * time.Second
	// While calls wait for a server that is not there, attempts are 1 to 2 ms apart at first, and 4 to 8 ms later.
	shortPauseMin, shortPauseMax = time.Millisecond, 4 * time.Millisecond
	// Without calls, and where a server refuses, they are ever further apart.
	longPauseMin, longPauseMax = 20 * time.Millisecond, time.Second
)

// A session takes calls to one server.
type session struct {
	client      call.Client
	unary       call.UnaryClient // nil: the client makes no whole calls
	peer        *peer.Peer
	outstanding atomic.Int32
	record      *rules.Record // nil: nobody counts how calls end
	health      *healthWatch  // nil: its server's health is not checked
	// gateway is, of a direct connection, the session with the gateway that has led to it; nil: it is none.
	gateway *session
}

// ended counts how a call has ended, by its error. One that the caller has dropped says nothing of the server.
func (s *session) ended(err error) {
	switch {
	case s.record == nil:
	case err == nil:
		s.record.Succeeded()
	case status.Code(err) != codes.Canceled:
		s.record.Failed()
	}
}

// load is how many calls the server has under way; this client's own where it does not say.
func (s *session) load() uint32 {
	if load, ok := s.client.Load(); ok {
		return s.health.discount(load)
	}
	return uint32(s.outstanding.Load())
}

// open is false of a session that takes no more calls.
func (s *session) open() bool {
	select {
	case <-s.client.Draining():
		return false
	default:
		return true
	}
}

// An endpoint is one server, with at most one session that takes calls, and those that end.
type endpoint struct {
	address  string
	priority uint32
	record   *rules.Record // nil: nobody counts how calls end
	dial     dialer
	direct   *directConnection // nil: none is asked for
	health   *healthCheck      // nil: its health is not checked
	handler  stats.Handler
	eager    bool
	context  context.Context // the client's: until Close
	changed  func()          // tells the client that something is different
	hurry    chan struct{}   // cuts a long pause short

	current atomic.Pointer[session]

	mu         sync.Mutex
	connecting bool
	begun      uint64 // attempts that have begun
	failed     uint64 // the number of the last that failed
	failures   int    // in a row
	hasty      bool   // the last session was over at once
	refused    bool   // the server is there and said no; set during the pause that follows
	err        error  // why the last attempt failed
	waiting    int    // calls that wait for an attempt
	watchers   sync.WaitGroup
}

func newEndpoint(ctx context.Context, target *rules.Target, o *dialOptions, handler stats.Handler, eager bool, record *rules.Record, changed func()) *endpoint {
	e := &endpoint{
		address: target.Address, priority: target.Priority, record: record, dial: o.dial, health: o.healthCheck(), handler: handler, eager: eager, context: ctx, changed: changed,
		hurry: make(chan struct{}, 1),
	}
	if o.via != "" && len(o.targets) == 1 && !strings.HasPrefix(target.Address, transport.StreamScheme) {
		e.direct = newDirectConnection(e, transportConfig(o))
	}
	return e
}

// connected is the session that takes calls, or nil.
func (e *endpoint) connected() *session {
	s := e.current.Load()
	if s == nil || s.open() {
		return s
	}
	if s.gateway != nil && s.gateway.open() {
		return s.gateway
	}
	return nil
}

// reach is how the endpoint fares, and load how many calls its server has under way.
func (e *endpoint) reach() rules.Reach {
	if e.ready() != nil {
		return rules.Ready
	}
	if e.state() == connectivity.TransientFailure {
		return rules.Fails
	}
	return rules.Waits
}

func (e *endpoint) load() uint32 {
	if s := e.ready(); s != nil {
		return s.load()
	}
	return 0
}

func (e *endpoint) state() connectivity.State {
	e.mu.Lock()
	defer e.mu.Unlock()
	err, unhealthy := e.unhealthy()
	switch {
	case e.context.Err() != nil:
		return connectivity.Shutdown
	case e.ready() != nil:
		return connectivity.Ready
	case unhealthy && err == nil:
		return connectivity.Connecting
	case unhealthy || e.failures > 0:
		return connectivity.TransientFailure // until the next session, as gRPC asks
	case e.connecting:
		return connectivity.Connecting
	}
	return connectivity.Idle
}

// A wait is a call's, for an attempt that begins after it has come.
type wait struct {
	endpoint *endpoint
	need     uint64 // the number of that attempt
	failFast bool
}

// join has an attempt to connect begin, or waits for the next one.
func (e *endpoint) join(failFast bool) *wait {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := &wait{endpoint: e, need: e.begun + 1, failFast: failFast}
	e.waiting++
	e.connectLocked()
	if !e.refused {
		select {
		case e.hurry <- struct{}{}:
		default:
		}
	}
	return w
}

// failure is why there is no session, if that is known. final says that the attempt has failed that the call waited for, or that
// the call fails fast and the server has refused.
func (w *wait) failure() (err error, final bool) {
	w.endpoint.mu.Lock()
	defer w.endpoint.mu.Unlock()
	return w.endpoint.err, w.endpoint.failed >= w.need || w.failFast && w.endpoint.refused
}

func (w *wait) leave() {
	w.endpoint.mu.Lock()
	defer w.endpoint.mu.Unlock()
	w.endpoint.waiting--
}

// connect has attempts go on until there is a session.
func (e *endpoint) connect() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.connectLocked()
}

func (e *endpoint) connectLocked() {
	if e.connecting || e.connected() != nil || e.context.Err() != nil {
		return
	}
	e.connecting = true
	e.watchers.Add(1)
	go e.run()
}

// run makes attempts until one succeeds or the client is closed.
func (e *endpoint) run() {
	defer e.watchers.Done()
	e.changed()
	for e.pause() {
		e.mu.Lock()
		e.begun++
		number := e.begun
		e.refused = false
		e.mu.Unlock()
		ctx, cancel := context.WithTimeout(e.context, attemptTimeout)
		client, err := e.dial(ctx, e.address)
		cancel()
		if err == nil {
			e.install(client)
			return
		}
		e.fail(number, err)
	}
	e.mu.Lock()
	e.connecting = false
	e.mu.Unlock()
	e.changed()
}

func (e *endpoint) fail(number uint64, err error) {
	e.mu.Lock()
	e.failures++
	e.failed, e.err, e.refused = number, connectError(e.address, err), !absent(err)
	e.mu.Unlock()
	e.changed()
}

// pause waits before the next attempt. It returns false where the client has been closed.
func (e *endpoint) pause() bool {
	e.mu.Lock()
	failures, refused, hasty := e.failures, e.refused, e.hasty
	e.hasty = false
	e.mu.Unlock()
	switch {
	case failures == 0 && hasty:
		return e.sleep(backoff(shortPauseMin, shortPauseMax, 1), nil)
	case failures == 0:
		return e.context.Err() == nil
	}
	short, long := backoff(shortPauseMin, shortPauseMax, failures), backoff(longPauseMin, longPauseMax, failures)
	if refused {
		return e.sleep(long, nil)
	}
	if !e.sleep(short, nil) {
		return false
	}
	e.mu.Lock()
	if e.waiting == 0 {
		// A call that came and went must not hurry anybody.
		select {
		case <-e.hurry:
		default:
		}
	}
	waiting := e.waiting
	e.mu.Unlock()
	return waiting > 0 || e.sleep(long-short, e.hurry)
}

// sleep returns false where the client has been closed.
func (e *endpoint) sleep(d time.Duration, hurry <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-hurry:
	case <-e.context.Done():
		return false
	}
	return true
}

// backoff grows by doubling from low to high, and is jittered up to twice that.
func backoff(low, high time.Duration, failures int) time.Duration {
	d := high
	if shift := failures - 1; shift < 20 {
		d = min(low<<shift, high)
	}
	return d + rand.N(d)
}

func (e *endpoint) newSession(client call.Client) *session {
	s := &session{client: client, peer: peerOf(client.Peer()), record: e.record}
	s.unary, _ = client.(call.UnaryClient)
	return s
}

func (e *endpoint) install(client call.Client) {
	s := e.newSession(client)
	s.health = e.newHealthWatch(s)
	_, end := beginSession(e.context, e.handler, s.peer, true)
	e.mu.Lock()
	e.current.Store(s)
	e.connecting, e.failures, e.refused, e.err = false, 0, false, nil
	e.watchers.Add(1)
	e.mu.Unlock()
	if e.direct != nil {
		e.watchers.Add(1)
		go e.direct.keep(s)
	}
	if s.health != nil {
		e.watchers.Add(1)
		go s.health.keep()
	}
	e.changed()
	go e.watch(s, end)
}

// retire has no more calls go by a session that a gateway or server ends, nor by the direct connection that it has led to.
func (e *endpoint) retire(s *session) {
	if current := e.current.Load(); current == s || current != nil && current.gateway == s {
		e.current.CompareAndSwap(current, nil)
	}
}

// watch waits until s takes no more calls, then until it is over, and releases it.
func (e *endpoint) watch(s *session, end func()) {
	defer e.watchers.Done()
	defer end()
	defer s.client.Close()
	defer s.health.end()
	begun := time.Now()
	select {
	case <-s.client.Draining():
	case <-e.context.Done():
		return
	}
	e.retire(s)
	s.health.end() // A server that drains waits for it.
	if time.Since(begun) < longPauseMin {
		// A server that ends its sessions at once is not to be asked without a pause.
		e.mu.Lock()
		e.hasty = true
		e.mu.Unlock()
	}
	if e.eager {
		e.connect()
	}
	e.changed()
	select {
	case <-s.client.Done():
	case <-e.context.Done():
	}
}

// close waits until all that the endpoint runs has ended; its context is done.
func (e *endpoint) close() {
	e.mu.Lock()
	//lint:ignore SA2001 what had begun under the lock has joined the watchers; nothing begins after this: the context is done
	e.mu.Unlock()
	e.watchers.Wait()
	e.current.Store(nil)
}

// absent is true where nobody listens: the next attempt may follow soon.
func absent(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED)
}

// connectError is a status (spec/wire.md, section 19).
func connectError(address string, err error) error {
	code, words := codes.Unavailable, err.Error()
	if s, ok := status.FromError(err); ok {
		code, words = s.Code(), strings.TrimPrefix(s.Message(), address+": ")
	} else if errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM) {
		code = codes.PermissionDenied
	}
	if code == codes.DeadlineExceeded {
		code = codes.Unavailable // It is the attempt's time that was over, not the call's.
	}
	hint := ""
	if absent(err) {
		hint = "; start the server, or check the path"
	}
	return status.Errorf(code, "tollfree: no session with %s: %s%s", address, words, hint)
}
