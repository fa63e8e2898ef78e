package tollfree

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/tollfree/tollfree/go/internal/testproto"
)

// flaky fails its first calls.
type flaky struct {
	failures atomic.Int32 // that are left
	calls    atomic.Int32
	trailer  shared[metadata.MD]
	headers  atomic.Bool
	attempts shared[string] // grpc-previous-rpc-attempts of the last call
}

func (f *flaky) fail(ctx context.Context) error {
	f.calls.Add(1)
	f.attempts.set(strings.Join(metadata.ValueFromIncomingContext(ctx, headerAttempts), ","))
	if f.failures.Add(-1) < 0 {
		return nil
	}
	if f.headers.Load() {
		if err := grpc.SendHeader(ctx, metadata.Pairs("x", "y")); err != nil {
			return err
		}
	}
	if err := grpc.SetTrailer(ctx, f.trailer.get()); err != nil {
		return err
	}
	return status.Error(codes.Unavailable, "flaky")
}

func (f *flaky) service() *testService {
	s := &testService{}
	plain := &testService{}
	s.unary = func(ctx context.Context, in *pb.Request) (*pb.Reply, error) {
		if err := f.fail(ctx); err != nil {
			return nil, err
		}
		return plain.Unary(ctx, in)
	}
	s.server = func(in *pb.Request, stream grpc.ServerStreamingServer[pb.Reply]) error {
		if err := f.fail(stream.Context()); err != nil {
			return err
		}
		return plain.ServerStream(in, stream)
	}
	s.client = func(stream grpc.ClientStreamingServer[pb.Request, pb.Reply]) error {
		for range 2 {
			if _, err := stream.Recv(); err != nil {
				return err
			}
		}
		if err := f.fail(stream.Context()); err != nil {
			return err
		}
		return plain.ClientStream(stream)
	}
	s.bidi = func(stream grpc.BidiStreamingServer[pb.Request, pb.Reply]) error {
		if err := f.fail(stream.Context()); err != nil {
			return err
		}
		return plain.Bidi(stream)
	}
	return s
}

const retryConfig = `{"methodConfig": [{"name": [{"service": "tollfree.test.Test"}], "retryPolicy": {"maxAttempts": 4,
	"initialBackoff": "0.002s", "maxBackoff": "0.01s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`

func TestRetryPolicy(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		f := &flaky{}
		h.newServer(0, f.service())
		client := pb.NewTestClient(h.newConn(WithDefaultServiceConfig(retryConfig)))
		check := func(kind string, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			if calls := f.calls.Swap(0); calls != 4 || f.attempts.get() != "3" {
				t.Fatalf("%s: %d attempts, the last of which said %q", kind, calls, f.attempts.get())
			}
		}
		f.failures.Store(3)
		reply, err := client.Unary(testContext(t), &pb.Request{Text: "x", Data: make([]byte, 100_000)})
		check("unary", err)
		if reply.Text != "x" || len(reply.Data) != 100_000 {
			t.Fatal("the answer is another call's")
		}

		f.failures.Store(3)
		replies, err := client.ServerStream(testContext(t), &pb.Request{Count: 3})
		wantNoError(t, err)
		_, err = replies.Recv()
		check("server stream", err)

		f.failures.Store(3)
		requests, err := client.ClientStream(testContext(t))
		wantNoError(t, err)
		for i := range 5 {
			wantNoError(t, requests.Send(&pb.Request{Text: fmt.Sprint(i)}))
		}
		reply, err = requests.CloseAndRecv()
		check("client stream", err)
		if reply.Text != "2 3 4" { // The handler has read two before it failed or not.
			t.Fatalf("the last attempt got %q", reply.Text)
		}

		f.failures.Store(3)
		both, err := client.Bidi(testContext(t))
		wantNoError(t, err)
		wantNoError(t, both.Send(&pb.Request{Text: "y"}))
		reply, err = both.Recv()
		check("both", err)
		if reply.Text != "y" {
			t.Fatalf("got %q", reply.Text)
		}
		wantNoError(t, both.CloseSend())
		if _, err := both.Recv(); err != io.EOF {
			t.Fatal(err)
		}

		// More failures than attempts.
		f.failures.Store(10)
		_, err = client.Unary(testContext(t), &pb.Request{})
		wantCode(t, err, codes.Unavailable, "flaky")
		if calls := f.calls.Swap(0); calls != 4 {
			t.Fatalf("%d attempts", calls)
		}
	})
}

func TestWhatIsNotRetried(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		f := &flaky{}
		h.newServer(0, f.service())
		client := pb.NewTestClient(h.newConn(WithDefaultServiceConfig(retryConfig)))
		once := func(why string) {
			t.Helper()
			f.failures.Store(1)
			_, err := client.Unary(testContext(t), &pb.Request{})
			wantCode(t, err, codes.Unavailable)
			if calls := f.calls.Swap(0); calls != 1 {
				t.Fatalf("%s: %d attempts", why, calls)
			}
		}
		f.headers.Store(true)
		once("a call that was answered with headers")
		f.headers.Store(false)
		f.trailer.set(metadata.Pairs(headerPushback, "-1"))
		once("a call whose server asks for no retry")
		f.trailer.set(metadata.Pairs(headerPushback, "soon"))
		once("a call whose server asks for something else")
		f.trailer.set(nil)
		// A stream that is longer than what is kept of it.
		f.failures.Store(1)
		both, err := client.Bidi(testContext(t), grpc.MaxRetryRPCBufferSize(10))
		wantNoError(t, err)
		if err := both.Send(&pb.Request{Data: make([]byte, 100)}); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		_, err = both.Recv()
		wantCode(t, err, codes.Unavailable)
		if calls := f.calls.Swap(0); calls != 1 {
			t.Fatalf("%d attempts", calls)
		}
	})
}

func TestPushback(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		f := &flaky{}
		f.trailer.set(metadata.Pairs(headerPushback, "60"))
		h.newServer(0, f.service())
		client := pb.NewTestClient(h.newConn(WithDefaultServiceConfig(retryConfig)))
		f.failures.Store(1)
		begun := time.Now()
		_, err := client.Unary(testContext(t), &pb.Request{})
		wantNoError(t, err)
		if took := time.Since(begun); took < 60*time.Millisecond {
			t.Fatalf("the call was made again after %v", took)
		}
	})
}

func TestRetryThrottling(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		f := &flaky{}
		h.newServer(0, f.service())
		config := strings.TrimSuffix(retryConfig, "}") + `, "retryThrottling": {"maxTokens": 4, "tokenRatio": 0.5}}`
		client := pb.NewTestClient(h.newConn(WithDefaultServiceConfig(config)))
		f.failures.Store(100)
		_, err := client.Unary(testContext(t), &pb.Request{})
		wantCode(t, err, codes.Unavailable)
		if calls := f.calls.Swap(0); calls != 2 { // The second failure leaves half of the tokens.
			t.Fatalf("%d attempts", calls)
		}
		f.failures.Store(0)
		for range 4 {
			_, err := client.Unary(testContext(t), &pb.Request{})
			wantNoError(t, err)
		}
		f.calls.Store(0)
		f.failures.Store(1)
		_, err = client.Unary(testContext(t), &pb.Request{})
		wantNoError(t, err)
		if calls := f.calls.Load(); calls != 2 {
			t.Fatalf("%d attempts", calls)
		}
	})
}

func TestUnprocessedCallsMove(t *testing.T) {
	overFake(t, func(t *testing.T, h *harness) {
		h.newServer(0, &testService{})
		client := pb.NewTestClient(h.newConn())
		ctx := testContext(t)
		h.fake(0).RefuseCalls(3)
		_, err := client.Unary(ctx, &pb.Request{})
		wantNoError(t, err)

		h.fake(0).RefuseCalls(2)
		requests, err := client.ClientStream(ctx)
		wantNoError(t, err)
		for i := range 20 {
			wantNoError(t, requests.Send(&pb.Request{Text: fmt.Sprint(i)}))
		}
		reply, err := requests.CloseAndRecv()
		wantNoError(t, err)
		if reply.Count != 20 || !strings.HasPrefix(reply.Text, "0 1 2 3 ") {
			t.Fatalf("the server got %d messages: %q", reply.Count, reply.Text)
		}

		h.fake(0).RefuseCalls(2)
		replies, err := client.ServerStream(ctx, &pb.Request{Count: 2})
		wantNoError(t, err)
		header, err := replies.Header()
		wantNoError(t, err)
		wantValues(t, header, "content-type", "application/grpc")
		_, err = replies.Recv()
		wantNoError(t, err)

		// Without a deadline there is an end to it.
		h.fake(0).RefuseCalls(1000)
		_, err = client.Unary(context.Background(), &pb.Request{})
		wantCode(t, err, codes.Unavailable, "refuses")
		_, err = client.ClientStream(context.Background())
		wantNoError(t, err)
		h.fake(0).RefuseCalls(0)
	})
}

// A sender that does not receive learns of a refusal all the same, while another goroutine receives or none does.
func TestSendersMoveToo(t *testing.T) {
	for _, receives := range []bool{false, true} {
		t.Run(fmt.Sprint("receives ", receives), func(t *testing.T) {
			overFake(t, func(t *testing.T, h *harness) {
				h.newServer(0, &testService{})
				client := pb.NewTestClient(h.newConn())
				h.fake(0).RefuseCalls(3)
				stream, err := client.Bidi(testContext(t), grpc.MaxRetryRPCBufferSize(1<<20))
				wantNoError(t, err)
				done := make(chan error, 1)
				const count = 200
				receive := func() {
					for i := range int32(count) {
						reply, err := stream.Recv()
						if err == nil && reply.Count != i {
							err = fmt.Errorf("message %d came for %d", reply.Count, i)
						}
						if err != nil {
							done <- err
							return
						}
					}
					_, err := stream.Recv()
					done <- err
				}
				if receives {
					go receive()
				}
				for i := range int32(count) {
					if !receives && i == 20 {
						go receive()
					}
					wantNoError(t, stream.Send(&pb.Request{Count: i, Data: make([]byte, 4000)}))
				}
				wantNoError(t, stream.CloseSend())
				if err := <-done; err != io.EOF {
					t.Fatal(err)
				}
			})
		})
	}
}

func TestServiceConfig(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		h.newServer(0, &testService{bidi: func(stream grpc.BidiStreamingServer[pb.Request, pb.Reply]) error {
			<-stream.Context().Done()
			return nil
		}})
		client := pb.NewTestClient(h.newConn(WithDefaultServiceConfig(`{"methodConfig": [
			{"name": [{"service": "tollfree.test.Test", "method": "Bidi"}], "timeout": "0.05s"},
			{"name": [{"service": "tollfree.test.Test"}], "maxRequestMessageBytes": 1000, "maxResponseMessageBytes": "100"},
			{"name": [{}], "timeout": "0.001s"}]}`)))
		finished := make(chan error, 1)
		_, err := client.Bidi(context.Background(), grpc.OnFinish(func(err error) { finished <- err }))
		wantNoError(t, err)
		wantCode(t, <-finished, codes.DeadlineExceeded)
		_, err = client.Unary(testContext(t), &pb.Request{Data: make([]byte, 2000)})
		wantCode(t, err, codes.ResourceExhausted, "1000")
		_, err = client.Unary(testContext(t), &pb.Request{Data: make([]byte, 500)})
		wantCode(t, err, codes.ResourceExhausted, "100")
		_, err = client.Unary(testContext(t), &pb.Request{Data: make([]byte, 50)})
		wantNoError(t, err)
	})
}

func TestServiceConfigsThatAreRefused(t *testing.T) {
	for config, words := range map[string]string{
		`{`: "JSON",
		`{"loadBalancingConfig": [{"grpclb":{}}]}`:                                "grpclb",
		`{"loadBalancingPolicy": "weighted"}`:                                     "weighted",
		`{"healthCheckConfig": {"serviceName": 1}}`:                               "healthCheckConfig.serviceName",
		`{"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempts": 2}}]}`: "hedgingPolicy",
		`{"methodConfig": [{"name": [{"method": "x"}]}]}`:                         "no service",
		`{"methodConfig": [{"name": [{}]}, {"name": [{}]}]}`:                      "twice",
		`{"methodConfig": [{"name": [{}], "timeout": "1m"}]}`:                     "timeout",
		`{"methodConfig": [{"name": [{}], "timeout": "-1s"}]}`:                    "timeout",
		`{"methodConfig": [{"name": [{}], "maxRequestMessageBytes": -1}]}`:        "maxRequestMessageBytes",
		`{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 2}}]}`:   "initialBackoff",
		`{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 1, "initialBackoff": "1s", "maxBackoff": "1s", "backoffMultiplier": 1, "retryableStatusCodes": [14]}}]}`: "maxAttempts",
		`{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 2, "initialBackoff": "1s", "maxBackoff": "1s", "backoffMultiplier": 1}}]}`:                               "retryableStatusCodes",
		`{"retryThrottling": {"maxTokens": 0, "tokenRatio": 1}}`: "maxTokens",
		`{"retryThrottling": {"maxTokens": 9, "tokenRatio": 0}}`: "tokenRatio",
	} {
		if _, err := NewClient("shm:///a", WithDefaultServiceConfig(config)); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %q", config, err, words)
		}
	}
	if _, err := NewClient("shm:///a", WithDefaultServiceConfig(`{"new": 1, "loadBalancingConfig": [{"other": {}}, {"pick_first": {}}]}`)); err != nil {
		t.Error(err)
	}
}
