package calltest

import (
	"bytes"
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
)

var _ call.UnaryClient = (*session)(nil)

// Unary makes a whole call by the steps of others.
func (s *session) Unary(ctx context.Context, start *call.Start, request *call.Message, short []byte, reply *call.Reply) (call.Outcome, error) {
	if request == nil {
		request = &call.Message{Data: mem.BufferSlice{mem.SliceBuffer(bytes.Clone(short))}}
	}
	whole := *start
	whole.Message, whole.Last = request, true
	c, err := s.Start(ctx, &whole)
	if err != nil {
		return call.Outcome{}, err
	}
	header, _ := c.Header()
	for message, err := c.Recv(); err == nil; message, err = c.Recv() {
		if reply.Came {
			reply.TooMany = true
			message.Data.Free()
			c.Cancel(codes.Internal)
			return call.Outcome{Status: status.New(codes.Internal, "the server has sent more than one message where the method has one")}, nil
		}
		reply.Keep(message)
		if message.Compressed {
			reply.Header = header
		}
	}
	return c.Outcome(), nil
}

// TakesObjects: nobody does here.
func (s *session) TakesObjects(string) (fingerprint uint64, ok bool) { return 0, false }
