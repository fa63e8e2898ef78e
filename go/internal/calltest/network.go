// Package calltest carries calls within one process, as package call demands, for tests of what is built on it. Windows, limits,
// deadlines, cancellation, refusal, drain and death are all there.
package calltest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
)

// Config says what a listener's sessions allow.
type Config struct {
	// MaxCalls is how many calls a session takes at once; 0: any number.
	MaxCalls int
	// Window is how many bytes of messages wait in each direction of a call; 0: 64 KiB.
	Window int
}

// A Network has listeners by address. Its zero value is ready for use.
type Network struct {
	mu        sync.Mutex
	listeners map[string]*Listener
	refusals  map[string][]error
	dials     map[string]int
}

// Listen takes address until the listener is closed or drained.
func (n *Network) Listen(address string, config Config) (*Listener, error) {
	if config.Window == 0 {
		config.Window = 64 << 10
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[address] != nil {
		return nil, fmt.Errorf("listen at %s: %w", address, syscall.EADDRINUSE)
	}
	l := &Listener{
		network: n, address: address, config: config,
		serving: make(chan struct{}), closed: make(chan struct{}), drained: make(chan struct{}),
		sessions: map[*session]bool{},
	}
	if n.listeners == nil {
		n.listeners = map[string]*Listener{}
	}
	n.listeners[address] = l
	return l, nil
}

// Refuse has the next attempts to connect to address fail, one for each error.
func (n *Network) Refuse(address string, errs ...error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.refusals == nil {
		n.refusals = map[string][]error{}
	}
	n.refusals[address] = append(n.refusals[address], errs...)
}

// Dials is how many attempts to connect to address there were.
func (n *Network) Dials(address string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials[address]
}

// Dial begins a session.
func (n *Network) Dial(ctx context.Context, address string) (call.Client, error) {
	n.mu.Lock()
	if n.dials == nil {
		n.dials = map[string]int{}
	}
	n.dials[address]++
	l := n.listeners[address]
	var refusal error
	if queue := n.refusals[address]; len(queue) > 0 {
		refusal, n.refusals[address] = queue[0], queue[1:]
	}
	n.mu.Unlock()
	if refusal != nil {
		return nil, refusal
	}
	if l == nil {
		return nil, fmt.Errorf("connect to %s: %w", address, syscall.ENOENT)
	}
	select {
	case <-l.serving:
	case <-l.closed:
		return nil, fmt.Errorf("connect to %s: %w", address, syscall.ECONNREFUSED)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return l.accept()
}

// A Listener is a server's end.
type Listener struct {
	network *Network
	address string
	config  Config
	service call.Service
	serving chan struct{}
	closed  chan struct{} // takes no new sessions
	drained chan struct{} // Serve is over

	mu       sync.Mutex
	sessions map[*session]bool
	refuse   int
	over     bool
	ended    bool
	handlers sync.WaitGroup
}

func (l *Listener) Address() string { return l.address }

// RefuseCalls has the next n calls end unprocessed, without a handler having seen them.
func (l *Listener) RefuseCalls(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuse = n
}

// Sessions is how many sessions there are.
func (l *Listener) Sessions() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.sessions)
}

// Calls is how many calls are under way.
func (l *Listener) Calls() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	calls := 0
	for s := range l.sessions {
		calls += s.count()
	}
	return calls
}

func (l *Listener) takeRefusal() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse == 0 {
		return false
	}
	l.refuse--
	return true
}

func (l *Listener) accept() (call.Client, error) {
	s := newSession(l)
	l.mu.Lock()
	if l.over {
		l.mu.Unlock()
		return nil, fmt.Errorf("connect to %s: %w", l.address, syscall.ECONNREFUSED)
	}
	l.sessions[s] = true
	l.mu.Unlock()
	s.open()
	return s, nil
}

func (l *Listener) forget(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sessions, s)
}

func (l *Listener) Serve(service call.Service) error {
	l.mu.Lock()
	if l.over {
		l.mu.Unlock()
		return nil
	}
	l.service = service
	close(l.serving)
	l.mu.Unlock()
	<-l.drained
	l.handlers.Wait()
	return nil
}

// stop takes no new sessions, and returns those that there are.
func (l *Listener) stop() []*session {
	l.network.mu.Lock()
	if l.network.listeners[l.address] == l {
		delete(l.network.listeners, l.address)
	}
	l.network.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.over = true
		close(l.closed)
	}
	all := make([]*session, 0, len(l.sessions))
	for s := range l.sessions {
		all = append(all, s)
	}
	return all
}

func (l *Listener) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.ended = true
		close(l.drained)
	}
}

func (l *Listener) Drain(ctx context.Context) error {
	all := l.stop()
	for _, s := range all {
		s.drain()
	}
	for _, s := range all {
		select {
		case <-s.idle:
		case <-s.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		s.end(errors.New("the server has drained"))
	}
	l.end()
	return nil
}

func (l *Listener) Close() error {
	for _, s := range l.stop() {
		s.end(errors.New("the server has closed the session"))
	}
	l.end()
	return nil
}

func unavailable(why string) *status.Status {
	return status.New(codes.Unavailable, "calltest: "+why)
}

var errEnded = io.EOF
