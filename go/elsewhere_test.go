//go:build tollfree_elsewhere

package tollfree

import (
	"net"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/tollfree/tollfree/go/internal/testproto"
)

// wantElsewhere wants the error that a program gets where there is no shared memory.
func wantElsewhere(t *testing.T, what string, err error) {
	t.Helper()
	for _, words := range []string{"tollfree: ", "shared memory needs Linux", runtime.GOOS, "grpc.NewClient"} {
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, without %q", what, err, words)
		}
	}
}

// On other systems than Linux, what needs shared memory is refused with words that say what to write instead.
func TestSharedMemoryIsRefusedElsewhere(t *testing.T) {
	const address = "shm:///run/app/greeter.sock"
	_, err := NewClient(address)
	wantElsewhere(t, "NewClient", err)
	_, err = NewClient("shm:///run/gateway.sock", WithVia("group:orders"))
	wantElsewhere(t, "WithVia", err)
	server := NewServer()
	wantElsewhere(t, "Serve", server.Serve(address))
	wantElsewhere(t, "Attach", server.Attach(address, "greeters"))
	socket, err := net.Listen("unix", t.TempDir()+"/passed.sock")
	wantNoError(t, err)
	_, err = server.ListenOn(socket.(*net.UnixListener))
	wantElsewhere(t, "ListenOn", err)
	_, err = JoinPool(testContext(t), address)
	wantElsewhere(t, "JoinPool", err)
	server.Stop()
}

// Calls that would move over from TCP stay there.
func TestCallsStayOnTCPElsewhere(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	wantNoError(t, err)
	server := grpc.NewServer()
	pb.RegisterTestServer(server, &testService{})
	go server.Serve(listener)
	defer server.Stop()
	upgrade, err := NewUpgrade("/run/app")
	wantNoError(t, err)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(upgrade.Unary), grpc.WithChainStreamInterceptor(upgrade.Stream))
	wantNoError(t, err)
	defer conn.Close()
	eventually(t, "the reason is known", func() bool {
		reply, err := pb.NewTestClient(conn).Unary(testContext(t), &pb.Request{Text: "text"})
		wantNoError(t, err)
		if reply.Text != "text" {
			t.Fatalf("%q came back", reply.Text)
		}
		moved, why := upgrade.Moved()
		if moved {
			t.Fatal("the calls have moved")
		}
		return strings.Contains(why.Error(), "Linux")
	})
	_, why := upgrade.Moved()
	wantElsewhere(t, "Upgrade", why)
	wantNoError(t, upgrade.Close())
}
