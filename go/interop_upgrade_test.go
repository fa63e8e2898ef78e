//go:build interop

package tollfree

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/peer"

	"github.com/tollfree/tollfree/go/internal/reference"
)

// freePort is a port on TCP that nobody listens at.
func freePort(t *testing.T) string {
	t.Helper()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	wantNoError(t, err)
	defer socket.Close()
	return socket.Addr().String()
}

// Calls of a *grpc.ClientConn move over to a Rust server's socket.
func TestGoMovesOverToRust(t *testing.T) {
	withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
		address := freePort(t)
		reference.Serve(t, "http://"+address, "shm://"+socketDirectory(t)+"/rust.sock")
		upgrade, err := NewUpgrade(socketDirectory(t))
		wantNoError(t, err)
		conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
			grpc.WithChainUnaryInterceptor(upgrade.Unary), grpc.WithChainStreamInterceptor(upgrade.Stream))
		wantNoError(t, err)
		t.Cleanup(func() {
			wantNoError(t, upgrade.Close())
			wantNoError(t, conn.Close())
		})
		client := grpc_testing.NewTestServiceClient(conn)
		for begun := time.Now(); ; time.Sleep(time.Millisecond) {
			var from peer.Peer
			_, err := client.EmptyCall(testContext(t), &grpc_testing.Empty{}, grpc.Peer(&from))
			wantNoError(t, err)
			if info, ok := from.AuthInfo.(AuthInfo); ok && info.PID != 0 {
				break
			}
			if time.Since(begun) > 10*time.Second {
				_, why := upgrade.Moved()
				t.Fatal(why)
			}
		}
		interopUnary(t, client)
		interopServerStreaming(t, client)
		interopPingPong(t, client)
	})
}

// Calls of the Rust client move over from a *grpc.Server to the socket that it offers.
func TestRustMovesOverToGo(t *testing.T) {
	withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
		var calls atomic.Int64
		shared := NewServer(UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			calls.Add(1)
			return handler(ctx, request)
		}))
		tcp := grpc.NewServer()
		for _, server := range []grpc.ServiceRegistrar{shared, tcp} {
			grpc_testing.RegisterTestServiceServer(server, &interopService{})
		}
		listener, err := shared.Listen(h.address(0))
		wantNoError(t, err)
		wantNoError(t, shared.OfferUpgrade(tcp, listener))
		socket, err := net.Listen("tcp", "127.0.0.1:0")
		wantNoError(t, err)
		go shared.ServeListener(listener)
		go tcp.Serve(socket)
		t.Cleanup(shared.Stop)
		t.Cleanup(tcp.Stop)
		reference.Call(t, "http://"+socket.Addr().String(), "", socketDirectory(t), 5*time.Minute, notByStubs...)
		if calls.Load() == 0 {
			t.Error("no call has moved over")
		}
	})
}
