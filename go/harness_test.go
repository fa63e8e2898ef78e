package tollfree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/calltest"
	pb "github.com/tollfree/tollfree/go/internal/testproto"
)

// A carrier is what carries a test's calls.
type carrier struct {
	name    string
	address func(t testing.TB, number int) string
	server  func(h *harness) []ServerOption
	client  func(h *harness) []DialOption
}

// carriers are what tests of calls run over.
var carriers = []carrier{fakeCarrier, shmCarrier}

var fakeCarrier = carrier{
	name:    "fake",
	address: func(_ testing.TB, number int) string { return fmt.Sprintf("shm:///fake/%d.sock", number) },
	server: func(h *harness) []ServerOption {
		return []ServerOption{withListen(func(address string) (call.Listener, error) {
			l, err := h.network.Listen(address, h.config)
			if err != nil {
				return nil, err
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			h.fakes[address] = l
			return l, nil
		})}
	},
	client: func(h *harness) []DialOption { return []DialOption{withDialer(h.network.Dial)} },
}

// shmCarrier is the real one, at sockets in a directory of the test's.
var shmCarrier = carrier{
	name: "shm",
	address: func(t testing.TB, number int) string {
		return fmt.Sprintf("shm://%s/%d.sock", socketDirectory(t), number)
	},
	server: func(*harness) []ServerOption { return nil },
	client: func(*harness) []DialOption { return nil },
}

var socketDirectories sync.Map // by test

// socketDirectory is short, unlike t.TempDir: a socket's path has at most 107 bytes.
func socketDirectory(t testing.TB) string {
	if known, ok := socketDirectories.Load(t); ok {
		return known.(string)
	}
	directory, err := os.MkdirTemp("", "tollfree")
	if err != nil {
		t.Fatal(err)
	}
	socketDirectories.Store(t, directory)
	t.Cleanup(func() {
		socketDirectories.Delete(t)
		if left, err := os.ReadDir(directory); err != nil || len(left) > 0 {
			t.Errorf("left in the sockets' directory: %v, %v", left, err)
		}
		os.RemoveAll(directory)
	})
	return directory
}

// overCarriers runs a test over each carrier, and checks that it leaves no goroutine.
func overCarriers(t *testing.T, test func(t *testing.T, h *harness)) {
	for _, c := range carriers {
		t.Run(c.name, func(t *testing.T) { withCarrier(t, c, test) })
	}
}

// overFake runs a test that needs faults which only the fake makes.
func overFake(t *testing.T, test func(t *testing.T, h *harness)) { withCarrier(t, fakeCarrier, test) }

func withCarrier(t *testing.T, c carrier, test func(t *testing.T, h *harness)) {
	goroutines, descriptors := runtime.NumGoroutine(), countDescriptors(t)
	t.Cleanup(func() { // It runs last.
		noMore(t, "goroutines", goroutines, runtime.NumGoroutine)
		noMore(t, "descriptors", descriptors, func() int { return countDescriptors(t) })
	})
	test(t, newHarness(t, c))
}

func newHarness(t testing.TB, c carrier) *harness {
	return &harness{t: t, carrier: c, network: &calltest.Network{}, fakes: map[string]*calltest.Listener{}}
}

func countDescriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func noMore(t *testing.T, what string, before int, count func() int) {
	t.Helper()
	now := 0
	for range 200 {
		if now = count(); now <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	stacks := make([]byte, 1<<20)
	t.Errorf("%d %s before, %d after:\n%s", before, what, now, stacks[:runtime.Stack(stacks, true)])
}

type harness struct {
	t       testing.TB
	carrier carrier
	network *calltest.Network
	config  calltest.Config

	mu    sync.Mutex
	fakes map[string]*calltest.Listener
}

func (h *harness) address(number int) string { return h.carrier.address(h.t, number) }

func (h *harness) fake(number int) *calltest.Listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fakes[h.address(number)]
}

// newServer makes a server with the test's service, which serves at the numbered address until the test ends.
func (h *harness) newServer(number int, service pb.TestServer, options ...ServerOption) *Server {
	h.t.Helper()
	s := NewServer(append(h.carrier.server(h), options...)...)
	pb.RegisterTestServer(s, service)
	h.serve(s, number)
	return s
}

func (h *harness) serve(s *Server, number int) {
	h.t.Helper()
	l, err := s.Listen(h.address(number))
	if err != nil {
		h.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.ServeListener(l) }()
	h.t.Cleanup(func() {
		s.Stop()
		select {
		case err := <-done:
			// A test may end before its server has begun to serve.
			if err != nil && err != grpc.ErrServerStopped {
				h.t.Errorf("Serve returned %v", err)
			}
		case <-time.After(10 * time.Second):
			h.t.Error("Serve has not returned after Stop")
		}
	})
}

func (h *harness) newConn(options ...DialOption) *ClientConn {
	h.t.Helper()
	return h.connTo(0, options...)
}

func (h *harness) connTo(number int, options ...DialOption) *ClientConn {
	h.t.Helper()
	conn, err := NewClient(h.address(number), append(h.carrier.client(h), options...)...)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { conn.Close() })
	return conn
}

// pair is a server with the plain service, and a client of it.
func (h *harness) pair(options ...DialOption) pb.TestClient {
	h.t.Helper()
	h.newServer(0, &testService{})
	return pb.NewTestClient(h.newConn(options...))
}

// testContext ends calls of a test that hangs.
func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// testService echoes. What is nil does what its name says.
type testService struct {
	pb.UnimplementedTestServer
	unary  func(ctx context.Context, in *pb.Request) (*pb.Reply, error)
	server func(in *pb.Request, stream grpc.ServerStreamingServer[pb.Reply]) error
	client func(stream grpc.ClientStreamingServer[pb.Request, pb.Reply]) error
	bidi   func(stream grpc.BidiStreamingServer[pb.Request, pb.Reply]) error
}

func (s *testService) Unary(ctx context.Context, in *pb.Request) (*pb.Reply, error) {
	if s.unary != nil {
		return s.unary(ctx, in)
	}
	return &pb.Reply{Text: in.Text, Data: in.Data}, nil
}

func (s *testService) ServerStream(in *pb.Request, stream grpc.ServerStreamingServer[pb.Reply]) error {
	if s.server != nil {
		return s.server(in, stream)
	}
	for i := range in.Count {
		if err := stream.Send(&pb.Reply{Text: in.Text, Data: in.Data, Count: i}); err != nil {
			return err
		}
	}
	return nil
}

func (s *testService) ClientStream(stream grpc.ClientStreamingServer[pb.Request, pb.Reply]) error {
	if s.client != nil {
		return s.client(stream)
	}
	var texts []string
	for {
		in, err := stream.Recv()
		if err == io.EOF {
			return stream.SendAndClose(&pb.Reply{Text: strings.Join(texts, " "), Count: int32(len(texts))})
		}
		if err != nil {
			return err
		}
		texts = append(texts, in.Text)
	}
}

func (s *testService) Bidi(stream grpc.BidiStreamingServer[pb.Request, pb.Reply]) error {
	if s.bidi != nil {
		return s.bidi(stream)
	}
	for {
		in, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(&pb.Reply{Text: in.Text, Data: in.Data, Count: in.Count}); err != nil {
			return err
		}
	}
}

// shared is a value that a handler and its test have in common: the race detector does not see that a message passes between
// them.
type shared[T any] struct {
	mu    sync.Mutex
	value T
}

func (s *shared[T]) set(value T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.value = value
}

func (s *shared[T]) get() T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value
}

func wantCode(t *testing.T, err error, code codes.Code, words ...string) {
	t.Helper()
	if status.Code(err) != code {
		t.Fatalf("got %v, want %v", err, code)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Fatalf("%q does not say %q", err, word)
		}
	}
}

func wantNoError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantValues(t *testing.T, md metadata.MD, name string, want ...string) {
	t.Helper()
	if got := md.Get(name); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%s is %q, want %q, in %v", name, got, want, md)
	}
}

// eventually waits until condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for range 1000 {
		if condition() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("never: %s", what)
}

// waitAWhile is for what must not happen.
func waitAWhile() <-chan time.Time { return time.After(50 * time.Millisecond) }

var errPlain = errors.New("no status")

// allocations counts those of call, after some calls. A collection empties pools: of several rounds the best counts.
func allocations(call func()) float64 {
	for range 100 {
		call()
	}
	rounds, calls := 5, 500
	if raceDetector {
		// It has sync.Pool drop what it is given, now and then: some calls are without.
		rounds, calls = 2000, 1
	}
	best := float64(1000)
	for range rounds {
		best = min(best, testing.AllocsPerRun(calls, call))
	}
	return best
}
