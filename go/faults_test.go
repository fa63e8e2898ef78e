package tollfree

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/tollfree/tollfree/go/internal/testproto"
)

// TestAServerThatHangsUpIsNotStormed has many calls wait for a server that accepts, and hangs up.
func TestAServerThatHangsUpIsNotStormed(t *testing.T) {
	withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
		path := strings.TrimPrefix(h.address(0), "shm://")
		listener, err := net.Listen("unix", path)
		wantNoError(t, err)
		var accepted atomic.Int64
		var accepting sync.WaitGroup
		accepting.Go(func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				accepted.Add(1)
				conn.Close()
			}
		})
		client := pb.NewTestClient(h.newConn())
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		var callers sync.WaitGroup
		for range 16 {
			callers.Go(func() {
				_, err := client.Unary(ctx, &pb.Request{}, grpc.WaitForReady(true))
				wantCode(t, err, codes.DeadlineExceeded)
			})
		}
		callers.Wait()
		// One attempt at a time for all calls, after pauses that grow.
		if n := accepted.Load(); n < 2 || n > 60 {
			t.Errorf("%d attempts to connect in half a second", n)
		}
		listener.Close()
		accepting.Wait()
		// The server comes, and all is well.
		h.newServer(0, &testService{})
		_, err = client.Unary(testContext(t), &pb.Request{}, grpc.WaitForReady(true))
		wantNoError(t, err)
	})
}

// TestAStormOfCallsWhileServersComeAndGo has callers call while their server is replaced again and again.
func TestAStormOfCallsWhileServersComeAndGo(t *testing.T) {
	withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
		client := pb.NewTestClient(h.newConn(WithDefaultCallOptions(grpc.WaitForReady(true))))
		done := make(chan struct{})
		var callers sync.WaitGroup
		var well, lost atomic.Int64
		for range 8 {
			callers.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					switch _, err := client.Unary(testContext(t), &pb.Request{}); status.Code(err) {
					case codes.OK:
						well.Add(1)
					case codes.Unavailable: // A call that was with the server that stopped.
						lost.Add(1)
					default:
						t.Errorf("%v", err)
						return
					}
				}
			})
		}
		for range 10 {
			server := NewServer()
			pb.RegisterTestServer(server, &testService{})
			listener, err := server.Listen(h.address(0))
			wantNoError(t, err)
			served := make(chan error, 1)
			go func() { served <- server.ServeListener(listener) }()
			before := well.Load()
			eventually(t, "calls", func() bool { return well.Load() > before+20 })
			server.Stop()
			wantNoError(t, <-served)
		}
		close(done)
		// Those that wait for a server get one.
		h.newServer(0, &testService{})
		callers.Wait()
		if lost.Load() > 10*8 {
			t.Errorf("%d calls were lost to 10 servers that stopped", lost.Load())
		}
	})
}
