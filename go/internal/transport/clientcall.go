package transport

import (
	"context"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/session"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// clientCall is one call of a client's.
type clientCall struct {
	session.Stream
	link               *link
	receiving, sending sleeper
	assembler          assembler
	messageLenMax      uint32
	// closed says that no more messages are to be sent.
	closed bool
	// ending, if not nil, is how this side has ended the call.
	ending *status.Status
	// watched says that there is, or was, a watch. stop and timer, where set, end the watch over context and deadline.
	watched bool
	stop    func() bool
	timer   *time.Timer
}

// clientCalls are kept for the next calls.
var clientCalls = sync.Pool{New: func() any { return new(clientCall) }}

func newClientCall(l *link, start *call.Start, last bool) *clientCall {
	c := clientCalls.Get().(*clientCall)
	c.link, c.closed, c.messageLenMax = l, last, start.MessageLenMax
	if c.messageLenMax == 0 {
		c.messageLenMax = l.config.MessageLenMax
	}
	c.assembler.takesObjects = start.TakesObjects
	c.SetOwner(c)
	return c
}

// News wakes reader and sender. The lock is held.
func (c *clientCall) News() {
	c.link.reading.rouse(&c.receiving)
	c.link.reading.rouse(&c.sending)
}

// watch has the call end with its context, or at its deadline where the context has not the same.
func (c *clientCall) watch(ctx context.Context, deadline time.Time) {
	var stop func() bool
	var timer *time.Timer
	if ctx.Done() != nil {
		stop = context.AfterFunc(ctx, func() {
			if ctx.Err() == context.DeadlineExceeded {
				c.endWith(statusOfContext(true))
			} else {
				c.endWith(statusOfContext(false))
			}
		})
	}
	if at, ok := ctx.Deadline(); !deadline.IsZero() && !(ok && !at.After(deadline)) {
		timer = time.AfterFunc(time.Until(deadline), func() { c.endWith(statusOfContext(true)) })
	}
	if stop == nil && timer == nil {
		return
	}
	c.link.mu.Lock()
	c.watched, c.stop, c.timer = true, stop, timer
	if c.End().Kind != session.NotEnded {
		c.unwatch()
	}
	c.link.mu.Unlock()
}

// unwatch gives the watch up. The caller holds the lock.
func (c *clientCall) unwatch() {
	if c.stop != nil {
		c.stop()
		c.stop = nil
	}
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

// endWith ends the call from this side, if it has not ended. What had come can still be read, as in grpc.
func (c *clientCall) endWith(outcome *status.Status) {
	c.link.mu.Lock()
	if c.End().Kind == session.NotEnded {
		c.ending = outcome
		c.link.session.CancelReadable(&c.Stream, uint16(outcome.Code()))
		c.unwatch()
	}
	c.link.unlock()
}

// Send sends a message, when those before leave room for it.
func (c *clientCall) Send(message call.Message, last bool) error {
	if uint64(message.Data.Len()) > wire.MessageLenMax {
		message.Data.Free()
		return tooLongToSend(message.Data.Len())
	}
	l := c.link
	composed := l.compose(message)
	l.mu.Lock()
	l.await(context.Background(), &c.sending, func() bool { return c.End().Kind != session.NotEnded || c.MayAdd() })
	var err error
	switch {
	case c.End().Kind != session.NotEnded:
		err = io.EOF
	case c.closed:
		err = status.Error(codes.Internal, "a message can't be sent after the last")
	}
	if err != nil {
		l.unlock()
		composed.Free()
		return err
	}
	c.closed = last
	l.session.Send(&c.Stream, composed, last)
	l.unlockAfterSending(&c.Stream, last || c.tookWaited())
	return nil
}

// SendShort sends a message of buffers.SmallMax bytes at most, which the caller may change afterwards.
func (c *clientCall) SendShort(message []byte, last bool) error {
	l := c.link
	l.mu.Lock()
	if !c.MayAdd() {
		l.await(context.Background(), &c.sending, func() bool { return c.End().Kind != session.NotEnded || c.MayAdd() })
	}
	switch {
	case c.End().Kind != session.NotEnded:
		l.unlock()
		return io.EOF
	case c.closed:
		l.unlock()
		return status.Error(codes.Internal, "a message can't be sent after the last")
	}
	c.closed = last
	l.session.SendShort(&c.Stream, message, last)
	l.unlockAfterSending(&c.Stream, last || c.tookWaited())
	return nil
}

// tookWaited says whether a goroutine of the call has waited since it was called last. The caller holds the lock.
func (c *clientCall) tookWaited() bool { return c.receiving.tookWaited() || c.sending.tookWaited() }

func (c *clientCall) CloseSend() error {
	c.link.mu.Lock()
	if c.End().Kind == session.NotEnded && !c.closed {
		c.closed = true
		c.link.session.HalfClose(&c.Stream)
	}
	c.link.unlock()
	return nil
}

func (c *clientCall) Header() (header metadata.MD, ok bool) {
	l := c.link
	l.mu.Lock()
	var block []byte
	l.await(context.Background(), &c.receiving, func() bool {
		block, ok = c.Headers()
		return ok || c.End().Kind != session.NotEnded
	})
	l.unlock()
	if !ok {
		return nil, false
	}
	return wire.DecodeMetadata(block, nil), true
}

func (c *clientCall) Recv() (message call.Message, err error) {
	l := c.link
	l.mu.Lock()
	var got bool
	var wrong *fault
	l.await(context.Background(), &c.receiving, func() bool {
		message, got, wrong = c.assembler.next(l.session, &c.Stream, c.messageLenMax)
		return got || wrong != nil || c.End().Kind != session.NotEnded
	})
	if got && c.assembler.segmented != 0 {
		message, wrong = l.take(&c.assembler, message, c.messageLenMax, c, &c.receiving, func() bool { return c.ending != nil })
		got = wrong == nil
	}
	if wrong != nil {
		c.spoil(wrong)
	}
	if c.End().Kind != session.NotEnded {
		c.unwatch()
	}
	if !got {
		c.assembler.drop(l.session)
		l.unlock()
		return call.Message{}, io.EOF
	}
	l.unlockAfterTaking()
	return message, nil
}

// ReceiveNext waits for the next message. It returns io.EOF at the end, as Recv does.
func (c *clientCall) ReceiveNext(reply *call.Reply) error {
	reply.Clear()
	l := c.link
	l.mu.Lock()
	var wrong *fault
	ready := func() bool {
		reply.Came, wrong = c.assembler.nextReply(l.session, &c.Stream, c.messageLenMax, reply)
		return reply.Came || wrong != nil || c.End().Kind != session.NotEnded
	}
	if !ready() {
		l.await(context.Background(), &c.receiving, ready)
	}
	if reply.Came && c.assembler.segmented != 0 {
		reply.Message, wrong = l.take(&c.assembler, reply.Message, c.messageLenMax, c, &c.receiving, func() bool { return c.ending != nil })
		reply.Came = wrong == nil
	}
	if wrong != nil {
		c.spoil(wrong)
	}
	if c.End().Kind != session.NotEnded {
		c.unwatch()
	}
	if !reply.Came {
		c.assembler.drop(l.session)
		l.unlock()
		return io.EOF
	}
	l.unlockAfterTaking()
	return nil
}

// spoil ends the call for a message that can't be taken, also where the server has said its last word. The caller holds the
// lock.
func (c *clientCall) spoil(wrong *fault) {
	c.ending = status.New(wrong.code, wrong.text)
	c.link.session.Cancel(&c.Stream, uint16(wrong.code))
}

// Outcome is how the call has ended; it waits until it has.
func (c *clientCall) Outcome() call.Outcome {
	l := c.link
	l.mu.Lock()
	l.await(context.Background(), &c.receiving, func() bool { return c.End().Kind != session.NotEnded })
	c.unwatch()
	end, ending, over := c.End(), c.ending, l.life.reason()
	l.unlock()
	if ending != nil {
		return call.Outcome{Status: ending}
	}
	return outcomeOf(&end, over)
}

// Release keeps a call that has ended, and whose outcome is known, for the next. The caller uses it no more.
func (c *clientCall) Release() {
	c.link.mu.Lock()
	// A watch may be at work, and a message unread.
	unused := c.End().Kind != session.NotEnded && !c.watched && c.Unused() && c.receiving.wake == nil && c.sending.wake == nil
	if unused {
		c.assembler.drop(c.link.session)
	}
	c.link.mu.Unlock()
	if unused {
		c.reuse()
	}
}

func (c *clientCall) Cancel(code codes.Code) {
	c.endWith(status.New(code, "the call was cancelled"))
}
