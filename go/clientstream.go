package tollfree

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tollfree/tollfree/go/flat"
	"github.com/tollfree/tollfree/go/internal/buffers"
	"github.com/tollfree/tollfree/go/internal/call"
)

// newStream begins a call with streams, beneath the interceptors. objects, unless nil, says that messages may be objects, where nothing but the
// session has a part in them.
func (cc *ClientConn) newStream(ctx context.Context, desc *grpc.StreamDesc, method string, objects *ObjectMethod, options []grpc.CallOption) (*clientStream, error) {
	r, err := cc.newRequest(ctx, method, desc, options)
	if err != nil {
		endOptions(options, nil, err)
		return nil, err
	}
	cs := &clientStream{request: r, cancel: func() {}}
	cs.changed.L = &cs.mu
	_, cs.vt = r.info.codec.(directCodec)
	sessionOnly := cc.handler == nil && r.info.compressor == nil && protobufIsOurs && (cs.vt || r.info.codec == protobufCodec)
	cs.plain = sessionOnly && r.info.inPlace == nil
	if sessionOnly {
		cs.request.objects = objects
	}
	if !r.deadline.IsZero() {
		cs.request.context, cs.cancel = context.WithDeadline(ctx, r.deadline)
	}
	// A call with one request begins when that is there: both go out at once.
	if desc.ClientStreams {
		cs.mu.Lock()
		err := cs.beginLocked(false)
		cs.mu.Unlock()
		if err != nil {
			cs.finish(err, false)
			return nil, err
		}
	}
	cs.watch()
	return cs, nil
}

// A clientStream is a call with streams. One goroutine sends, another receives, and the call's context or the client may end
// it meanwhile. Whoever waits for the server's side holds "receiving", and alone ends attempts and begins others.
type clientStream struct {
	request  request
	cancel   context.CancelFunc
	sentLast bool // the sender's
	// plain says that nothing but the session has a part in messages, vt that vtprotobuf's methods are used; incoming is the receiver's.
	plain, vt bool
	incoming  call.Reply

	mu        sync.Mutex
	changed   sync.Cond
	attempt   *attempt // nil before the first
	log       sendLog
	answered  bool // the attempt has its header
	receiving bool
	replaying bool // another goroutine sends ops
	finished  bool
	reported  bool  // options and handlers have what a finished call has for them
	err       error // of the finished call; io.EOF where it is OK
	readable  bool  // the context has finished the call, and what had come can still be received, as in grpc
	unwatch   []func() bool
}

// watch has the call finish with its context and its client, also where nobody receives.
func (cs *clientStream) watch() {
	onContext := context.AfterFunc(cs.request.context, func() { cs.finish(asStatus(cs.request.context.Err()), false) })
	onClose := context.AfterFunc(cs.request.cc.context, func() { cs.finish(errClosing, false) })
	cs.mu.Lock()
	cs.unwatch = []func() bool{onContext, onClose}
	finished := cs.finished
	cs.mu.Unlock()
	if finished {
		onContext()
		onClose()
	}
}

// beginLocked makes attempts to begin the call, with the first of what is to be sent, until one succeeds. transparent says that
// no server has looked at the attempt before. An error is a status, and final.
func (cs *clientStream) beginLocked(transparent bool) error {
	for {
		a := new(attempt)
		moved, err := cs.request.begin(a, transparent, cs.log.first())
		if err == nil {
			cs.attempt = a
			cs.replayLocked(a)
			return nil
		}
		if !moved || !cs.request.moveOn() {
			return err
		}
		transparent = true
	}
}

// replayLocked sends again what the server has not got with the call's beginning. That may wait for the server, which may wait
// for the receiver: so it has a goroutine of its own, and the sender waits for it.
func (cs *clientStream) replayLocked(a *attempt) {
	ops := cs.log.rest()
	if len(ops) == 0 {
		return
	}
	cs.replaying = true
	go func() {
		var err error
		for _, op := range ops {
			if err != nil {
				op.free()
			} else if err = op.send(a); err != nil && err != io.EOF {
				a.call.Cancel(status.Code(err))
			}
		}
		cs.mu.Lock()
		cs.replaying = false
		cs.changed.Broadcast()
		cs.mu.Unlock()
	}()
}

func (cs *clientStream) SendMsg(m any) error {
	if cs.sentLast {
		return status.Error(codes.Internal, "tollfree: SendMsg called after CloseSend")
	}
	last := !cs.request.desc.ClientStreams
	cs.sentLast = last
	if message, is := m.(proto.Message); is && cs.plain && !last {
		if a, sender := cs.settled(); sender != nil {
			return cs.sendNext(a, sender, message)
		}
		return cs.sendKept(message)
	}
	info := &cs.request.info
	out, err := encodeMessage(info.codec, info.compressor, info.sendMax, m, new([1]mem.Buffer), cs.request.cc.options.pool)
	if err != nil {
		cs.finish(err, false)
		return err
	}
	size := out.Data.Len()
	op := sendOp{message: &out.Message, last: last}
	a, err := cs.send(op, size)
	if err != nil {
		return cs.sendFailed(err, last)
	}
	a.sent(m, out, size)
	return nil
}

// sendFailed is what a sender gets for an error of send's.
func (cs *clientStream) sendFailed(err error, last bool) error {
	if err == io.EOF {
		return cs.sendEnd(last)
	}
	cs.finish(err, false)
	return err
}

// settled is the attempt, where no other can follow and nothing is kept of what is sent; sender is nil otherwise.
func (cs *clientStream) settled() (a *attempt, sender call.ShortClientSender) {
	cs.heedContext(false)
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.attempt == nil || !cs.log.committed || cs.replaying || cs.finished {
		return nil, nil
	}
	sender, _ = cs.attempt.call.(call.ShortClientSender)
	return cs.attempt, sender
}

// sendNext sends a message in which nothing but the session has a part.
func (cs *clientStream) sendNext(a *attempt, sender call.ShortClientSender, m proto.Message) error {
	room := buffers.Small(buffers.SmallMax)
	defer buffers.GiveBack(room)
	e, err := encodeProto(m, cs.vt, cs.request.info.sendMax, *room, cs.request.cc.options.pool)
	if err != nil {
		cs.finish(err, false)
		return err
	}
	if e.short != nil {
		err = sender.SendShort(e.short, false)
	} else {
		err = a.call.Send(e.whole, false)
	}
	if err == nil {
		return nil
	}
	if _, err = cs.afterEnd(a); err == nil {
		err = io.EOF
	}
	return err
}

// sendKept sends a message in which nothing but the session has a part, and keeps it for other attempts.
func (cs *clientStream) sendKept(m proto.Message) error {
	room := buffers.Small(buffers.SmallMax)
	defer buffers.GiveBack(room)
	e, err := encodeProto(m, cs.vt, cs.request.info.sendMax, *room, cs.request.cc.options.pool)
	if err != nil {
		cs.finish(err, false)
		return err
	}
	op, size := sendOp{short: e.short}, len(e.short)
	if e.short == nil {
		op.message, size = &e.whole, e.whole.Data.Len()
	}
	if _, err := cs.send(op, size); err != nil {
		return cs.sendFailed(err, false)
	}
	return nil
}

// sendObject sends a message as an object, where the server takes it.
func (cs *clientStream) sendObject(o flat.Object) error {
	if cs.sentLast {
		return status.Error(codes.Internal, "tollfree: Send called after CloseSend")
	}
	last := !cs.request.desc.ClientStreams
	cs.sentLast = last
	out, err := newOutgoingObject(o, cs.request.objects, cs.request.info.sendMax, cs.request.cc.options.pool)
	if err == nil {
		_, err = cs.send(sendOp{object: out, last: last}, len(o.Bytes()))
	}
	if err == nil {
		return nil
	}
	return cs.sendFailed(err, last)
}

// sendEnd is what a sender gets whose call has ended. Generated code expects none where there is one request: RecvMsg has it.
func (cs *clientStream) sendEnd(last bool) error {
	if last {
		return nil
	}
	return io.EOF
}

// send sends op in the present attempt, and in others where that ends unprocessed. It frees op. io.EOF says that the call has
// ended.
func (cs *clientStream) send(op sendOp, size int) (*attempt, error) {
	cs.heedContext(false)
	cs.mu.Lock()
	for cs.replaying && !cs.finished {
		cs.changed.Wait()
	}
	if cs.finished {
		cs.mu.Unlock()
		op.free()
		return nil, io.EOF
	}
	kept := cs.log.keep(op, size, cs.request.info.retryBuffer)
	if cs.attempt == nil {
		defer cs.mu.Unlock()
		if !kept {
			cs.log.keepOnce(op)
			err := cs.beginLocked(false)
			cs.log.commit()
			return cs.attempt, err
		}
		op.free()
		err := cs.beginLocked(false)
		return cs.attempt, err
	}
	a := cs.attempt
	cs.mu.Unlock()
	err := op.send(a)
	switch {
	case err == nil:
		return a, nil
	case err != io.EOF && op.object != nil:
		return nil, err
	}
	return cs.afterEnd(a)
}

// afterEnd finds out, for the sender, what has become of the call after attempt a has ended: another attempt has got all that
// was sent, or io.EOF.
func (cs *clientStream) afterEnd(a *attempt) (*attempt, error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for {
		switch {
		case cs.finished:
			return nil, io.EOF
		case cs.attempt != a:
			return cs.attempt, nil
		case cs.answered:
			return nil, io.EOF
		case cs.receiving:
			cs.changed.Wait()
			continue
		}
		cs.receiving = true
		cs.mu.Unlock()
		cs.settle(a)
		cs.mu.Lock()
		cs.receiving = false
		cs.changed.Broadcast()
	}
}

func (cs *clientStream) CloseSend() error {
	if cs.sentLast {
		return nil
	}
	cs.sentLast = true
	// RecvMsg has the error of a call that has ended.
	if _, err := cs.send(sendOp{last: true}, 0); err != nil && err != io.EOF {
		cs.finish(err, false)
	}
	return nil
}

// receive takes "receiving", and has the call begin where nothing was sent yet. It returns false where the call is over.
func (cs *clientStream) receive() bool {
	cs.mu.Lock()
	for cs.receiving && !cs.finished {
		cs.changed.Wait()
	}
	if cs.finished {
		cs.mu.Unlock()
		return false
	}
	cs.receiving = true
	var err error
	if cs.attempt == nil {
		err = cs.beginLocked(false)
	}
	cs.mu.Unlock()
	if err != nil {
		cs.finish(err, true)
	}
	if err != nil || cs.heedContext(true) {
		cs.release()
		return false
	}
	return true
}

// receiveMore takes "receiving" in a call of which something has come, and gives its attempt; nil: there is more to be done before.
func (cs *clientStream) receiveMore() *attempt {
	cs.mu.Lock()
	if cs.receiving || cs.finished || !cs.answered {
		cs.mu.Unlock()
		return nil
	}
	cs.receiving = true
	a := cs.attempt
	cs.mu.Unlock()
	if cs.heedContext(true) {
		cs.release()
		return nil
	}
	return a
}

// receiveLeft takes "receiving" in a call that is finished and readable.
func (cs *clientStream) receiveLeft() bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if !cs.readable {
		return false
	}
	for cs.receiving {
		cs.changed.Wait()
	}
	cs.receiving = true
	return true
}

// heedContext finishes a call whose context is done, and is true then: nothing that comes meanwhile is to hide it.
func (cs *clientStream) heedContext(holding bool) bool {
	err := cs.request.context.Err()
	if err != nil {
		cs.finish(asStatus(err), holding)
	}
	return err != nil
}

func (cs *clientStream) release() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.receiving = false
	cs.changed.Broadcast()
}

// header waits for the header, through attempts. It returns nil where the call has ended without, or is finished and not readable.
// The caller has "receiving".
func (cs *clientStream) header() *attempt {
	for {
		cs.mu.Lock()
		a, finished, readable := cs.attempt, cs.finished, cs.readable
		cs.mu.Unlock()
		switch {
		case readable && a.awaitHeader():
			return a
		case finished:
			return nil
		case cs.settle(a):
			return a
		}
	}
}

// settle waits for the header of attempt a, and is true where it came. Otherwise the call is finished, or has another attempt.
// The caller has "receiving".
func (cs *clientStream) settle(a *attempt) bool {
	if !a.awaitHeader() {
		cs.another(a)
		return false
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if !cs.answered {
		cs.answered = true
		cs.log.commit()
		cs.changed.Broadcast()
	}
	return true
}

// another begins another attempt after one that has ended without an answer, or finishes the call. The caller has "receiving".
func (cs *clientStream) another(a *attempt) {
	if message, err := a.call.Recv(); err == nil {
		message.Data.Free()
		a.call.Cancel(codes.Internal)
		cs.finish(status.Error(codes.Internal, "tollfree: a message came without a header"), true)
		return
	}
	outcome := a.call.Outcome()
	a.unprocessed = outcome.Unprocessed
	err := cs.request.outcomeError(outcome)
	if err == nil {
		cs.finish(cs.noMessage(), true)
		return
	}
	if cs.final() {
		cs.finish(err, true)
		return
	}
	transparent, again := cs.request.again(a, outcome)
	if !again || cs.final() {
		cs.finish(err, true)
		return
	}
	a.end(err)
	if err := cs.beginAgain(transparent, err); err != nil {
		cs.finish(err, true)
	}
}

// final is true where no other attempt may follow.
func (cs *clientStream) final() bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.log.committed || cs.finished
}

// beginAgain begins another attempt after one that has ended with last. An error is the call's.
func (cs *clientStream) beginAgain(transparent bool, last error) error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	defer cs.changed.Broadcast()
	for cs.replaying {
		cs.changed.Wait() // It ends at once: its call has ended.
	}
	if cs.log.committed || cs.finished {
		return last // The sender has sent more meanwhile than is kept, or somebody has ended the call.
	}
	return cs.beginLocked(transparent)
}

// noMessage is the end of a call that was OK without a message.
func (cs *clientStream) noMessage() error {
	if cs.request.desc.ServerStreams {
		return io.EOF
	}
	return status.Error(codes.Internal, "tollfree: the server has sent no message where the method has one")
}

// receivedAll finishes a call that brings no more messages, and is what its receiver gets.
func (cs *clientStream) receivedAll(a *attempt, err error) error {
	err = cs.end(a, err)
	if err == io.EOF {
		err = cs.noMessage()
	}
	if finished := cs.finish(err, true); err != io.EOF {
		return finished
	}
	// The server had finished the call before the context was done.
	return err
}

// receiveNext is RecvMsg for a stream of messages in which nothing but the session has a part. The caller has "receiving".
func (cs *clientStream) receiveNext(a *attempt, next call.ReplyReceiver, m proto.Message) error {
	if err := next.ReceiveNext(&cs.incoming); err != nil {
		return cs.receivedAll(a, err)
	}
	var err error
	if cs.incoming.Message.Compressed {
		message := cs.incoming.Message
		cs.incoming.Message = call.Message{}
		err = a.decode(message, m)
	} else if err = decodeProto(&cs.incoming, m, cs.vt, false, cs.request.info.receiveMax); err != nil {
		a.call.Cancel(status.Code(err))
	}
	cs.incoming.Clear()
	if err != nil {
		return cs.finish(err, true)
	}
	return nil
}

// RecvMsg returns the call's end once options have what they ask for, whoever has ended the call.
func (cs *clientStream) RecvMsg(m any) error {
	err := cs.recvMsg(m)
	if err != nil {
		cs.awaitReport()
	}
	return err
}

func (cs *clientStream) recvObject(y flat.Type) (flat.Object, error) {
	into := incomingObject{kind: y}
	err := cs.RecvMsg(&into)
	return into.object, err
}

// awaitReport waits until a finished call has been reported. The caller does not have "receiving".
func (cs *clientStream) awaitReport() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for cs.finished && !cs.reported {
		cs.changed.Wait()
	}
}

func (cs *clientStream) recvMsg(m any) error {
	a := cs.receiveMore()
	if a == nil {
		if !cs.receive() && !cs.receiveLeft() {
			return cs.result()
		}
		if a = cs.header(); a == nil {
			cs.release()
			return cs.result()
		}
	}
	defer cs.release()
	if into, is := m.(proto.Message); is && cs.plain && cs.request.desc.ServerStreams {
		if next, is := a.call.(call.ReplyReceiver); is {
			return cs.receiveNext(a, next, into)
		}
	}
	message, err := a.call.Recv()
	if err != nil {
		return cs.receivedAll(a, err)
	}
	if err := a.decode(message, m); err != nil {
		return cs.finish(err, true)
	}
	if cs.request.desc.ServerStreams {
		return nil
	}
	extra, err := a.call.Recv()
	if err == nil {
		extra.Data.Free()
		err = status.Error(codes.Internal, "tollfree: the server has sent more than one message where the method has one")
	} else {
		err = cs.end(a, err)
	}
	if err = cs.finish(err, true); err == io.EOF {
		return nil
	}
	return err
}

// end is the error of a call whose Recv returned err: io.EOF where it was OK.
func (cs *clientStream) end(a *attempt, err error) error {
	if err != io.EOF {
		return asStatus(err)
	}
	if err := cs.request.outcomeError(a.call.Outcome()); err != nil {
		return err
	}
	return io.EOF
}

func (cs *clientStream) result() error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.err
}

// finish ends the call, once, with a status or io.EOF, and returns the error that it has ended with. holding says that the
// caller has "receiving".
func (cs *clientStream) finish(err error, holding bool) error {
	cs.mu.Lock()
	if cs.finished {
		defer cs.mu.Unlock()
		return cs.err
	}
	a, unwatch := cs.attempt, cs.unwatch
	cs.finished, cs.err = true, err
	// The reader of a call with one answer gets the error and nothing else.
	cs.readable = a != nil && cs.request.desc.ServerStreams && cs.request.context.Err() != nil
	cs.log.commit()
	cs.changed.Broadcast()
	cs.mu.Unlock()
	for _, stop := range unwatch {
		stop()
	}
	if a != nil && err != io.EOF {
		a.call.Cancel(status.Code(err)) // Harmless where the call has ended.
	}
	cs.cancel()
	if !holding {
		cs.mu.Lock()
		for cs.receiving {
			cs.changed.Wait() // The receiver comes back: its call has ended.
		}
		cs.receiving = true
		a = cs.attempt
		cs.mu.Unlock()
		defer cs.release()
	}
	if a != nil && err != io.EOF && !cs.readable {
		a.discard()
	}
	if err == io.EOF {
		err = nil
	}
	if a != nil {
		a.end(err)
	}
	cs.request.callEnd(a, err)
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.reported = true
	cs.changed.Broadcast()
	return cs.err
}

func (cs *clientStream) Header() (metadata.MD, error) {
	cs.mu.Lock()
	for cs.receiving && !cs.answered && !cs.finished {
		cs.changed.Wait()
	}
	if cs.answered {
		defer cs.mu.Unlock()
		return visibleHeader(cs.attempt.header), nil
	}
	cs.mu.Unlock()
	if !cs.receive() && !cs.receiveLeft() {
		return nil, nil // RecvMsg has the error, as in grpc.
	}
	defer cs.release()
	if a := cs.header(); a != nil {
		return visibleHeader(a.header), nil
	}
	return nil, nil
}

func (cs *clientStream) Trailer() metadata.MD {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if !cs.finished || cs.attempt == nil || cs.attempt.call == nil {
		return nil
	}
	code := codes.OK
	if cs.err != io.EOF {
		code = status.Code(cs.err)
	}
	outcome := cs.attempt.call.Outcome()
	if outcome.Status.Code() != code {
		return nil // The context has ended the call while the answer came: who gets one of them gets none of the other.
	}
	return outcome.Trailer.Copy()
}

// Context has the peer, once the call has begun. It commits the call to its present attempt, as in grpc.
func (cs *clientStream) Context() context.Context {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.attempt == nil {
		return cs.request.context
	}
	cs.log.commit()
	return peer.NewContext(cs.attempt.context, cs.attempt.session.peer)
}
