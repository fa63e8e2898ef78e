package calltest

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
)

// session is both ends of a session.
type session struct {
	listener *Listener
	slots    chan struct{} // nil: any number
	draining chan struct{}
	idle     chan struct{} // draining, and no call is left
	done     chan struct{}

	mu       sync.Mutex
	context  context.Context // parent of all handlers' contexts
	closed   func()          // the service's, at the end of the session
	calls    map[*stream]bool
	drains   bool
	idling   bool
	over     bool
	err      error
	starting int
}

func newSession(l *Listener) *session {
	s := &session{
		listener: l, context: context.Background(), calls: map[*stream]bool{},
		draining: make(chan struct{}), idle: make(chan struct{}), done: make(chan struct{}),
	}
	if l.config.MaxCalls > 0 {
		s.slots = make(chan struct{}, l.config.MaxCalls)
	}
	return s
}

func (s *session) open() {
	if s.listener.service.Session == nil {
		return
	}
	ctx, closed := s.listener.service.Session(context.Background(), s.Peer())
	s.mu.Lock()
	s.context = ctx
	over := s.over
	if !over {
		s.closed = closed
	}
	s.mu.Unlock()
	if over {
		closed()
	}
}

func (s *session) Peer() call.Peer {
	return call.Peer{Address: s.listener.address, PID: 4711, UID: 1000, GID: 100, Agent: "calltest"}
}

func (s *session) Load() (uint32, bool)      { return uint32(s.listener.Calls()), true }
func (s *session) Draining() <-chan struct{} { return s.draining }
func (s *session) Done() <-chan struct{}     { return s.done }

func (s *session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *session) Close() error {
	s.end(status.Error(14, "calltest: this side has closed the session"))
	return nil
}

func (s *session) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)
}

func (s *session) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.drains {
		s.drains = true
		close(s.draining)
	}
	s.settle()
}

// settle is called with the lock held.
func (s *session) settle() {
	if s.drains && !s.idling && len(s.calls) == 0 && s.starting == 0 {
		s.idling = true
		close(s.idle)
	}
}

func (s *session) end(err error) {
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return
	}
	s.over, s.err = true, err
	if !s.drains {
		s.drains = true
		close(s.draining)
	}
	close(s.done)
	calls := make([]*stream, 0, len(s.calls))
	for c := range s.calls {
		calls = append(calls, c)
	}
	closed := s.closed
	s.closed = nil
	s.mu.Unlock()
	for _, c := range calls {
		c.end(call.Outcome{Status: unavailable(err.Error())})
	}
	if closed != nil {
		closed()
	}
	s.listener.forget(s)
}

func (s *session) Start(ctx context.Context, start *call.Start) (call.ClientCall, error) {
	free := func() {
		if start.Message != nil {
			start.Message.Data.Free()
		}
	}
	if s.slots != nil {
		timeout := make(<-chan time.Time)
		if !start.Deadline.IsZero() {
			timer := time.NewTimer(time.Until(start.Deadline))
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case s.slots <- struct{}{}:
		case <-s.draining:
			free()
			return nil, unavailable("the server drains").Err()
		case <-timeout:
			free()
			return nil, status.FromContextError(context.DeadlineExceeded).Err()
		case <-ctx.Done():
			free()
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	if err := ctx.Err(); err != nil {
		s.release()
		free()
		return nil, status.FromContextError(err).Err()
	}
	s.mu.Lock()
	if s.drains {
		s.mu.Unlock()
		s.release()
		free()
		return nil, unavailable("the server drains").Err()
	}
	c := newStream(s, s.context, start)
	s.calls[c] = true
	s.mu.Unlock()
	c.watch(ctx, start.Deadline)
	if s.listener.takeRefusal() {
		c.end(call.Outcome{Status: unavailable("the server refuses the call"), Unprocessed: true})
		s.remove(c)
		return (*clientCall)(c), nil
	}
	service := &s.listener.service
	if start.Message != nil && start.Last && service.Inline != nil && service.Inline(start.Method) {
		c.serve(service.Handler)
		return (*clientCall)(c), nil
	}
	s.listener.handlers.Add(1)
	go func() {
		defer s.listener.handlers.Done()
		c.serve(service.Handler)
	}()
	return (*clientCall)(c), nil
}

func (s *session) release() {
	if s.slots != nil {
		<-s.slots
	}
}

// remove is called once the handler of c has returned, or none will see it.
func (s *session) remove(c *stream) {
	s.release()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, c)
	s.settle()
}
