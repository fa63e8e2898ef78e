package tollfree

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
)

var statusOK = status.New(codes.OK, "")

// A unaryCall is in one piece, since its parts live as long.
type unaryCall struct {
	request request
	attempt attempt
	message call.Message
	room    [1]mem.Buffer
}

// unaryCalls are kept for the next calls.
var unaryCalls = sync.Pool{New: func() any { return new(unaryCall) }}

// invoke makes a unary call, beneath the interceptors.
func (cc *ClientConn) invoke(ctx context.Context, method string, args, reply any, options []grpc.CallOption) (err error) {
	u := unaryCalls.Get().(*unaryCall)
	defer func() {
		*u = unaryCall{}
		unaryCalls.Put(u)
	}()
	r := &u.request
	if *r, err = cc.newRequest(ctx, method, unaryDesc, options); err != nil {
		endOptions(options, nil, err)
		return err
	}
	out, err := encodeMessage(r.info.codec, r.info.compressor, r.info.sendMax, args, &u.room, cc.options.pool)
	if err != nil {
		r.callEnd(nil, err)
		return err
	}
	defer out.Data.Free()
	err = u.attempts(args, out, reply)
	r.callEnd(&u.attempt, err)
	if kept, is := u.attempt.call.(interface{ Release() }); is {
		kept.Release()
	}
	return err
}

// attempts makes attempts until one is the last.
func (u *unaryCall) attempts(args any, out outgoingMessage, reply any) error {
	r, a := &u.request, &u.attempt
	size := out.Data.Len()
	transparent := false
	for {
		out.Data.Ref()
		u.message = out.Message
		moved, err := r.begin(a, transparent, sendOp{message: &u.message, last: true})
		if err != nil {
			if moved && r.moveOn() {
				transparent = true
				continue
			}
			return err
		}
		a.sent(args, out, size)
		outcome, err := a.receiveOne(reply)
		a.unprocessed = outcome.Unprocessed
		a.end(err)
		if err == nil {
			return nil
		}
		var again bool
		if transparent, again = r.again(a, outcome); !again {
			return err
		}
	}
}

// receiveOne waits for the answer of a call that gets one message. An error is a status; where the call itself was OK, so is
// the outcome, and the call is not made again.
func (a *attempt) receiveOne(reply any) (call.Outcome, error) {
	ok := call.Outcome{Status: statusOK}
	if a.request.cc.handler != nil {
		a.awaitHeader()
	}
	message, err := a.call.Recv()
	if err == nil {
		if err := a.decode(message, reply); err != nil {
			return ok, err
		}
		extra, err := a.call.Recv()
		if err == nil {
			extra.Data.Free()
			a.call.Cancel(codes.Internal)
			return ok, status.Error(codes.Internal, "tollfree: the server has sent more than one message where the method has one")
		}
		if err != io.EOF {
			return ok, asStatus(err)
		}
		// Nothing is made again after a message.
		return ok, a.request.outcomeError(a.call.Outcome())
	}
	if err != io.EOF {
		return ok, asStatus(err)
	}
	outcome := a.call.Outcome()
	if err := a.request.outcomeError(outcome); err != nil {
		if outcome.Unprocessed {
			return outcome, err
		}
		a.awaitHeader()
		return outcome, err
	}
	return outcome, status.Error(codes.Internal, "tollfree: the server has sent no message where the method has one")
}
