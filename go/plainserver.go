package tollfree

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tollfree/tollfree/go/internal/buffers"
	"github.com/tollfree/tollfree/go/internal/call"
)

// A unaryServerCall is a call of a unary method for which nothing but its session is needed: no stats handler, compressor or codec of
// the program's own has a part in it. It is the context of its handler, who may keep it.
type unaryServerCall struct {
	lent   call.Context
	base   context.Context // lent, or of a call with a deadline
	path   string
	answer answer

	mu   sync.Mutex
	from call.UnaryCall // nil when the call is over
}

var (
	_ context.Context            = (*unaryServerCall)(nil)
	_ grpc.ServerTransportStream = (*unaryTransportStream)(nil)
)

// A servedCall is what a call needs until its handler has returned.
type servedCall struct {
	request call.Reply
	out     encoded
	room    [buffers.SmallMax]byte
}

// servedCalls are kept for the next calls.
var servedCalls = sync.Pool{New: func() any { return new(servedCall) }}

func (w *servedCall) release() {
	w.request.Clear()
	w.out = encoded{}
	servedCalls.Put(w)
}

// A keyFinder is a context that finds out by which key package grpc looks for a call.
type keyFinder struct {
	context.Context
	key any
}

func (f *keyFinder) Value(key any) any {
	f.key = key
	return nil
}

// transportStreamKey is by which grpc.SetHeader and others find their call in a context.
var transportStreamKey = func() any {
	finder := keyFinder{Context: context.Background()}
	grpc.ServerTransportStreamFromContext(&finder)
	return finder.key
}()

func (c *unaryServerCall) Deadline() (time.Time, bool) { return c.base.Deadline() }
func (c *unaryServerCall) Done() <-chan struct{}       { return c.base.Done() }
func (c *unaryServerCall) Err() error                  { return c.base.Err() }

func (c *unaryServerCall) Value(key any) any {
	if key == transportStreamKey {
		return (*unaryTransportStream)(c)
	}
	return c.base.Value(key)
}

// unaryTransportStream is a call for grpc.SetHeader, SendHeader, SetTrailer and Method.
type unaryTransportStream unaryServerCall

func (t *unaryTransportStream) Method() string                  { return t.path }
func (t *unaryTransportStream) SetHeader(md metadata.MD) error  { return t.answer.setHeader(md) }
func (t *unaryTransportStream) SetTrailer(md metadata.MD) error { return t.answer.addTrailer(md) }

func (t *unaryTransportStream) SendHeader(md metadata.MD) error {
	if err := t.answer.setHeader(md); err != nil {
		return err
	}
	return t.answer.sendHeader(func(header metadata.MD) error {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.from == nil {
			return errHeaderSent
		}
		return t.from.SendHeader(header)
	})
}

// A directHandler serves a call of a method that generated code has registered.
type directHandler func(s *Server, from call.UnaryCall, path string, show *shownHeader)

// servePlain serves a call of a unary method, if it needs nothing but its session; false: it is to be served otherwise.
func (s *Server) servePlain(from call.ServerCall, m *method) bool {
	if !s.plain || m == nil || m.unary == nil || m.inPlace && m.objects == nil {
		return false
	}
	short, is := from.(call.UnaryCall)
	if !is {
		return false
	}
	of, known := short.SessionContext().Value(clientKey{}).(*client)
	if !known {
		return false
	}
	show := of.show(from.Header())
	if !show.plain || show.context == nil {
		return false
	}
	if m.direct != nil && s.unary == nil {
		m.direct(s, short, m.path, show)
		return true
	}
	w := servedCalls.Get().(*servedCall)
	defer w.release()
	c := new(unaryServerCall)
	if err := c.receive(short, m.path, show, &w.request); err != nil {
		c.finish(w, status.Convert(err))
		return true
	}
	reply, err := m.unary(m.impl, c, func(into any) error {
		message, is := into.(proto.Message)
		if !is {
			return status.Errorf(codes.Internal, "tollfree: the peer's message can't be decoded as %T: it is no protobuf message", into)
		}
		return decodeProto(&w.request, message, false, false, s.options.receiveMax)
	}, s.unary)
	message, is := reply.(proto.Message)
	if err == nil && !is {
		err = status.Errorf(codes.Internal, "tollfree: the message %T can't be encoded: it is no protobuf message", reply)
	}
	c.reply(s, w, message, false, err)
	return true
}

// receive begins the call with its request. An error is a status.
func (c *unaryServerCall) receive(from call.UnaryCall, path string, show *shownHeader, request *call.Reply) error {
	c.from, c.path = from, path
	lends, err := from.RecvUnary(request, &c.lent, show.context)
	if c.base = &c.lent; !lends {
		c.base = show.within(from.Context())
	}
	return err
}

// reply ends the call with what its handler has returned.
func (c *unaryServerCall) reply(s *Server, w *servedCall, reply proto.Message, vt bool, err error) {
	if err == nil {
		w.out, err = encodeProto(reply, vt, s.options.sendMax, w.room[:], s.options.pool)
	}
	c.finish(w, outcomeOf(err))
}

// outcomeOf is the status of a handler's error, or nil.
func outcomeOf(err error) *status.Status {
	if err == nil {
		return statusOK
	}
	if outcome, is := status.FromError(err); is {
		return outcome
	}
	return status.FromContextError(err)
}

// finish ends the call, with w's message where the outcome is OK.
func (c *unaryServerCall) finish(w *servedCall, outcome *status.Status) {
	header, trailer, _, wrong := c.answer.end()
	if outcome.Code() == codes.OK && wrong != nil {
		outcome = status.Convert(wrong)
		w.out.whole.Data.Free()
	}
	c.mu.Lock()
	from := c.from
	c.from = nil
	c.mu.Unlock()
	message, short := w.out.message(), w.out.short
	if outcome.Code() != codes.OK {
		message, short = nil, nil
	}
	from.FinishUnary(header, message, short, outcome, trailer)
}
