//go:build interop

package tollfree

import (
	"context"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/tollfree/tollfree/go/internal/reference"
)

// attached is a service that says who has called.
type attached struct {
	interopService
	t *testing.T
}

func (a *attached) EmptyCall(ctx context.Context, in *grpc_testing.Empty) (*grpc_testing.Empty, error) {
	caller, ok := CallerFromContext(ctx)
	if from, _ := peer.FromContext(ctx); !ok || !strings.HasPrefix(caller.Address, "127.0.0.1:") || from.AuthInfo.(AuthInfo).PID == 0 {
		a.t.Errorf("the caller is %+v, %v", caller, ok)
	}
	header, _ := metadata.FromIncomingContext(ctx)
	for name := range header {
		if strings.HasPrefix(name, "tollfree-") {
			a.t.Errorf("the handler sees %s", name)
		}
	}
	return a.interopService.EmptyCall(ctx, in)
}

// grpc-go calls a Rust gateway over TCP, which hands its calls to a server in Go that has attached; that goes on when the gateway is
// another one.
func TestGoAttachesToAGateway(t *testing.T) {
	withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
		address, socket := freePort(t), socketDirectory(t)+"/gateway.sock"
		config := t.TempDir() + "/gateway.toml"
		wantNoError(t, os.WriteFile(config, []byte("[listeners.world]\naddress = \""+address+"\"\n[backends]\nsocket = \"shm://"+socket+"\"\n[groups.default]\n"), 0o600))
		server := NewServer()
		grpc_testing.RegisterTestServiceServer(server, &attached{t: t})
		served := make(chan error, 1)
		go func() { served <- server.Attach("shm://"+socket, "default") }()
		conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
		wantNoError(t, err)
		client := grpc_testing.NewTestServiceClient(conn)
		for range 2 {
			stop := reference.Start(t, "gateway", config)
			eventually(t, "the server has attached", func() bool {
				_, err := client.EmptyCall(testContext(t), &grpc_testing.Empty{}, grpc.WaitForReady(true))
				return err == nil
			})
			throughGateway(t, client)
			interopServerStreaming(t, client)
			interopPingPong(t, client)
			interopMetadata(t, client)
			interopStatuses(t, client)
			_, err := client.UnimplementedCall(testContext(t), &grpc_testing.Empty{})
			wantCode(t, err, codes.Unimplemented)
			stop()
		}
		wantNoError(t, conn.Close())
		server.GracefulStop()
		wantNoError(t, <-served)
	})
}

// A server attaches to the gateway that takes another's place before that one ends, so no call is lost.
func TestGoMovesToTheGatewayThatTakesAnothersPlace(t *testing.T) {
	withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
		address, socket := freePort(t), socketDirectory(t)+"/gateway.sock"
		config := t.TempDir() + "/gateway.toml"
		wantNoError(t, os.WriteFile(config, []byte("take_over = true\n[listeners.world]\naddress = \""+address+"\"\n[backends]\nsocket = \"shm://"+socket+"\"\n[groups.default]\n"), 0o600))
		server := NewServer()
		grpc_testing.RegisterTestServiceServer(server, &attached{t: t})
		served := make(chan error, 1)
		go func() { served <- server.Attach("shm://"+socket, "default") }()
		conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		wantNoError(t, err)
		client := grpc_testing.NewTestServiceClient(conn)
		stop := reference.Start(t, "gateway", config)
		eventually(t, "the server has attached", func() bool {
			_, err := client.EmptyCall(testContext(t), &grpc_testing.Empty{}, grpc.WaitForReady(true))
			return err == nil
		})
		for range 3 {
			throughGateway(t, client)
			before, err := os.Stat(socket)
			wantNoError(t, err)
			next := reference.Start(t, "gateway", config)
			eventually(t, "the socket is the next gateway's", func() bool {
				throughGateway(t, client)
				now, err := os.Stat(socket)
				return err == nil && !os.SameFile(before, now)
			})
			throughGateway(t, client)
			stop()
			stop = next
		}
		throughGateway(t, client)
		wantNoError(t, conn.Close())
		server.GracefulStop()
		wantNoError(t, <-served)
		stop()
	})
}

// throughGateway makes calls of several lengths; their peer is not the server.
func throughGateway(t *testing.T, client grpc_testing.TestServiceClient) {
	for _, size := range []int{0, 64, 40_000, 271_828} {
		reply, err := client.UnaryCall(testContext(t), &grpc_testing.SimpleRequest{ResponseSize: int32(size), Payload: body(size)})
		wantNoError(t, err)
		if got := len(reply.GetPayload().GetBody()); got != size {
			t.Fatalf("%d bytes came instead of %d", got, size)
		}
	}
}

// A server that no gateway lets in says so.
func TestAServerThatIsNoGatewayRefusesToBeAttachedTo(t *testing.T) {
	withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
		h.newServer(0, &testService{})
		other := NewServer()
		defer other.Stop()
		if err := other.Attach(h.address(0), "default"); err == nil || !strings.Contains(err.Error(), "refuse") {
			t.Errorf("%v", err)
		}
		if err := other.Attach(h.address(0), "a group"); err == nil || !strings.Contains(err.Error(), "visible ASCII") {
			t.Errorf("%v", err)
		}
	})
}
