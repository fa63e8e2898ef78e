package tollfree

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"

	pb "github.com/tollfree/tollfree/go/internal/testproto"
)

// A twin serves the same service over shared memory and over TCP, where it offers the other.
type twin struct {
	shared *Server
	// tcp is the address.
	tcp string
}

func newTwin(t *testing.T, h *harness, offers bool) *twin {
	t.Helper()
	service := &testService{}
	shared, tcp := NewServer(), grpc.NewServer()
	pb.RegisterTestServer(shared, service)
	pb.RegisterTestServer(tcp, service)
	listener, err := shared.Listen(h.address(0))
	wantNoError(t, err)
	if offers {
		wantNoError(t, shared.OfferUpgrade(tcp, listener))
	}
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	wantNoError(t, err)
	served := make(chan error, 2)
	go func() { served <- shared.ServeListener(listener) }()
	go func() { served <- tcp.Serve(socket) }()
	t.Cleanup(func() {
		shared.Stop()
		tcp.Stop()
		for range 2 {
			wantNoError(t, <-served)
		}
	})
	return &twin{shared, socket.Addr().String()}
}

// newUpgraded is a connection to an address on TCP whose calls move over to sockets in a directory.
func newUpgraded(t *testing.T, address, directory string) (*grpc.ClientConn, *Upgrade) {
	t.Helper()
	upgrade, err := NewUpgrade(directory)
	wantNoError(t, err)
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(upgrade.Unary), grpc.WithChainStreamInterceptor(upgrade.Stream))
	wantNoError(t, err)
	t.Cleanup(func() {
		wantNoError(t, upgrade.Close())
		wantNoError(t, conn.Close())
	})
	return conn, upgrade
}

// goesBy makes a call, and gives the network that it went by.
func goesBy(t *testing.T, client pb.TestClient) string {
	t.Helper()
	var from peer.Peer
	_, err := client.Unary(testContext(t), &pb.Request{Text: "x"}, grpc.Peer(&from))
	wantNoError(t, err)
	return from.Addr.Network()
}

// goesOver makes calls until one goes by shared memory.
func goesOver(t *testing.T, client pb.TestClient, upgrade *Upgrade) {
	t.Helper()
	for begun := time.Now(); goesBy(t, client) != "unix"; time.Sleep(time.Millisecond) {
		if time.Since(begun) > 10*time.Second {
			_, why := upgrade.Moved()
			t.Fatal(why)
		}
	}
}

// staysOnTCP waits until an attempt to move over has failed, with these words.
func staysOnTCP(t *testing.T, client pb.TestClient, upgrade *Upgrade, words string) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		if by := goesBy(t, client); by != "tcp" {
			t.Fatalf("a call goes by %s", by)
		}
		moved, why := upgrade.Moved()
		if !moved && strings.Contains(why.Error(), words) {
			return
		}
		if time.Since(begun) > 10*time.Second {
			t.Fatalf("%v, %v", moved, why)
		}
	}
}

func TestCallsMoveOverAndBack(t *testing.T) {
	withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
		twin := newTwin(t, h, true)
		conn, upgrade := newUpgraded(t, twin.tcp, socketDirectory(t))
		client := pb.NewTestClient(conn)
		if by := goesBy(t, client); by != "tcp" {
			t.Errorf("the first call goes by %s", by)
		}
		goesOver(t, client, upgrade)
		if moved, _ := upgrade.Moved(); !moved {
			t.Error("it does not say that calls have moved")
		}
		var from peer.Peer
		both, err := client.Bidi(testContext(t), grpc.Peer(&from))
		wantNoError(t, err)
		wantNoError(t, both.Send(&pb.Request{Text: "y"}))
		_, err = both.Recv()
		wantNoError(t, err)
		// The server's socket goes away while calls are made: none fails, and the stream ends as it should.
		stopped := make(chan struct{})
		go func() {
			twin.shared.GracefulStop()
			close(stopped)
		}()
		for begun := time.Now(); goesBy(t, client) != "tcp"; {
			if time.Since(begun) > 10*time.Second {
				t.Fatal("calls do not move back")
			}
		}
		wantNoError(t, both.CloseSend())
		for err == nil {
			_, err = both.Recv()
		}
		if err != io.EOF || from.Addr.Network() != "unix" {
			t.Errorf("the stream ended with %v, over %s", err, from.Addr.Network())
		}
		<-stopped
		if by := goesBy(t, client); by != "tcp" {
			t.Errorf("a call goes by %s", by)
		}
	})
}

func TestASocketElsewhereIsNotConnectedTo(t *testing.T) {
	withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
		twin := newTwin(t, h, true)
		conn, upgrade := newUpgraded(t, twin.tcp, t.TempDir())
		staysOnTCP(t, pb.NewTestClient(conn), upgrade, "does not lie in")
	})
}

func TestAServerThatOffersNothingIsCalledOverTCP(t *testing.T) {
	withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
		twin := newTwin(t, h, false)
		conn, upgrade := newUpgraded(t, twin.tcp, socketDirectory(t))
		staysOnTCP(t, pb.NewTestClient(conn), upgrade, "offers nothing")
	})
}

// What stands between may be there on purpose: calls stay with it.
func TestCallsStayWithAProxy(t *testing.T) {
	withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
		twin := newTwin(t, h, true)
		front, err := net.Listen("tcp", "127.0.0.1:0")
		wantNoError(t, err)
		t.Cleanup(func() { front.Close() })
		go func() {
			for {
				near, err := front.Accept()
				if err != nil {
					return
				}
				far, err := net.Dial("tcp", twin.tcp)
				if err != nil {
					near.Close()
					continue
				}
				pass := func(to, from net.Conn) {
					// Not by splice, whose pipes the runtime keeps.
					io.Copy(struct{ io.Writer }{to}, struct{ io.Reader }{from})
					to.Close()
					from.Close()
				}
				go pass(near, far)
				go pass(far, near)
			}
		}()
		conn, upgrade := newUpgraded(t, front.Addr().String(), socketDirectory(t))
		staysOnTCP(t, pb.NewTestClient(conn), upgrade, "another connection")
	})
}

func TestWhatCannotBeOfferedIsAnError(t *testing.T) {
	server, other, tcp := NewServer(), NewServer(), grpc.NewServer()
	defer server.Stop()
	abstract, err := server.Listen("shm-abstract:offer-" + strings.ReplaceAll(t.TempDir(), "/", "-"))
	wantNoError(t, err)
	directory := socketDirectory(t)
	spaced, err := server.Listen("shm://" + directory + "/a b.sock")
	wantNoError(t, err)
	plain, err := server.Listen("shm://" + directory + "/a.sock")
	wantNoError(t, err)
	for name, err := range map[string]error{
		"an abstract name":          server.OfferUpgrade(tcp, abstract),
		"a path with a space":       server.OfferUpgrade(tcp, spaced),
		"another server's listener": other.OfferUpgrade(tcp, plain),
	} {
		if err == nil {
			t.Errorf("%s is offered", name)
		}
	}
	for _, directory := range []string{"", "run/app"} {
		if _, err := NewUpgrade(directory); err == nil {
			t.Errorf("the directory %q is taken", directory)
		}
	}
	if _, err := NewUpgrade("/run", WithEndpoint("shm:///a.sock")); err == nil {
		t.Error("an endpoint is taken")
	}
}

// A call whose option can't travel stays on TCP, where it can.
func TestACallWithAnAuthorityStaysOnTCP(t *testing.T) {
	withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
		twin := newTwin(t, h, true)
		conn, upgrade := newUpgraded(t, twin.tcp, socketDirectory(t))
		client := pb.NewTestClient(conn)
		goesOver(t, client, upgrade)
		var from peer.Peer
		_, err := client.Unary(context.Background(), &pb.Request{}, grpc.Peer(&from), grpc.CallAuthority("other"))
		wantNoError(t, err)
		if from.Addr.Network() != "tcp" {
			t.Errorf("it went by %s", from.Addr.Network())
		}
	})
}
