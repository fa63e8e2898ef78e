package transport

import (
	"context"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/session"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// serverCall is one call of a server's.
type serverCall struct {
	session.Stream
	link               *link
	receiving, sending sleeper
	assembler          assembler
	finished           bool
	// ctx is lazy when it is asked for, unless the call has a deadline: then cancel ends it.
	ctx    context.Context
	cancel context.CancelFunc
	lazy   *call.Context
	own    call.Context
	// ending, if not nil, is why a reader gets an error.
	ending *status.Status
	// left says that the handler needs the call no more, reusable that nobody knows it any more then.
	left, reusable bool
}

func newServerCall(l *link) *serverCall {
	c := serverCalls.Get().(*serverCall)
	c.link = l
	c.SetOwner(c)
	return c
}

// News wakes reader and sender, and cancels the context of a call that has ended. The lock is held.
func (c *serverCall) News() {
	c.link.reading.rouse(&c.receiving)
	c.link.reading.rouse(&c.sending)
	if c.End().Kind != session.NotEnded {
		c.cancelContext()
	}
}

// runOn says that the call's handler runs on the link's goroutine of a number.
func (c *serverCall) runOn(loop int) {
	c.receiving.runOn(loop)
	c.sending.runOn(loop)
}

// begin gives a call its deadline; false: that has passed, and the call is answered.
func (c *serverCall) begin() bool {
	if objects := c.link.config.Objects; objects != nil {
		_, c.assembler.takesObjects = objects(c.Path())
	}
	if c.DeadlineNS() == 0 {
		return true
	}
	left := localDeadline(c.DeadlineNS(), c.link.shift)
	c.link.mu.Lock()
	defer c.link.unlock()
	if left <= 0 {
		c.abort(statusOfContext(true))
		return false
	}
	c.ctx, c.cancel = context.WithTimeout(c.link.host.parent, left)
	if c.End().Kind != session.NotEnded {
		c.cancel()
		return true
	}
	cancel := c.cancel
	stop := context.AfterFunc(c.ctx, func() {
		if c.ctx.Err() == context.DeadlineExceeded {
			c.link.mu.Lock()
			c.abort(statusOfContext(true))
			c.link.unlock()
		}
	})
	c.cancel = func() {
		stop()
		cancel()
	}
	return true
}

// abort ends the call at once, unless it has ended or all is said. The caller holds the lock.
func (c *serverCall) abort(outcome *status.Status) {
	if c.End().Kind != session.NotEnded || c.ending != nil {
		return
	}
	c.ending = outcome
	c.finished = true
	block, err := trailersBlock(outcome, nil)
	if err != nil || c.link.session.CheckHeaders(block, c.link.RecordLenMax()) != nil {
		block = nil
	}
	c.link.session.Abort(&c.Stream, uint16(outcome.Code()), block)
	// The last word may have to wait for room; the handler has not.
	c.News()
	c.cancelContext()
}

func (c *serverCall) Context() context.Context {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if c.ctx == nil {
		c.lazy = &c.own
		c.lazy.Begin(&c.link.mu, c.link.host.parent)
		if c.over() {
			c.lazy.End()
		}
		c.ctx = c.lazy
	}
	return c.ctx
}

// Rebase has the call's context, which nobody has used yet, descend from one that descends from the session's; false: it can't, since
// the call has a deadline.
func (c *serverCall) Rebase(parent context.Context) bool {
	if c.ctx != &c.own {
		return false
	}
	c.own.Rebase(parent)
	return true
}

// cancelContext ends the call's context, if there is one. The caller holds the lock.
func (c *serverCall) cancelContext() {
	if c.cancel != nil {
		c.cancel()
	}
	if c.lazy != nil {
		c.lazy.End()
	}
}

func (c *serverCall) Method() string  { return c.Path() }
func (c *serverCall) Peer() call.Peer { return c.link.peer }

// contentType is the header of this name where the client sends none. Nobody changes it.
var contentType = []string{"application/grpc"}

// Header are the request's, with what the protocol says otherwise (spec/wire.md, section 19) put back.
func (c *serverCall) Header() metadata.MD {
	block, _ := c.Headers()
	return c.link.headers.of(block, c.decodeHeader)
}

func (c *serverCall) decodeHeader(block []byte) metadata.MD {
	header := wire.DecodeMetadata(block, nil)
	if header["content-type"] == nil {
		header["content-type"] = contentType
	}
	if header["user-agent"] == nil {
		header["user-agent"] = c.link.agent
	}
	return header
}

func (c *serverCall) Recv() (message call.Message, err error) {
	l := c.link
	l.mu.Lock()
	var got bool
	var wrong *fault
	l.await(context.Background(), &c.receiving, func() bool {
		message, got, wrong = c.assembler.next(l.session, &c.Stream, l.config.MessageLenMax)
		return got || wrong != nil || c.HalfClosed() || c.over()
	})
	if got && c.assembler.segmented != 0 {
		message, wrong = l.take(&c.assembler, message, l.config.MessageLenMax, c, &c.receiving, c.over)
		got = wrong == nil
	}
	if wrong != nil {
		c.abort(status.New(wrong.code, wrong.text))
	}
	if !got {
		c.assembler.drop(l.session)
		err = c.recvError()
		l.unlock()
		return message, err
	}
	l.unlockAfterTaking()
	return message, nil
}

// ReceiveNext waits for the next message. Its errors are Recv's.
func (c *serverCall) ReceiveNext(reply *call.Reply) (err error) {
	reply.Clear()
	l := c.link
	l.mu.Lock()
	var wrong *fault
	ready := func() bool {
		reply.Came, wrong = c.assembler.nextReply(l.session, &c.Stream, l.config.MessageLenMax, reply)
		return reply.Came || wrong != nil || c.HalfClosed() || c.over()
	}
	if !ready() {
		l.await(context.Background(), &c.receiving, ready)
	}
	if reply.Came && c.assembler.segmented != 0 {
		reply.Message, wrong = l.take(&c.assembler, reply.Message, l.config.MessageLenMax, c, &c.receiving, c.over)
		reply.Came = wrong == nil
	}
	if wrong != nil {
		c.abort(status.New(wrong.code, wrong.text))
	}
	if !reply.Came {
		c.assembler.drop(l.session)
		err = c.recvError()
		l.unlock()
		return err
	}
	l.unlockAfterTaking()
	return nil
}

// recvError is what a reader gets who has got all. The caller holds the lock.
func (c *serverCall) recvError() error {
	end := c.End()
	switch {
	case c.ending != nil:
		return c.ending.Err()
	case c.HalfClosed():
		return io.EOF
	case end.Kind == session.EndSession:
		return status.Error(codes.Unavailable, overText(c.link.life.reason()))
	case end.Kind == session.EndCancelled && end.Code == uint16(codes.DeadlineExceeded):
		return statusOfContext(true).Err()
	case end.Kind == session.EndCancelled:
		return status.Error(codes.Canceled, "the client has cancelled the call")
	}
	return status.Error(codes.Internal, "the call has been finished: there is nothing more to receive")
}

// sendError is what a sender gets whose call has ended. The caller holds the lock.
func (c *serverCall) sendError() error {
	if c.ending != nil {
		return c.ending.Err()
	}
	switch c.End().Kind {
	case session.NotEnded, session.EndSaid:
		return status.Error(codes.Internal, "the call has been finished: nothing more can be sent")
	case session.EndSession:
		return status.Error(codes.Unavailable, overText(c.link.life.reason()))
	}
	return status.Error(codes.Canceled, "the client has cancelled the call")
}

func (c *serverCall) over() bool { return c.finished || c.End().Kind != session.NotEnded }

func (c *serverCall) SendHeader(header metadata.MD) error {
	block, err := headersBlock(c.link.answered(header))
	if err != nil {
		return err
	}
	c.link.mu.Lock()
	defer c.link.unlock()
	if c.over() {
		return c.sendError()
	}
	return c.sayHeaders(block)
}

// sayHeaders has headers sent. The caller holds the lock.
func (c *serverCall) sayHeaders(block []byte) error {
	if c.SaidHeaders() {
		return status.Error(codes.Internal, "headers have been sent already")
	}
	if err := c.link.session.CheckHeaders(block, c.link.RecordLenMax()); err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	c.link.session.SendHeaders(&c.Stream, block)
	return nil
}

func (c *serverCall) Send(message call.Message) error {
	if uint64(message.Data.Len()) > wire.MessageLenMax {
		message.Data.Free()
		return tooLongToSend(message.Data.Len())
	}
	l := c.link
	composed := l.compose(message)
	l.mu.Lock()
	l.await(context.Background(), &c.sending, func() bool { return c.over() || c.MayAdd() })
	var err error
	if c.over() {
		err = c.sendError()
	} else if !c.SaidHeaders() {
		err = c.sayHeaders(nil)
	}
	if err != nil {
		l.unlock()
		composed.Free()
		return err
	}
	l.session.Send(&c.Stream, composed, false)
	l.unlockAfterSending(&c.Stream, c.receiving.tookWaited() || c.sending.tookWaited())
	return nil
}

// SendShort sends a message of buffers.SmallMax bytes at most, which the caller may change afterwards.
func (c *serverCall) SendShort(message []byte) error {
	l := c.link
	l.mu.Lock()
	if !c.MayAdd() {
		l.await(context.Background(), &c.sending, func() bool { return c.over() || c.MayAdd() })
	}
	var err error
	if c.over() {
		err = c.sendError()
	} else if !c.SaidHeaders() {
		err = c.sayHeaders(nil)
	}
	if err != nil {
		l.unlock()
		return err
	}
	l.session.SendShort(&c.Stream, message, false)
	l.unlockAfterSending(&c.Stream, c.receiving.tookWaited() || c.sending.tookWaited())
	return nil
}

// Finish ends the call; it waits for nothing.
func (c *serverCall) Finish(header metadata.MD, message *call.Message, outcome *status.Status, trailer metadata.MD) error {
	l := c.link
	composed, has, err := l.composeReply(message, nil)
	var block, trailers []byte
	if err == nil {
		block, err = headersBlock(c.link.answered(header))
	}
	if err == nil {
		trailers, err = trailersBlock(outcome, c.link.answered(trailer))
	}
	l.mu.Lock()
	defer l.unlock()
	return c.finish(block, trailers, composed, has, err, outcome)
}

// finish ends the call, by blocks and a message, if it has one; or with an error that came before. The caller holds the lock.
func (c *serverCall) finish(block, trailers []byte, message session.Message, has bool, err error, outcome *status.Status) error {
	l := c.link
	if c.over() {
		message.Free()
		return c.sendError()
	}
	if err == nil {
		err = l.session.CheckHeaders(trailers, l.RecordLenMax())
	}
	if err == nil && (has || len(block) > 0) && !c.SaidHeaders() {
		err = c.sayHeaders(block)
	}
	if err != nil {
		message.Free()
		c.abort(status.New(codes.ResourceExhausted, "the answer can't be sent: "+status.Convert(err).Message()))
		return err
	}
	c.finished = true
	if has {
		l.session.Send(&c.Stream, message, false)
	}
	l.session.Finish(&c.Stream, uint16(outcome.Code()), trailers)
	c.cancelContext()
	return nil
}

// release lets go of a call whose handler has returned. What of the answer waits for room is still sent.
func (c *serverCall) release() {
	if c.left {
		if c.reusable {
			c.reuse()
		}
		return
	}
	c.link.mu.Lock()
	c.leave()
	c.link.unlock()
}

// leave ends what the handler has not ended. The caller holds the lock.
func (c *serverCall) leave() {
	c.left = true
	if !c.over() {
		outcome := status.New(codes.Internal, "the handler returned without an answer")
		if c.ctx != nil && c.ctx.Err() == context.DeadlineExceeded {
			outcome = statusOfContext(true)
		}
		c.abort(outcome)
	}
	c.cancelContext()
	c.assembler.drop(c.link.session)
	c.link.session.Release(&c.Stream)
}
