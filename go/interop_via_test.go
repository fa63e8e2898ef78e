//go:build interop

package tollfree

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/tollfree/tollfree/go/internal/reference"
	"github.com/tollfree/tollfree/go/internal/transport"
)

// rustGateway is a gateway of the Rust implementation with more in its config, until the test ends.
func rustGateway(t *testing.T, more string) (socket, world string) {
	t.Helper()
	world, socket = freePort(t), "shm://"+socketDirectory(t)+"/gateway.sock"
	config := t.TempDir() + "/gateway.toml"
	text := "[listeners.world]\naddress = \"" + world + "\"\n[backends]\nsocket = \"" + socket + "\"\n" + more
	wantNoError(t, os.WriteFile(config, []byte(text), 0o600))
	reference.Start(t, "gateway", config)
	return socket, world
}

// attachGo is a server in Go that has attached to a gateway, until the test ends.
func attachGo(t *testing.T, gateway string, service grpc_testing.TestServiceServer) *Server {
	t.Helper()
	server := NewServer()
	grpc_testing.RegisterTestServiceServer(server, service)
	served := make(chan error, 1)
	go func() { served <- server.Attach(gateway, "default") }()
	t.Cleanup(func() {
		server.GracefulStop()
		wantNoError(t, <-served)
	})
	return server
}

func viaConn(t *testing.T, gateway, target string) *ClientConn {
	t.Helper()
	conn, err := NewClient(gateway, WithVia(target), WithDefaultCallOptions(grpc.WaitForReady(true)))
	wantNoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// untilAnswered waits until a backend of the target has attached.
func untilAnswered(t *testing.T, conn *ClientConn) grpc_testing.TestServiceClient {
	t.Helper()
	client := grpc_testing.NewTestServiceClient(conn)
	eventually(t, "the group answers", func() bool {
		_, err := client.EmptyCall(testContext(t), &grpc_testing.Empty{})
		return err == nil
	})
	return client
}

// A client calls by way of a gateway: a group's backend of either implementation, and a server elsewhere.
func TestGoCallsByWayOfAGateway(t *testing.T) {
	t.Run("rust attached", func(t *testing.T) {
		withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
			gateway, _ := rustGateway(t, "[groups.default]\n")
			reference.Start(t, "attach", gateway)
			conn := viaConn(t, gateway, "group:default")
			untilAnswered(t, conn)
			runCases(t, conn)
			if err := conn.Direct(); err == nil || !strings.Contains(err.Error(), "direct_connections") {
				t.Errorf("the gateway's config gives none, and: %v", err)
			}
		})
	})
	t.Run("go attached", func(t *testing.T) {
		withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
			gateway, _ := rustGateway(t, "[groups.default]\n")
			attachGo(t, gateway, &interopService{})
			conn := viaConn(t, gateway, "group:default")
			untilAnswered(t, conn)
			runCases(t, conn)
		})
	})
	t.Run("elsewhere", func(t *testing.T) {
		withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
			address := freePort(t)
			reference.Start(t, "tonic", address)
			gateway, _ := rustGateway(t, "[groups.default]\nvia = [\"http://"+address+"\"]\n")
			conn := viaConn(t, gateway, "http://"+address)
			client := untilAnswered(t, conn)
			throughGateway(t, client)
			interopServerStreaming(t, client)
			other := viaConn(t, gateway, "http://127.0.0.1:1")
			_, err := grpc_testing.NewTestServiceClient(other).EmptyCall(testContext(t), &grpc_testing.Empty{}, grpc.WaitForReady(false))
			wantCode(t, err, codes.PermissionDenied)
		})
	})
}

// A server that is no gateway refuses, and a target that is none is an error.
func TestWhatIsNoGatewayRefuses(t *testing.T) {
	withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
		h.newServer(0, &testService{})
		conn, err := NewClient(h.address(0), WithVia("group:default"))
		wantNoError(t, err)
		defer conn.Close()
		_, err = grpc_testing.NewTestServiceClient(conn).EmptyCall(testContext(t), &grpc_testing.Empty{})
		wantCode(t, err, codes.Unavailable, "refuses", "kind 5")
		for _, target := range []string{"", "group: default", strings.Repeat("x", 1025)} {
			if _, err := NewClient(h.address(0), WithVia(target)); err == nil || !strings.Contains(err.Error(), "group:name") {
				t.Errorf("%q: %v", target, err)
			}
		}
	})
}

// A caller counts calls by who has made them.
type countingCallers struct {
	interopService
	t              *testing.T
	direct, handed atomic.Int32
}

func (c *countingCallers) EmptyCall(ctx context.Context, in *grpc_testing.Empty) (*grpc_testing.Empty, error) {
	caller, ok := CallerFromContext(ctx)
	header, _ := metadata.FromIncomingContext(ctx)
	for name := range header {
		if strings.HasPrefix(name, "tollfree-") {
			c.t.Errorf("the handler sees %s", name)
		}
	}
	from, _ := peer.FromContext(ctx)
	own := "shm:" + transport.Process{PID: int32(os.Getpid()), UID: uint32(os.Geteuid())}.String()
	switch info := from.AuthInfo.(AuthInfo); {
	case !ok || caller.Address != own:
		c.t.Errorf("the caller is %+v, %v, and not %s", caller, ok, own)
	case info.PID == int32(os.Getpid()):
		c.direct.Add(1)
	default:
		c.handed.Add(1)
	}
	if err := grpc.SetHeader(ctx, metadata.Pairs("tollfree-forged", "1", "x-kept", "1")); err != nil {
		return nil, err
	}
	return c.interopService.EmptyCall(ctx, in)
}

// Calls of a caller in Go to a backend in Go pass the gateway by, until another backend attaches; then all go through the gateway, and none
// fails.
func TestDirectConnectionsOfGo(t *testing.T) {
	withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
		gateway, _ := rustGateway(t, "[groups.default]\ndirect_connections = true\n")
		service := &countingCallers{t: t}
		attachGo(t, gateway, service)
		conn := viaConn(t, gateway, "group:default")
		client := untilAnswered(t, conn)
		if service.handed.Load() == 0 && conn.Direct() != nil {
			t.Errorf("no call has gone through the gateway, and %v", conn.Direct())
		}
		isDirect := func() bool { return conn.Direct() == nil }
		eventually(t, "calls go by a direct connection", isDirect)
		handed := service.handed.Load()
		for range 20 {
			var header metadata.MD
			ctx := metadata.AppendToOutgoingContext(testContext(t), "tollfree-client-address", "192.0.2.1:1", "tollfree-process", "pid=1,uid=0")
			_, err := client.EmptyCall(ctx, &grpc_testing.Empty{}, grpc.Header(&header))
			wantNoError(t, err)
			if len(header["tollfree-forged"]) > 0 || len(header["x-kept"]) == 0 {
				t.Errorf("the answer's header is %v", header)
			}
		}
		if n := service.direct.Load(); n < 20 || service.handed.Load() != handed {
			t.Errorf("%d calls have come directly, %d through the gateway instead of %d", n, service.handed.Load(), handed)
		}
		t.Run("cases", func(t *testing.T) { runCases(t, conn) })

		stop, failed := make(chan struct{}), make(chan error, 1)
		go func() {
			for {
				select {
				case <-stop:
					failed <- nil
					return
				default:
				}
				if _, err := client.EmptyCall(context.Background(), &grpc_testing.Empty{}); err != nil {
					failed <- err
					return
				}
			}
		}()
		for range 2 {
			second := NewServer()
			grpc_testing.RegisterTestServiceServer(second, service)
			served := make(chan error, 1)
			go func() { served <- second.Attach(gateway, "default") }()
			eventually(t, "the direct connection is over", func() bool { return !isDirect() })
			handed := service.handed.Load()
			eventually(t, "calls go through the gateway", func() bool { return service.handed.Load() > handed+20 })
			second.GracefulStop()
			wantNoError(t, <-served)
			eventually(t, "calls go by a direct connection again", isDirect)
		}
		close(stop)
		if err := <-failed; err != nil {
			t.Errorf("a call has failed: %v", err)
		}
	})
}

// Either end of a direct connection may be the reference.
func TestDirectConnectionsBetweenGoAndRust(t *testing.T) {
	t.Run("go calls rust", func(t *testing.T) {
		withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
			gateway, _ := rustGateway(t, "[groups.default]\ndirect_connections = true\n")
			reference.Start(t, "attach", gateway)
			conn := viaConn(t, gateway, "group:default")
			untilAnswered(t, conn)
			eventually(t, "calls go by a direct connection", func() bool { return conn.Direct() == nil })
			runCases(t, conn)
			wantNoError(t, conn.Direct())
		})
	})
	t.Run("rust calls go", func(t *testing.T) {
		withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
			gateway, _ := rustGateway(t, "[groups.default]\ndirect_connections = true\n")
			attachGo(t, gateway, &interopService{})
			untilAnswered(t, viaConn(t, gateway, "group:default"))
			reference.CallVia(t, gateway, "group:default", true, 5*time.Minute, notByStubs...)
		})
	})
}
