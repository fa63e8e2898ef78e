//go:build interop

package tollfree

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/interop/grpc_testing"

	"github.com/tollfree/tollfree/go/internal/reference"
)

// unreadCount is how many answers follow the first.
const unreadCount = 20

// A pausingService answers a stream's first message at once, and the others when its test lets it.
type pausingService struct {
	grpc_testing.UnimplementedTestServiceServer
	goOn   chan struct{}
	called chan struct{}
}

func (s *pausingService) StreamingOutputCall(_ *grpc_testing.StreamingOutputCallRequest, stream grpc.ServerStreamingServer[grpc_testing.StreamingOutputCallResponse]) error {
	for i := range 1 + unreadCount {
		if i == 1 {
			<-s.goOn
		}
		if err := stream.Send(&grpc_testing.StreamingOutputCallResponse{Payload: body(i)}); err != nil {
			return err
		}
	}
	return nil
}

func (s *pausingService) EmptyCall(context.Context, *grpc_testing.Empty) (*grpc_testing.Empty, error) {
	s.called <- struct{}{}
	return &grpc_testing.Empty{}, nil
}

// A Rust client that has begun a call and polls nothing of it reads its ring only when it polls something. A server in Go drains and ends meanwhile, and
// waits for no such client. The client's next call goes elsewhere, and what was sent to it is there when it reads.
func TestAServerDrainsWhileAClientReadsNothing(t *testing.T) {
	withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
		serve := func() (*Server, *pausingService, chan error) {
			service := &pausingService{goOn: make(chan struct{}), called: make(chan struct{}, 10)}
			server := NewServer()
			grpc_testing.RegisterTestServiceServer(server, service)
			served := make(chan error, 1)
			var listener *Listener
			eventually(t, "nobody else listens there", func() (ok bool) {
				var err error
				listener, err = server.Listen(h.address(0))
				return err == nil
			})
			go func() { served <- server.ServeListener(listener) }()
			return server, service, served
		}
		within := func(what string, done <-chan struct{}) {
			t.Helper()
			select {
			case <-done:
			case <-time.After(20 * time.Second):
				t.Fatal("never: " + what)
			}
		}
		first, slow, firstServed := serve()
		client := reference.StartToTalk(t, "call-unread", h.address(0))
		client.Hear("begun")
		drained := make(chan struct{})
		go func() {
			first.GracefulStop()
			close(drained)
		}()
		second, other, secondServed := serve()
		client.GoOn()
		client.Hear("called")
		within("the second server is called", other.called)
		if len(slow.called) > 0 {
			t.Error("a server that drains was called")
		}
		close(slow.goOn)
		within("the first server stops", drained)
		wantNoError(t, <-firstServed)
		client.GoOn()
		client.Hear("20 more")
		second.GracefulStop()
		wantNoError(t, <-secondServed)
	})
}
