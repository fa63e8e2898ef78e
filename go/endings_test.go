package tollfree

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
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

// What has come before a client's own deadline, or before it cancels, can still be read: all messages, and then the status; also
// the end of a call that the server had finished. grpc does so, which the test asks, too.
func TestWhatCameBeforeTheEndIsRead(t *testing.T) {
	const count = 20
	cases := []struct {
		name              string
		deadline, answers bool
		code              codes.Code
	}{
		{"deadline", true, false, codes.DeadlineExceeded},
		{"cancellation", false, false, codes.Canceled},
		{"deadline behind the end", true, true, codes.OK},
		{"cancellation behind the end", false, true, codes.OK},
	}
	const answers = "answers"
	sent := make(chan bool, 1)
	service := &testService{server: func(in *pb.Request, stream grpc.ServerStreamingServer[pb.Reply]) error {
		for i := range in.Count {
			if err := stream.Send(&pb.Reply{Count: i}); err != nil {
				return err
			}
		}
		sent <- true
		if in.Text == answers {
			return nil
		}
		<-stream.Context().Done()
		return stream.Context().Err()
	}}
	test := func(t *testing.T, client pb.TestClient) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				const left = 200 * time.Millisecond
				var ctx context.Context
				var cancel context.CancelFunc
				if c.deadline {
					ctx, cancel = context.WithTimeout(testContext(t), left)
				} else {
					ctx, cancel = context.WithCancel(testContext(t))
					time.AfterFunc(left, cancel)
				}
				defer cancel()
				request := &pb.Request{Count: count}
				if c.answers {
					request.Text = answers
				}
				finished := make(chan error, 1)
				stream, err := client.ServerStream(ctx, request, grpc.OnFinish(func(err error) { finished <- err }))
				wantNoError(t, err)
				<-sent
				<-finished
				if header, err := stream.Header(); err != nil || header == nil {
					t.Errorf("the header is %v, %v", header, err)
				}
				for i := range int32(count) {
					reply, err := stream.Recv()
					if err != nil || reply.Count != i {
						t.Fatalf("message %d: %v, %v", i, reply, err)
					}
				}
				for range 2 {
					_, err = stream.Recv()
					if c.code == codes.OK && err != io.EOF || c.code != codes.OK && status.Code(err) != c.code {
						t.Fatalf("after all messages: %v, want %v", err, c.code)
					}
				}
			})
		}
	}
	t.Run("grpc", func(t *testing.T) {
		path := socketDirectory(t) + "/grpc.sock"
		listener, err := net.Listen("unix", path)
		wantNoError(t, err)
		server := grpc.NewServer()
		pb.RegisterTestServer(server, service)
		go server.Serve(listener)
		defer server.Stop()
		conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
		wantNoError(t, err)
		defer conn.Close()
		test(t, pb.NewTestClient(conn))
	})
	overCarriers(t, func(t *testing.T, h *harness) {
		h.newServer(0, service)
		test(t, pb.NewTestClient(h.newConn()))
	})
}

// The call's end is with its options by the time that its receiver has it, though the context has ended the call.
func TestOptionsOfCancelledStreams(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		h.newServer(0, &testService{server: func(_ *pb.Request, stream grpc.ServerStreamingServer[pb.Reply]) error {
			if err := stream.Send(&pb.Reply{}); err != nil {
				return err
			}
			<-stream.Context().Done()
			return nil
		}})
		client := pb.NewTestClient(h.newConn())
		var callers sync.WaitGroup
		for range 300 {
			callers.Go(func() {
				ctx, cancel := context.WithCancel(testContext(t))
				defer cancel()
				var from peer.Peer
				finished := make(chan error, 1)
				stream, err := client.ServerStream(ctx, &pb.Request{}, grpc.Peer(&from), grpc.OnFinish(func(err error) { finished <- err }))
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := stream.Recv(); err != nil {
					t.Error(err)
				}
				cancel()
				if _, err := stream.Recv(); status.Code(err) != codes.Canceled || from.Addr == nil || len(finished) != 1 {
					t.Errorf("%v, from %v, finished %d times", err, from.Addr, len(finished))
				}
			})
		}
		callers.Wait()
	})
}
