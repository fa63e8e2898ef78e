package tollfree

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tollfree/tollfree/go/internal/buffers"
	"github.com/tollfree/tollfree/go/internal/call"
)

// plainLimits are what a client's options say of unary calls for which nothing but a session is needed: no stats handler, credentials,
// service config for methods, or codec of the program's own has a part in them.
type plainLimits struct{ receiveMax, sendMax int }

// plainLimitsOf is nil where all calls have to go the whole way.
func plainLimitsOf(o *dialOptions, handled bool) *plainLimits {
	if handled || !protobufIsOurs || len(o.credentials) > 0 || len(o.config.methods) > 0 || o.config.throttling != nil {
		return nil
	}
	for _, option := range o.calls {
		switch option.(type) {
		case grpc.MaxRecvMsgSizeCallOption, grpc.MaxSendMsgSizeCallOption, grpc.FailFastCallOption, grpc.StaticMethodCallOption:
		default:
			return nil
		}
	}
	info, err := newCallInfo(&noMethodConfig, o.calls)
	if err != nil {
		return nil
	}
	return &plainLimits{info.receiveMax, info.sendMax}
}

// sayNothing says of call options that they change nothing.
func sayNothing(options []grpc.CallOption) bool {
	for _, option := range options {
		if _, is := option.(grpc.StaticMethodCallOption); !is {
			return false
		}
	}
	return true
}

// A plainCall is what a call needs while it is under way.
type plainCall struct {
	start   call.Start
	reply   call.Reply
	request encoded
	room    [buffers.SmallMax]byte
}

// plainCalls are kept for the next calls.
var plainCalls = sync.Pool{New: func() any { return new(plainCall) }}

func (q *plainCall) release() {
	q.reply.Clear()
	q.start, q.request = call.Start{}, encoded{}
	plainCalls.Put(q)
}

// invokePlain makes a call where there is a session, and nothing has to be done for it but that. done is false where it has not been
// made, and is to go the whole way. vt says that vtprotobuf's methods are used where messages have them, fresh that nobody has set
// anything of reply. An error is a status.
func (cc *ClientConn) invokePlain(ctx context.Context, method string, request, reply proto.Message, vt, fresh bool) (done bool, err error) {
	limits := cc.plain
	if limits == nil || cc.context.Err() != nil {
		return false, nil
	}
	if _, has := metadata.FromOutgoingContext(ctx); has {
		return false, nil
	}
	s := cc.balancer.ready()
	if s == nil || s.unary == nil {
		return false, nil
	}
	q := plainCalls.Get().(*plainCall)
	defer q.release()
	if q.request, err = encodeProto(request, vt, limits.sendMax, q.room[:], cc.options.pool); err != nil {
		return true, err
	}
	q.start = call.Start{Method: method, Header: cc.header, MessageLenMax: messageLenMax(limits.receiveMax)}
	q.start.Deadline, _ = ctx.Deadline()
	if done, err = cc.finishPlain(ctx, s, q, q.request.message(), q.request.short); !done || err != nil {
		return done, err
	}
	if q.reply.Message.Compressed {
		decoder := decoder{
			codec: protobufCodec, limit: limits.receiveMax, encoding: first(q.reply.Header, headerEncoding), missing: codes.Internal,
		}
		message := q.reply.Message
		q.reply.Message = call.Message{}
		_, err := decoder.decode(message, reply)
		return true, err
	}
	return true, decodeProto(&q.reply, reply, vt, fresh, limits.receiveMax)
}

// finishPlain makes a call of one message each way, and waits for its end. done is false where it is to go the whole way. Without an error the
// reply has come.
func (cc *ClientConn) finishPlain(ctx context.Context, s *session, q *plainCall, message *call.Message, short []byte) (done bool, err error) {
	s.outstanding.Add(1)
	outcome, err := s.unary.Unary(ctx, &q.start, message, short, &q.reply)
	s.outstanding.Add(-1)
	switch {
	case err != nil && cc.context.Err() != nil:
		return true, errClosing
	case err != nil:
		// No server has looked at it: another may.
		return status.Code(err) != codes.Unavailable, asStatus(err)
	case outcome.Unprocessed:
		return false, nil
	}
	s.ended(outcome.Status.Err())
	if outcome.Status.Code() != codes.OK {
		if cc.context.Err() != nil && outcome.Status.Code() == codes.Unavailable {
			return true, errClosing
		}
		return true, outcome.Status.Err()
	}
	if !q.reply.Came {
		return true, status.Error(codes.Internal, "tollfree: the server has sent no message where the method has one")
	}
	return true, nil
}
