package tollfree

import (
	"context"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/tollfree/tollfree/go/internal/testproto"
)

func TestDeadlines(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		ended := make(chan error, 4)
		wait := func(ctx context.Context) error {
			if _, ok := ctx.Deadline(); !ok {
				return status.Error(codes.Internal, "the handler has no deadline")
			}
			<-ctx.Done()
			ended <- ctx.Err()
			return ctx.Err()
		}
		h.newServer(0, &testService{
			unary: func(ctx context.Context, _ *pb.Request) (*pb.Reply, error) { return nil, wait(ctx) },
			bidi: func(stream grpc.BidiStreamingServer[pb.Request, pb.Reply]) error {
				return wait(stream.Context())
			},
		})
		client := pb.NewTestClient(h.newConn())
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		_, err := client.Unary(ctx, &pb.Request{})
		wantCode(t, err, codes.DeadlineExceeded)
		<-ended
		ctx, cancel = context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		stream, err := client.Bidi(ctx)
		wantNoError(t, err)
		_, err = stream.Recv()
		wantCode(t, err, codes.DeadlineExceeded)
		<-ended
		// A deadline that has passed is not sent.
		ctx, cancel = context.WithTimeout(context.Background(), -time.Second)
		defer cancel()
		_, err = client.Unary(ctx, &pb.Request{})
		wantCode(t, err, codes.DeadlineExceeded)
		if len(ended) > 0 {
			t.Fatal("the server got a call whose deadline had passed")
		}
	})
}

func TestCancellation(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		begun, ended := make(chan bool, 1), make(chan bool, 1)
		h.newServer(0, &testService{
			unary: func(ctx context.Context, _ *pb.Request) (*pb.Reply, error) {
				begun <- true
				<-ctx.Done()
				ended <- true
				return nil, ctx.Err()
			},
			bidi: func(stream grpc.BidiStreamingServer[pb.Request, pb.Reply]) error {
				begun <- true
				_, err := stream.Recv()
				if err == nil || err == io.EOF {
					t.Errorf("a cancelled request ends with %v", err)
				}
				ended <- true
				return err
			},
		})
		client := pb.NewTestClient(h.newConn())
		ctx, cancel := context.WithCancel(testContext(t))
		go func() { <-begun; cancel() }()
		_, err := client.Unary(ctx, &pb.Request{})
		wantCode(t, err, codes.Canceled)
		<-ended

		finished := make(chan error, 1)
		ctx, cancel = context.WithCancel(testContext(t))
		stream, err := client.Bidi(ctx, grpc.OnFinish(func(err error) { finished <- err }))
		wantNoError(t, err)
		<-begun
		cancel()
		wantCode(t, <-finished, codes.Canceled) // though nobody receives
		<-ended
		_, err = stream.Recv()
		wantCode(t, err, codes.Canceled)
		if err := stream.Send(&pb.Request{}); err != io.EOF {
			t.Fatalf("Send after the end returned %v", err)
		}
	})
}

// A call that its client cancels ends so, even where the answer comes at the same time.
func TestCancelledBeforeTheAnswer(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		client := h.pair()
		for range 100 {
			ctx, cancel := context.WithCancel(testContext(t))
			stream, err := client.ClientStream(ctx)
			wantNoError(t, err)
			cancel()
			_, err = stream.CloseAndRecv()
			wantCode(t, err, codes.Canceled)
		}
	})
}
