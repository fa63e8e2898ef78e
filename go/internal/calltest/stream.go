package calltest

import (
	"context"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
)

// stream is both ends of a call.
type stream struct {
	session *session
	method  string
	longest uint32 // message that the client takes; 0: any
	request metadata.MD
	context context.Context
	cancel  context.CancelFunc

	mu       sync.Mutex
	changed  sync.Cond
	requests queue
	replies  queue
	last     bool // the client sends no more
	header   metadata.MD
	answered bool // header is there
	ended    bool
	outcome  call.Outcome
	unwatch  []func() bool
}

// clientCall and serverCall are a stream's two faces.
type (
	clientCall stream
	serverCall stream
)

// queue is the messages that wait in one direction.
type queue struct {
	messages []call.Message
	bytes    int
}

func (q *queue) push(m call.Message) {
	data := m.Data.Materialize()
	m.Data.Free()
	q.messages = append(q.messages, call.Message{Data: mem.BufferSlice{mem.SliceBuffer(data)}, Compressed: m.Compressed})
	q.bytes += len(data)
}

func (q *queue) pop() (call.Message, bool) {
	if len(q.messages) == 0 {
		return call.Message{}, false
	}
	m := q.messages[0]
	q.messages = q.messages[1:]
	q.bytes -= m.Data.Len()
	return m, true
}

func newStream(s *session, parent context.Context, start *call.Start) *stream {
	c := &stream{session: s, method: start.Method, request: start.Header.Copy(), longest: start.MessageLenMax, last: start.Last}
	c.changed.L = &c.mu
	if start.Deadline.IsZero() {
		c.context, c.cancel = context.WithCancel(parent)
	} else {
		c.context, c.cancel = context.WithDeadline(parent, start.Deadline)
	}
	if start.Message != nil {
		c.requests.push(*start.Message)
	}
	return c
}

// watch has the call end with ctx and at its deadline.
func (c *stream) watch(ctx context.Context, deadline time.Time) {
	var unwatch []func() bool
	if ctx.Done() != nil {
		unwatch = append(unwatch, context.AfterFunc(ctx, func() {
			c.end(call.Outcome{Status: status.FromContextError(ctx.Err())})
		}))
	}
	if !deadline.IsZero() {
		timer := time.AfterFunc(time.Until(deadline), func() {
			c.end(call.Outcome{Status: status.FromContextError(context.DeadlineExceeded)})
		})
		unwatch = append(unwatch, timer.Stop)
	}
	c.mu.Lock()
	c.unwatch = unwatch
	ended := c.ended
	c.mu.Unlock()
	if ended {
		c.stopWatching()
	}
}

func (c *stream) stopWatching() {
	c.mu.Lock()
	unwatch := c.unwatch
	c.unwatch = nil
	c.mu.Unlock()
	for _, stop := range unwatch {
		stop()
	}
}

// end ends the call if it has not ended. What came before can still be read.
func (c *stream) end(outcome call.Outcome) {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return
	}
	c.ended, c.outcome = true, outcome
	c.changed.Broadcast()
	c.mu.Unlock()
	c.cancel()
	c.stopWatching()
}

func (c *stream) serve(handler call.Handler) {
	handler((*serverCall)(c))
	c.mu.Lock()
	ended := c.ended
	c.mu.Unlock()
	if !ended {
		panic("calltest: the handler of " + c.method + " has returned without Finish")
	}
	c.session.remove(c)
}

// send waits for room in q.
func (c *stream) send(q *queue, m call.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.ended && q.bytes > 0 && q.bytes+m.Data.Len() > c.session.listener.config.Window {
		c.changed.Wait()
	}
	if c.ended {
		m.Data.Free()
		return errEnded
	}
	q.push(m)
	c.changed.Broadcast()
	return nil
}

// tooLong ends a call whose client does not take m, and frees that.
func (c *stream) tooLong(m *call.Message) bool {
	size := m.Data.Len()
	if c.longest == 0 || uint64(size) <= uint64(c.longest) {
		return false
	}
	m.Data.Free()
	c.end(call.Outcome{Status: status.Newf(codes.ResourceExhausted, "calltest: a message of %d bytes, where %d is the most", size, c.longest)})
	return true
}

func (cc *clientCall) Send(m call.Message, last bool) error {
	c := (*stream)(cc)
	if err := c.send(&c.requests, m); err != nil {
		return err
	}
	if last {
		return cc.CloseSend()
	}
	return nil
}

func (cc *clientCall) CloseSend() error {
	c := (*stream)(cc)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return errEnded
	}
	c.last = true
	c.changed.Broadcast()
	return nil
}

func (cc *clientCall) Header() (metadata.MD, bool) {
	c := (*stream)(cc)
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.answered && !c.ended {
		c.changed.Wait()
	}
	return c.header, c.answered
}

func (cc *clientCall) Recv() (call.Message, error) {
	c := (*stream)(cc)
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if m, ok := c.replies.pop(); ok {
			c.changed.Broadcast()
			return m, nil
		}
		if c.ended {
			return call.Message{}, io.EOF
		}
		c.changed.Wait()
	}
}

func (cc *clientCall) Outcome() call.Outcome {
	c := (*stream)(cc)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.outcome
}

func (cc *clientCall) Cancel(code codes.Code) {
	(*stream)(cc).end(call.Outcome{Status: status.New(code, "calltest: the client has cancelled the call")})
}

func (sc *serverCall) Context() context.Context { return sc.context }
func (sc *serverCall) Method() string           { return sc.method }
func (sc *serverCall) Header() metadata.MD      { return sc.request.Copy() }
func (sc *serverCall) Peer() call.Peer          { return sc.session.Peer() }

func (sc *serverCall) Recv() (call.Message, error) {
	c := (*stream)(sc)
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if m, ok := c.requests.pop(); ok {
			c.changed.Broadcast()
			return m, nil
		}
		if c.last {
			return call.Message{}, io.EOF
		}
		if c.ended {
			return call.Message{}, status.Error(codes.Canceled, "calltest: the call has ended: "+c.outcome.Status.Message())
		}
		c.changed.Wait()
	}
}

func (sc *serverCall) SendHeader(header metadata.MD) error {
	c := (*stream)(sc)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return errEnded
	}
	if c.answered {
		return status.Error(codes.Internal, "calltest: SendHeader called twice")
	}
	c.header, c.answered = header.Copy(), true
	c.changed.Broadcast()
	return nil
}

func (sc *serverCall) Send(m call.Message) error {
	c := (*stream)(sc)
	c.mu.Lock()
	if !c.ended && !c.answered {
		c.header, c.answered = metadata.MD{}, true
		c.changed.Broadcast()
	}
	c.mu.Unlock()
	if c.tooLong(&m) || c.send(&c.replies, m) != nil {
		return status.Error(codes.Canceled, "calltest: the call has ended")
	}
	return nil
}

func (sc *serverCall) Finish(header metadata.MD, message *call.Message, outcome *status.Status, trailer metadata.MD) error {
	c := (*stream)(sc)
	if message != nil && c.tooLong(message) {
		message = nil
	}
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		if message != nil {
			message.Data.Free()
		}
		return status.Error(codes.Canceled, "calltest: the call has ended")
	}
	if !c.answered && (message != nil || len(header) > 0) {
		c.header, c.answered = header.Copy(), true
	}
	if message != nil {
		c.replies.push(*message)
	}
	c.ended, c.outcome = true, call.Outcome{Status: outcome, Trailer: trailer.Copy()}
	c.changed.Broadcast()
	c.mu.Unlock()
	c.cancel()
	c.stopWatching()
	return nil
}
