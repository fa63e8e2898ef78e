package tollfree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
	pb "github.com/tollfree/tollfree/go/internal/testproto"
)

func TestAddresses(t *testing.T) {
	for address, words := range map[string]string{
		"shm:///run/a.sock":                        "",
		"shm-abstract:greeter":                     "",
		"shm://run/a.sock":                         "three slashes",
		"shm:///run/":                              "directory",
		"shm:///" + strings.Repeat("x", 107):       "at most 107",
		"shm:///a\x00b":                            "NUL",
		"shm-abstract:":                            "no name",
		"shm-abstract:" + strings.Repeat("x", 108): "at most 107",
		"xds:///greeter":                           "the scheme xds",
		"dns:///localhost:80":                      "grpc.NewClient",
		"unix:/run/a.sock":                         "the scheme unix",
		"localhost:80":                             "scheme",
		"/run/a.sock":                              "no scheme",
		"":                                         "no scheme",
	} {
		_, err := NewClient(address)
		if words == "" && err != nil || words != "" && (err == nil || !strings.Contains(err.Error(), words)) {
			t.Errorf("%q: %v, want %q", address, err, words)
		}
	}
	if _, err := NewClient("shm:///a", WithEndpoint("xds:///b")); err == nil {
		t.Error("a second address is not checked")
	}
	if err := NewServer().Serve("http://localhost"); err == nil || !strings.Contains(err.Error(), "grpc.NewServer") {
		t.Errorf("Serve: %v", err)
	}
}

func TestGRPCsOwnClientSaysWhatToWrite(t *testing.T) {
	for _, address := range []string{"shm:///run/a.sock", "shm-abstract:greeter"} {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		wantNoError(t, err)
		_, err = pb.NewTestClient(conn).Unary(testContext(t), &pb.Request{})
		wantCode(t, err, codes.Unavailable, fmt.Sprintf("tollfree.NewClient(%q)", address))
		conn.Close()
	}
}

func TestNoServer(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		conn := h.newConn()
		client := pb.NewTestClient(conn)
		if state := conn.GetState(); state != connectivity.Idle {
			t.Fatalf("a new client is %s", state)
		}
		for range 3 {
			_, err := client.Unary(testContext(t), &pb.Request{})
			wantCode(t, err, codes.Unavailable, h.address(0))
		}
		if state := conn.GetState(); state != connectivity.TransientFailure {
			t.Fatalf("without a server, the client is %s", state)
		}
		_, err := client.Bidi(testContext(t))
		wantCode(t, err, codes.Unavailable, h.address(0))
		ctx, cancel := context.WithTimeout(testContext(t), 30*time.Millisecond)
		defer cancel()
		_, err = client.Unary(ctx, &pb.Request{}, grpc.WaitForReady(true))
		wantCode(t, err, codes.DeadlineExceeded, "last attempt")
		// The client connects by itself once there is a server.
		h.newServer(0, &testService{})
		for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
			if !conn.WaitForStateChange(testContext(t), state) {
				t.Fatalf("the client stays %s", state)
			}
		}
	})
}

func TestWaitForReady(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		conn := h.newConn()
		done := make(chan error, 1)
		go func() {
			_, err := pb.NewTestClient(conn).Unary(testContext(t), &pb.Request{}, grpc.WaitForReady(true))
			done <- err
		}()
		time.Sleep(30 * time.Millisecond)
		h.newServer(0, &testService{})
		wantNoError(t, <-done)
	})
}

func TestConnectWithoutACall(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		server := h.newServer(0, &testService{})
		conn := h.newConn()
		conn.Connect()
		eventually(t, "READY", func() bool { return conn.GetState() == connectivity.Ready })
		server.Stop()
		eventually(t, "IDLE", func() bool { return conn.GetState() == connectivity.Idle })
		conn.Close()
		if state := conn.GetState(); state != connectivity.Shutdown {
			t.Fatalf("a closed client is %s", state)
		}
		if err := conn.Close(); err != errClosing {
			t.Fatalf("a second Close returned %v", err)
		}
		_, err := pb.NewTestClient(conn).Unary(testContext(t), &pb.Request{})
		wantCode(t, err, codes.Canceled, "closing")
		_, err = pb.NewTestClient(conn).Bidi(testContext(t))
		wantCode(t, err, codes.Canceled, "closing")
	})
}

func TestCloseEndsCalls(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		begun := make(chan bool, 2)
		h.newServer(0, &testService{
			unary: func(ctx context.Context, _ *pb.Request) (*pb.Reply, error) {
				begun <- true
				<-ctx.Done()
				return nil, ctx.Err()
			},
			bidi: func(stream grpc.BidiStreamingServer[pb.Request, pb.Reply]) error {
				begun <- true
				<-stream.Context().Done()
				return nil
			},
		})
		conn := h.newConn()
		client := pb.NewTestClient(conn)
		finished := make(chan error, 1)
		// The context of this stream ends with the test only, and nobody receives.
		_, err := client.Bidi(context.Background(), grpc.OnFinish(func(err error) { finished <- err }))
		wantNoError(t, err)
		go func() {
			<-begun
			<-begun
			conn.Close()
		}()
		_, err = client.Unary(testContext(t), &pb.Request{})
		wantCode(t, err, codes.Canceled, "closing")
		wantCode(t, <-finished, codes.Canceled, "closing")
	})
}

func TestServerThatDiesAndComesBack(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		begun := make(chan bool, 1)
		server := h.newServer(0, &testService{unary: func(ctx context.Context, in *pb.Request) (*pb.Reply, error) {
			if in.Text == "wait" {
				begun <- true
				<-ctx.Done()
			}
			return &pb.Reply{}, nil
		}})
		client := pb.NewTestClient(h.newConn())
		go func() { <-begun; server.Stop() }()
		_, err := client.Unary(testContext(t), &pb.Request{Text: "wait"})
		wantCode(t, err, codes.Unavailable) // It may have been served: it is not made again.
		h.newServer(0, &testService{})
		_, err = client.Unary(testContext(t), &pb.Request{}, grpc.WaitForReady(true))
		wantNoError(t, err)
	})
}

func TestDrainFailsNoCall(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		conn := h.newConn(WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "waitForReady": true}]}`))
		client := pb.NewTestClient(conn)
		var calls atomic.Int64
		stop, done := make(chan bool), make(chan error, 4)
		server := h.newServer(0, &testService{})
		for range cap(done) {
			go func() {
				for {
					select {
					case <-stop:
						done <- nil
						return
					default:
					}
					if _, err := client.Unary(context.Background(), &pb.Request{}); err != nil {
						done <- err
						return
					}
					calls.Add(1)
				}
			}()
		}
		for range 5 {
			before := calls.Load()
			eventually(t, "more calls", func() bool { return calls.Load() > before+50 || len(done) > 0 })
			server.GracefulStop()
			server = h.newServer(0, &testService{})
		}
		close(stop)
		for range cap(done) {
			wantNoError(t, <-done)
		}
	})
}

func TestDrainLetsStreamsEnd(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		server := h.newServer(0, &testService{})
		client := pb.NewTestClient(h.newConn())
		stream, err := client.Bidi(testContext(t))
		wantNoError(t, err)
		echo := func() {
			t.Helper()
			wantNoError(t, stream.Send(&pb.Request{Text: "x"}))
			_, err := stream.Recv()
			wantNoError(t, err)
		}
		echo()
		stopped := make(chan bool)
		go func() { server.GracefulStop(); close(stopped) }()
		time.Sleep(20 * time.Millisecond)
		h.newServer(0, &testService{unary: func(context.Context, *pb.Request) (*pb.Reply, error) { return &pb.Reply{Text: "second"}, nil }})
		reply, err := client.Unary(testContext(t), &pb.Request{}, grpc.WaitForReady(true))
		wantNoError(t, err)
		if reply.Text != "second" {
			t.Fatalf("a new call went to %q", reply.Text)
		}
		echo()
		wantNoError(t, stream.CloseSend())
		if _, err := stream.Recv(); err != io.EOF {
			t.Fatal(err)
		}
		select {
		case <-stopped:
		case <-time.After(10 * time.Second):
			t.Fatal("GracefulStop has not returned after the last call")
		}
	})
}

func TestStopCutsGracefulStopShort(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		server := h.newServer(0, &testService{})
		stream, err := pb.NewTestClient(h.newConn()).Bidi(testContext(t))
		wantNoError(t, err)
		wantNoError(t, stream.Send(&pb.Request{}))
		_, err = stream.Recv()
		wantNoError(t, err)
		stopped := make(chan bool)
		go func() { server.GracefulStop(); close(stopped) }()
		time.Sleep(20 * time.Millisecond)
		select {
		case <-stopped:
			t.Fatal("GracefulStop returned while a call was under way")
		default:
		}
		server.Stop()
		<-stopped
		_, err = stream.Recv()
		wantCode(t, err, codes.Unavailable)
	})
}

// refusals of a server that is there are not asked again and again.
func TestRefusedHandshake(t *testing.T) {
	overFake(t, func(t *testing.T, h *harness) {
		busy := status.Error(codes.Unavailable, "the server is busy")
		h.network.Refuse(h.address(0), busy, busy, busy)
		h.newServer(0, &testService{})
		client := pb.NewTestClient(h.newConn())
		_, err := client.Unary(testContext(t), &pb.Request{})
		wantCode(t, err, codes.Unavailable, "busy")
		for range 50 {
			if _, err := client.Unary(testContext(t), &pb.Request{}); err == nil {
				break
			}
		}
		if dials := h.network.Dials(h.address(0)); dials > 3 {
			t.Fatalf("%d attempts within an instant", dials)
		}
		_, err = client.Unary(testContext(t), &pb.Request{}, grpc.WaitForReady(true))
		wantNoError(t, err)
		if dials := h.network.Dials(h.address(0)); dials != 4 {
			t.Fatalf("%d attempts, want 4", dials)
		}
	})
}

func TestPermissionDenied(t *testing.T) {
	overFake(t, func(t *testing.T, h *harness) {
		h.network.Refuse(h.address(0), fmt.Errorf("connect: %w", syscall.EACCES), errors.New("odd"))
		client := pb.NewTestClient(h.newConn())
		_, err := client.Unary(testContext(t), &pb.Request{})
		wantCode(t, err, codes.PermissionDenied, h.address(0))
	})
}

// callsTo is how many of n calls each of two servers answers.
func callsTo(t *testing.T, client pb.TestClient, n int) (first, second int) {
	t.Helper()
	for range n {
		reply, err := client.Unary(testContext(t), &pb.Request{})
		wantNoError(t, err)
		switch reply.Text {
		case "0":
			first++
		case "1":
			second++
		}
	}
	return first, second
}

func named(name string) *testService {
	return &testService{unary: func(context.Context, *pb.Request) (*pb.Reply, error) { return &pb.Reply{Text: name}, nil }}
}

func TestRoundRobin(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		h.newServer(0, named("0"))
		second := h.newServer(1, named("1"))
		conn := h.newConn(WithEndpoint(h.address(1)), WithDefaultServiceConfig(`{"loadBalancingConfig": [{"xds_lb": {}}, {"round_robin": {}}]}`))
		client := pb.NewTestClient(conn)
		conn.Connect()
		eventually(t, "both sessions", func() bool {
			return conn.balancer.endpoints[0].ready() != nil && conn.balancer.endpoints[1].ready() != nil
		})
		if a, b := callsTo(t, client, 10); a != 5 || b != 5 {
			t.Fatalf("calls went %d to %d", a, b)
		}
		second.Stop()
		eventually(t, "the end of a session", func() bool { return conn.balancer.endpoints[1].ready() == nil })
		if a, b := callsTo(t, client, 10); a != 10 || b != 0 {
			t.Fatalf("calls went %d to %d", a, b)
		}
		h.newServer(1, named("1"))
		eventually(t, "a new session", func() bool { return conn.balancer.endpoints[1].ready() != nil })
		if a, b := callsTo(t, client, 10); a != 5 || b != 5 {
			t.Fatalf("calls went %d to %d", a, b)
		}
	})
}

func TestPickFirst(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		h.newServer(1, named("1"))
		conn := h.newConn(WithEndpoint(h.address(1)))
		client := pb.NewTestClient(conn)
		if a, b := callsTo(t, client, 5); a != 0 || b != 5 {
			t.Fatalf("calls went %d to %d", a, b)
		}
		// The first is preferred as soon as it is there.
		h.newServer(0, named("0"))
		eventually(t, "the first session", func() bool { return conn.balancer.endpoints[0].ready() != nil })
		if a, b := callsTo(t, client, 5); a != 5 || b != 0 {
			t.Fatalf("calls went %d to %d", a, b)
		}
	})
}

func TestLeastOutstanding(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		h.newServer(0, named("0"))
		h.newServer(1, named("1"))
		conn := h.newConn(WithEndpoint(h.address(1)), WithDefaultServiceConfig(`{"loadBalancingPolicy": "least_outstanding"}`))
		client := pb.NewTestClient(conn)
		conn.Connect()
		eventually(t, "both sessions", func() bool {
			return conn.balancer.endpoints[0].ready() != nil && conn.balancer.endpoints[1].ready() != nil
		})
		// Somebody else keeps the first server busy.
		other, err := pb.NewTestClient(h.newConn()).Bidi(testContext(t))
		wantNoError(t, err)
		wantNoError(t, other.Send(&pb.Request{}))
		_, err = other.Recv()
		wantNoError(t, err)
		eventually(t, "the first server's load", func() bool { return conn.balancer.endpoints[0].ready().load() == 1 })
		eventually(t, "the second server's load", func() bool { return conn.balancer.endpoints[1].ready().load() == 0 })
		for range 5 {
			if a, b := callsTo(t, client, 1); a != 0 || b != 1 {
				t.Fatalf("a call went to the busy server")
			}
			eventually(t, "the second server's load", func() bool { return conn.balancer.endpoints[1].ready().load() == 0 })
		}
	})
}

// A session may be over before the call that has waited for it looks: another is made.
func TestASessionThatEndsAtOnceIsMadeAgain(t *testing.T) {
	overFake(t, func(t *testing.T, h *harness) {
		h.newServer(0, &testService{})
		var dialed atomic.Int32
		conn, err := NewClient(h.address(0), withDialer(func(ctx context.Context, address string) (call.Client, error) {
			client, err := h.network.Dial(ctx, address)
			if err == nil && dialed.Add(1) <= 5 {
				client.Close()
			}
			return client, err
		}))
		wantNoError(t, err)
		t.Cleanup(func() { conn.Close() })
		_, err = pb.NewTestClient(conn).Unary(testContext(t), &pb.Request{}, grpc.WaitForReady(true))
		wantNoError(t, err)
		if n := dialed.Load(); n != 6 {
			t.Errorf("%d sessions were made", n)
		}
	})
}
