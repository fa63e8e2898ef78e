package transport

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/session"
	"github.com/tollfree/tollfree/go/internal/wire"
)

var (
	_ call.UnaryClient = (*client)(nil)
	_ call.UnaryCall   = (*serverCall)(nil)
)

// Unary makes a call with one message each way. It holds the lock from its beginning until the caller looks for the answer.
func (c *client) Unary(ctx context.Context, start *call.Start, request *call.Message, short []byte, reply *call.Reply) (call.Outcome, error) {
	l := c.link
	cc, err := c.begin(ctx, start, request, short, true)
	if err != nil {
		return call.Outcome{}, err
	}
	cc.KeepLent()
	var wrong *fault
	l.await(ctx, &cc.receiving, func() bool {
		if !reply.Came && wrong == nil {
			wrong = l.takeOne(&cc.Stream, &cc.assembler, cc.messageLenMax, reply)
		}
		reply.TooMany = reply.Came && (cc.HasChunk() || cc.assembler.holds())
		return wrong != nil || reply.TooMany || cc.End().Kind != session.NotEnded
	})
	if cc.assembler.segmented != 0 {
		reply.Message, wrong = l.take(&cc.assembler, reply.Message, cc.messageLenMax, cc, &cc.receiving, func() bool { return ctx.Err() != nil })
		reply.Came = wrong == nil
	}
	switch {
	case wrong != nil:
		cc.spoil(wrong)
	case reply.TooMany:
		cc.spoil(&fault{codes.Internal, "the server has sent more than one message where the method has one"})
	case cc.End().Kind == session.NotEnded:
		cc.ending = statusOfContext(ctx.Err() == context.DeadlineExceeded)
		l.session.Cancel(&cc.Stream, uint16(cc.ending.Code()))
	}
	if reply.Message.Compressed {
		block, _ := cc.Headers()
		reply.Header = wire.DecodeMetadata(block, nil)
	}
	end, ending, over := cc.End(), cc.ending, l.life.reason()
	cc.assembler.drop(l.session)
	unused := cc.Unused() && cc.sending.wake == nil
	l.unlock()
	outcome := call.Outcome{Status: ending}
	if ending == nil {
		outcome = outcomeOf(&end, over)
	}
	if unused {
		cc.reuse()
	}
	return outcome, nil
}

// TakesObjects says what the server has said of a method that was called.
func (c *client) TakesObjects(method string) (fingerprint uint64, ok bool) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	return c.link.session.TakesObjects(method)
}

// takeOne takes the one message of a unary call that has come, if it is complete. The caller holds the lock.
func (l *link) takeOne(stream *session.Stream, a *assembler, lenMax uint32, reply *call.Reply) *fault {
	if short, ok := l.session.TakeShort(stream); ok {
		if uint64(len(short)) > uint64(lenMax) {
			return tooLong(uint32(len(short)), lenMax)
		}
		reply.KeepShort(short)
		return nil
	}
	message, got, wrong := a.next(l.session, stream, lenMax)
	if got {
		reply.Keep(message)
	}
	return wrong
}

// reuse keeps a call that nobody knows any more for the next.
func (c *clientCall) reuse() {
	c.Reuse()
	c.link, c.receiving, c.sending, c.assembler = nil, sleeper{}, sleeper{}, assembler{}
	c.closed, c.ending, c.watched, c.stop, c.timer = false, nil, false, nil, nil
	clientCalls.Put(c)
}

// serverCalls are kept for the next calls.
var serverCalls = sync.Pool{New: func() any { return new(serverCall) }}

// reuse keeps a call that nobody knows any more for the next.
func (c *serverCall) reuse() {
	c.Reuse()
	c.link, c.receiving, c.sending, c.assembler = nil, sleeper{}, sleeper{}, assembler{}
	c.finished, c.ctx, c.lazy, c.ending, c.left, c.reusable = false, nil, nil, nil, false, false
	serverCalls.Put(c)
}

// SessionContext is what the call's context descends from.
func (c *serverCall) SessionContext() context.Context { return c.link.host.parent }

// RecvUnary waits for the call's one message, and has lent be its context.
func (c *serverCall) RecvUnary(reply *call.Reply, lent *call.Context, parent context.Context) (lends bool, err error) {
	l := c.link
	l.mu.Lock()
	if lends = c.ctx == nil; lends {
		lent.Begin(&l.mu, parent)
		if c.ctx, c.lazy = lent, lent; c.over() {
			lent.End()
		}
	}
	var wrong *fault
	ready := func() bool {
		if !reply.Came && wrong == nil {
			wrong = l.takeOne(&c.Stream, &c.assembler, l.config.MessageLenMax, reply)
		}
		reply.TooMany = reply.Came && (c.HasChunk() || c.assembler.holds())
		return wrong != nil || reply.TooMany || c.HalfClosed() || c.over()
	}
	if !ready() {
		l.await(context.Background(), &c.receiving, ready)
	}
	if c.assembler.segmented != 0 {
		reply.Message, wrong = l.take(&c.assembler, reply.Message, l.config.MessageLenMax, c, &c.receiving, c.over)
		reply.Came = wrong == nil
	}
	switch {
	case wrong != nil:
		c.abort(status.New(wrong.code, wrong.text))
		err = c.ending.Err()
	case reply.TooMany:
		err = status.Error(codes.Internal, "the client has sent more than one message where the method has one")
	case !c.HalfClosed() || !reply.Came:
		if err = c.recvError(); err == io.EOF {
			err = status.Error(codes.Internal, "the client has sent no message where the method has one")
		}
	}
	c.assembler.drop(l.session)
	l.unlock()
	return lends, err
}

// FinishUnary ends the call, and lets go of it.
func (c *serverCall) FinishUnary(header metadata.MD, message *call.Message, short []byte, outcome *status.Status, trailer metadata.MD) error {
	l := c.link
	composed, has, err := l.composeReply(message, short)
	var block, trailers []byte
	if err == nil {
		block, err = headersBlock(c.link.answered(header))
	}
	if err == nil {
		trailers, err = trailersBlock(outcome, c.link.answered(trailer))
	}
	l.mu.Lock()
	err = c.finish(block, trailers, composed, has, err, outcome)
	c.leave()
	rings := l.rings.mapped() && l.push()
	c.KeepLent()
	// Its deadline's watch may be at work.
	c.reusable = c.cancel == nil && c.lazy != &c.own && c.End().Kind != session.NotEnded && c.Unused() &&
		c.receiving.wake == nil && c.sending.wake == nil
	l.mu.Unlock()
	if rings {
		l.bell.ring()
	}
	return err
}

// composeReply makes what is sent of a message, which may be short; has is false where there is none.
func (l *link) composeReply(message *call.Message, short []byte) (composed session.Message, has bool, err error) {
	switch {
	case short != nil:
		return session.Message{Lent: short}, true, nil
	case message == nil:
		return composed, false, nil
	case uint64(message.Data.Len()) > wire.MessageLenMax:
		return session.Message{Data: message.Data}, true, tooLongToSend(message.Data.Len())
	}
	return l.compose(*message), true, nil
}

func tooLongToSend(n int) error {
	return status.Errorf(codes.ResourceExhausted, "a message of %d bytes, where %d is the most", n, uint64(wire.MessageLenMax))
}
