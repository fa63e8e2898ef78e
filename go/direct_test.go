//lint:file-ignore SA1019 the service is deprecated so that generated code is tested to say so

package tollfree_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	tollfree "github.com/tollfree/tollfree/go"
	direct "github.com/tollfree/tollfree/go/internal/directproto"
)

// noted are values that goroutines note for their test.
type noted[T any] struct {
	mu     sync.Mutex
	values []T
}

func (n *noted[T]) note(value T) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.values = append(n.values, value)
}

func (n *noted[T]) all() []T {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.values)
}

// directService echoes; unary, where set, takes Unary's place.
type directService struct {
	direct.UnimplementedTestServer
	unary func(ctx context.Context, in *direct.Request) (*direct.Reply, error)
}

func (s *directService) Unary(ctx context.Context, in *direct.Request) (*direct.Reply, error) {
	if s.unary != nil {
		return s.unary(ctx, in)
	}
	return &direct.Reply{Text: in.Text, Data: in.Data}, nil
}

func (*directService) ServerStream(in *direct.Request, stream grpc.ServerStreamingServer[direct.Reply]) error {
	for i := range in.Count {
		if err := stream.Send(&direct.Reply{Text: in.Text, Count: i}); err != nil {
			return err
		}
	}
	return nil
}

func (*directService) ClientStream(stream grpc.ClientStreamingServer[direct.Request, direct.Reply]) error {
	var texts []string
	for {
		in, err := stream.Recv()
		if err == io.EOF {
			return stream.SendAndClose(&direct.Reply{Text: strings.Join(texts, " ")})
		}
		if err != nil {
			return err
		}
		texts = append(texts, in.Text)
	}
}

func (*directService) Bidi(stream grpc.BidiStreamingServer[direct.Request, direct.Reply]) error {
	for {
		in, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(&direct.Reply{Text: in.Text}); err != nil {
			return err
		}
	}
}

type oddService struct{ direct.UnimplementedOddServer }

func (oddService) Vt(_ context.Context, in *direct.Fast) (*direct.Fast, error) { return in, nil }

func (oddService) VtStream(stream grpc.BidiStreamingServer[direct.Fast, direct.Fast]) error {
	in := new(direct.Fast)
	for {
		// One message is received again and again: what it had before must not stay.
		if err := stream.RecvMsg(in); err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		if err := stream.Send(in); err != nil {
			return err
		}
	}
}

func (oddService) Nothing(context.Context, *emptypb.Empty) (*emptypb.Empty, error) {
	return new(emptypb.Empty), nil
}

func serveDirect(h *tollfree.Harness, service direct.TestServer, options ...tollfree.ServerOption) {
	s := h.Prepare(options...)
	direct.RegisterTestServer(s, service)
	direct.RegisterOddServer(s, oddService{})
	h.Start(s)
}

// directPair is a server with a service, and a client of it, both by generated code for package tollfree.
func directPair(h *tollfree.Harness, service *directService, options ...tollfree.ServerOption) direct.TestClient {
	serveDirect(h, service, options...)
	return direct.NewTestClient(h.Connect())
}

func callAllDirectKinds(t *testing.T, client direct.TestClient, odd direct.OddClient) {
	t.Helper()
	ctx := tollfree.TestContext(t)
	for _, size := range []int{0, 1, 1020, 1024, 1025, 70_000, 1 << 20} {
		data := bytes.Repeat([]byte{byte(size), 3}, size/2+1)[:size]
		reply, err := client.Unary(ctx, &direct.Request{Text: "x", Data: data})
		tollfree.WantNoError(t, err)
		if reply.Text != "x" || !bytes.Equal(reply.Data, data) {
			t.Fatalf("%d bytes came back different", size)
		}
		fast, err := odd.Vt(ctx, &direct.Fast{Data: data})
		tollfree.WantNoError(t, err)
		if !bytes.Equal(fast.Data, data) {
			t.Fatalf("%d bytes came back different", size)
		}
	}
	_, err := odd.Nothing(ctx, new(emptypb.Empty))
	tollfree.WantNoError(t, err)

	replies, err := client.ServerStream(ctx, &direct.Request{Text: "x", Count: 100})
	tollfree.WantNoError(t, err)
	for i := range int32(100) {
		reply, err := replies.Recv()
		tollfree.WantNoError(t, err)
		if reply.Count != i {
			t.Fatalf("got %d, want %d", reply.Count, i)
		}
	}
	if _, err := replies.Recv(); err != io.EOF {
		t.Fatalf("the stream ends with %v", err)
	}

	requests, err := client.ClientStream(ctx)
	tollfree.WantNoError(t, err)
	for _, text := range []string{"a", "b", "c"} {
		tollfree.WantNoError(t, requests.Send(&direct.Request{Text: text}))
	}
	reply, err := requests.CloseAndRecv()
	tollfree.WantNoError(t, err)
	if reply.Text != "a b c" {
		t.Fatalf("got %q", reply.Text)
	}

	both, err := client.Bidi(ctx)
	tollfree.WantNoError(t, err)
	fast, err := odd.VtStream(ctx)
	tollfree.WantNoError(t, err)
	for i := range 20 {
		// Each is shorter than the one before, and the last empty: what is received into a message takes the place of all of it.
		text := strings.Repeat("y", 19-i)
		tollfree.WantNoError(t, both.Send(&direct.Request{Text: text}))
		reply, err := both.Recv()
		tollfree.WantNoError(t, err)
		tollfree.WantNoError(t, fast.Send(&direct.Fast{Data: []byte(text)}))
		back, err := fast.Recv()
		tollfree.WantNoError(t, err)
		if reply.Text != text || string(back.Data) != text {
			t.Fatalf("got %q and %q, want %q", reply.Text, back.Data, text)
		}
	}
	tollfree.WantNoError(t, both.CloseSend())
	tollfree.WantNoError(t, fast.CloseSend())
	for _, receive := range []func() error{func() error { _, err := both.Recv(); return err }, func() error { _, err := fast.Recv(); return err }} {
		if err := receive(); err != io.EOF {
			t.Fatalf("the stream ends with %v", err)
		}
	}
}

func TestDirectStubsMakeAllFourKindsOfCalls(t *testing.T) {
	tollfree.OverCarriers(t, func(t *testing.T, h *tollfree.Harness) {
		serveDirect(h, &directService{})
		conn := h.Connect()
		callAllDirectKinds(t, direct.NewTestClient(conn), direct.NewOddClient(conn))
	})
}

func TestDirectStubsMakeCallsInline(t *testing.T) {
	tollfree.OverSharedMemory(t, func(t *testing.T, h *tollfree.Harness) {
		serveDirect(h, &directService{}, tollfree.Inline(direct.Test_Unary_FullMethodName, direct.Odd_Vt_FullMethodName))
		conn := h.Connect()
		callAllDirectKinds(t, direct.NewTestClient(conn), direct.NewOddClient(conn))
	})
}

func TestDirectStubsMakeCallsOverGRPC(t *testing.T) {
	listener, err := net.Listen("tcp", "localhost:0")
	tollfree.WantNoError(t, err)
	server := grpc.NewServer()
	direct.RegisterTestServer(server, &directService{})
	direct.RegisterOddServer(server, oddService{})
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	tollfree.WantNoError(t, err)
	t.Cleanup(func() { conn.Close() })
	callAllDirectKinds(t, direct.NewTestClient(conn), direct.NewOddClient(conn))
}

func TestDirectStubsEncodeByVtprotobuf(t *testing.T) {
	tollfree.OverCarriers(t, func(t *testing.T, h *tollfree.Harness) {
		serveDirect(h, &directService{})
		client := direct.NewOddClient(h.Connect())
		calls := func() [2]int64 {
			return [2]int64{direct.FastCalls.Marshal.Load(), direct.FastCalls.Unmarshal.Load()}
		}
		before := calls()
		for _, size := range []int{10, 5000} {
			_, err := client.Vt(tollfree.TestContext(t), &direct.Fast{Data: make([]byte, size)})
			tollfree.WantNoError(t, err)
		}
		stream, err := client.VtStream(tollfree.TestContext(t))
		tollfree.WantNoError(t, err)
		tollfree.WantNoError(t, stream.Send(&direct.Fast{Data: []byte("x")}))
		_, err = stream.Recv()
		tollfree.WantNoError(t, err)
		tollfree.WantNoError(t, stream.CloseSend())
		_, err = stream.Recv()
		if err != io.EOF {
			t.Fatal(err)
		}
		after := calls()
		if encoded, decoded := after[0]-before[0], after[1]-before[1]; h.IsFake() {
			// The fake's server knows of no direct calls.
			if encoded < 4 || decoded < 4 {
				t.Errorf("%d messages were encoded and %d decoded by vtprotobuf's methods, of three each way", encoded, decoded)
			}
		} else if encoded != 6 || decoded != 6 {
			t.Errorf("%d messages were encoded and %d decoded by vtprotobuf's methods, of three each way", encoded, decoded)
		}
	})
}

func TestDirectHandlersSeeAndSetMetadata(t *testing.T) {
	tollfree.OverCarriers(t, func(t *testing.T, h *tollfree.Harness) {
		client := directPair(h, &directService{unary: func(ctx context.Context, in *direct.Request) (*direct.Reply, error) {
			md, _ := metadata.FromIncomingContext(ctx)
			if from, ok := peer.FromContext(ctx); !ok || from.AuthInfo == nil {
				return nil, status.Error(codes.Internal, "no peer")
			}
			if method, ok := grpc.Method(ctx); !ok || method != direct.Test_Unary_FullMethodName {
				return nil, status.Errorf(codes.Internal, "the method is %q", method)
			}
			if err := grpc.SetHeader(ctx, metadata.Pairs("first", "1")); err != nil {
				return nil, err
			}
			if in.Text == "early" {
				if err := grpc.SendHeader(ctx, metadata.Pairs("second", "2")); err != nil {
					return nil, err
				}
				if err := grpc.SetHeader(ctx, metadata.Pairs("late", "x")); err == nil {
					return nil, status.Error(codes.Internal, "a header was set after it was sent")
				}
			}
			if err := grpc.SetTrailer(ctx, metadata.Pairs("last", "3")); err != nil {
				return nil, err
			}
			if in.Text == "fail" {
				return nil, status.Error(codes.NotFound, "no such thing")
			}
			return &direct.Reply{Text: strings.Join(md.Get("asked"), ",")}, nil
		}})
		for _, text := range []string{"", "early", "fail"} {
			var header, trailer metadata.MD
			ctx := metadata.AppendToOutgoingContext(tollfree.TestContext(t), "asked", "why")
			reply, err := client.Unary(ctx, &direct.Request{Text: text}, grpc.Header(&header), grpc.Trailer(&trailer))
			if text == "fail" {
				tollfree.WantCode(t, err, codes.NotFound, "no such thing")
			} else {
				tollfree.WantNoError(t, err)
				if reply.Text != "why" {
					t.Fatalf("the handler saw %q", reply.Text)
				}
			}
			tollfree.WantValues(t, header, "first", "1")
			tollfree.WantValues(t, trailer, "last", "3")
			if text == "early" {
				tollfree.WantValues(t, header, "second", "2")
			}
		}
		// The same without anything that a client asks for.
		_, err := client.Unary(context.Background(), &direct.Request{Text: "fail"})
		tollfree.WantCode(t, err, codes.NotFound, "no such thing")
	})
}

func TestDirectHandlersContextsEnd(t *testing.T) {
	tollfree.OverCarriers(t, func(t *testing.T, h *tollfree.Harness) {
		var kept noted[context.Context]
		began := make(chan struct{}, 1)
		client := directPair(h, &directService{unary: func(ctx context.Context, in *direct.Request) (*direct.Reply, error) {
			kept.note(ctx)
			if in.Text != "wait" {
				return new(direct.Reply), nil
			}
			if _, has := ctx.Deadline(); in.Count == 1 && !has {
				return nil, status.Error(codes.Internal, "no deadline")
			}
			began <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		_, err := client.Unary(context.Background(), new(direct.Request))
		tollfree.WantNoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			<-began
			cancel()
		}()
		_, err = client.Unary(ctx, &direct.Request{Text: "wait"})
		tollfree.WantCode(t, err, codes.Canceled)
		ctx, cancel = context.WithTimeout(context.Background(), 30*time.Millisecond)
		defer cancel()
		_, err = client.Unary(ctx, &direct.Request{Text: "wait", Count: 1})
		tollfree.WantCode(t, err, codes.DeadlineExceeded)
		// Calls that come later must not bring a kept context back to life.
		for range 20 {
			_, err = client.Unary(context.Background(), new(direct.Request))
			tollfree.WantNoError(t, err)
		}
		tollfree.Eventually(t, "all contexts are over", func() bool {
			for _, ctx := range kept.all() {
				if ctx.Err() == nil {
					return false
				}
			}
			return true
		})
		for i, ctx := range kept.all() {
			select {
			case <-ctx.Done():
			default:
				t.Errorf("the context of call %d is not done", i)
			}
			if grpc.SendHeader(ctx, nil) == nil {
				t.Errorf("the header of call %d can be sent after its end", i)
			}
		}
	})
}

func TestDirectCallsKeepLimitsAndCodecs(t *testing.T) {
	tollfree.OverCarriers(t, func(t *testing.T, h *tollfree.Harness) {
		serveDirect(h, &directService{}, tollfree.MaxRecvMsgSize(2000))
		data := make([]byte, 3000)
		client := direct.NewTestClient(h.Connect())
		_, err := client.Unary(tollfree.TestContext(t), &direct.Request{Data: data})
		tollfree.WantCode(t, err, codes.ResourceExhausted)
		_, err = client.Unary(tollfree.TestContext(t), &direct.Request{Data: data[:1500]}, grpc.UseCompressor(gzip.Name))
		tollfree.WantNoError(t, err)
		client = direct.NewTestClient(h.Connect(tollfree.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1000), grpc.MaxCallSendMsgSize(1800))))
		_, err = client.Unary(tollfree.TestContext(t), &direct.Request{Data: data[:1500]})
		tollfree.WantCode(t, err, codes.ResourceExhausted)
		_, err = client.Unary(tollfree.TestContext(t), &direct.Request{Data: data[:1900]})
		tollfree.WantCode(t, err, codes.ResourceExhausted, "1800")
		_, err = client.Unary(tollfree.TestContext(t), &direct.Request{Text: "\xff"})
		tollfree.WantCode(t, err, codes.Internal, "can't be encoded")
	})
}

func TestDirectStubsRunInterceptors(t *testing.T) {
	tollfree.OverCarriers(t, func(t *testing.T, h *tollfree.Harness) {
		var seen noted[string]
		serveDirect(h, &directService{}, tollfree.UnaryInterceptor(func(ctx context.Context, in any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			seen.note("server " + info.FullMethod)
			return handler(ctx, in)
		}))
		client := direct.NewTestClient(h.Connect(tollfree.WithUnaryInterceptor(
			func(ctx context.Context, method string, in, out any, conn *grpc.ClientConn, next grpc.UnaryInvoker, options ...grpc.CallOption) error {
				seen.note("client " + method)
				return next(ctx, method, in, out, conn, options...)
			})))
		_, err := client.Unary(tollfree.TestContext(t), new(direct.Request))
		tollfree.WantNoError(t, err)
		want := fmt.Sprint([]string{"client " + direct.Test_Unary_FullMethodName, "server " + direct.Test_Unary_FullMethodName})
		if got := fmt.Sprint(seen.all()); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// Calls that a server has not looked at go on to another session.
func TestDirectCallsMoveOn(t *testing.T) {
	tollfree.OverFake(t, func(t *testing.T, h *tollfree.Harness) {
		client := directPair(h, &directService{})
		_, err := client.Unary(tollfree.TestContext(t), new(direct.Request))
		tollfree.WantNoError(t, err)
		h.RefuseCalls(2)
		reply, err := client.Unary(tollfree.TestContext(t), &direct.Request{Text: "again"})
		tollfree.WantNoError(t, err)
		if reply.Text != "again" {
			t.Fatalf("got %q", reply.Text)
		}
	})
}
