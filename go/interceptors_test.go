//lint:file-ignore SA1019 deprecated options are tested too

package tollfree

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"

	pb "github.com/tollfree/tollfree/go/internal/testproto"
)

// trace notes which interceptors run, in which order.
type trace struct {
	mu    sync.Mutex
	names []string
}

func (tr *trace) note(name string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.names = append(tr.names, name)
}

func (tr *trace) unaryClient(name string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, options ...grpc.CallOption) error {
		tr.note(name)
		ctx = metadata.AppendToOutgoingContext(ctx, "by", name)
		err := invoker(ctx, method, request, reply, cc, options...)
		tr.note("end of " + name)
		return err
	}
}

func (tr *trace) streamClient(name string) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
		tr.note(name)
		return streamer(metadata.AppendToOutgoingContext(ctx, "by", name), desc, cc, method, options...)
	}
}

func (tr *trace) unaryServer(name string) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		tr.note(name + strings.TrimPrefix(info.FullMethod, "/tollfree.test.Test/"))
		return handler(ctx, request)
	}
}

func (tr *trace) streamServer(name string) grpc.StreamServerInterceptor {
	return func(impl any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		tr.note(fmt.Sprint(name, " ", info.IsClientStream, info.IsServerStream))
		return handler(impl, stream)
	}
}

func (tr *trace) want(t *testing.T, names ...string) {
	t.Helper()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if !slices.Equal(tr.names, names) {
		t.Fatalf("got %q, want %q", tr.names, names)
	}
	tr.names = nil
}

func TestInterceptors(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		ofClient, ofServer := &trace{}, &trace{}
		h.newServer(0, &testService{unary: func(ctx context.Context, _ *pb.Request) (*pb.Reply, error) {
			return &pb.Reply{Text: fmt.Sprint(metadata.ValueFromIncomingContext(ctx, "by"))}, nil
		}},
			ChainUnaryInterceptor(ofServer.unaryServer("b"), ofServer.unaryServer("c")), UnaryInterceptor(ofServer.unaryServer("a")),
			ChainStreamInterceptor(ofServer.streamServer("b"), ofServer.streamServer("c")), StreamInterceptor(ofServer.streamServer("a")))
		conn := h.newConn(
			WithChainUnaryInterceptor(ofClient.unaryClient("b"), ofClient.unaryClient("c")), WithUnaryInterceptor(ofClient.unaryClient("a")),
			WithChainStreamInterceptor(ofClient.streamClient("b"), ofClient.streamClient("c")), WithStreamInterceptor(ofClient.streamClient("a")))
		client := pb.NewTestClient(conn)
		reply, err := client.Unary(testContext(t), &pb.Request{})
		wantNoError(t, err)
		if reply.Text != "[a b c]" {
			t.Fatalf("the server saw %s", reply.Text)
		}
		ofClient.want(t, "a", "b", "c", "end of c", "end of b", "end of a")
		ofServer.want(t, "aUnary", "bUnary", "cUnary")
		stream, err := client.ServerStream(testContext(t), &pb.Request{})
		wantNoError(t, err)
		if _, err := stream.Recv(); err != io.EOF {
			t.Fatal(err)
		}
		ofClient.want(t, "a", "b", "c")
		ofServer.want(t, "a false true", "b false true", "c false true")
	})
}

// What interceptors get as their connection makes calls, and says where to.
func TestConnectionOfInterceptors(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		h.newServer(0, &testService{})
		conn := h.newConn(WithUnaryInterceptor(func(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, options ...grpc.CallOption) error {
			if cc.Target() != h.address(0) {
				t.Errorf("the target is %q", cc.Target())
			}
			if request.(*pb.Request).Text == "first" {
				return invoker(ctx, method, request, reply, cc, options...)
			}
			extra, err := pb.NewTestClient(cc).Unary(ctx, &pb.Request{Text: "first"})
			if err != nil || extra.Text != "first" {
				t.Errorf("the interceptor's own call: %v, %v", extra, err)
			}
			return invoker(ctx, method, request, reply, nil, options...)
		}))
		reply, err := pb.NewTestClient(conn).Unary(testContext(t), &pb.Request{Text: "second"})
		wantNoError(t, err)
		if reply.Text != "second" {
			t.Fatalf("got %q", reply.Text)
		}
	})
}

func TestRealClientConnOverOurs(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		h.newServer(0, &testService{})
		ours := h.newConn()
		seen := &trace{}
		conn, err := grpc.NewClient(ours.Target(), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithChainUnaryInterceptor(seen.unaryClient("own"), UnaryOver(ours)), grpc.WithChainStreamInterceptor(StreamOver(ours)))
		wantNoError(t, err)
		defer conn.Close()
		client := pb.NewTestClient(conn)
		wantNoError(t, echoAll(testContext(t), client, 0))
		var header metadata.MD
		_, err = client.Unary(testContext(t), &pb.Request{}, grpc.Header(&header))
		wantNoError(t, err)
		wantValues(t, header, "content-type", "application/grpc")
		if len(seen.names) == 0 {
			t.Fatal("the connection's own interceptor was not called")
		}
		if state := conn.GetState(); state != connectivity.Idle {
			t.Fatalf("the connection is %s: it has connected by itself", state)
		}
	})
}

// embedding is an option for somebody's interceptor.
type embedding struct {
	grpc.EmptyCallOption
	value int
}

// hiding is an option that would be lost.
type hiding struct{ grpc.CallOption }

// textCodec encodes requests as their text alone.
type textCodec struct{ name string }

func (c textCodec) Name() string { return c.name }

func (c textCodec) Marshal(v any) ([]byte, error) {
	switch m := v.(type) {
	case *pb.Request:
		return []byte("text:" + m.Text), nil
	case *pb.Reply:
		return []byte("text:" + m.Text), nil
	}
	return nil, errPlain
}

func (c textCodec) Unmarshal(data []byte, v any) error {
	text, ok := strings.CutPrefix(string(data), "text:")
	if !ok {
		return errPlain
	}
	switch m := v.(type) {
	case *pb.Request:
		m.Text = text
	case *pb.Reply:
		m.Text = text
	}
	return nil
}

// textCodecV2 is the same with grpc's newer interface.
type textCodecV2 struct{ textCodec }

func (c textCodecV2) Marshal(v any) (mem.BufferSlice, error) {
	return bridgedCodec{c.textCodec}.Marshal(v)
}

func (c textCodecV2) Unmarshal(data mem.BufferSlice, v any) error {
	return bridgedCodec{c.textCodec}.Unmarshal(data, v)
}

// oldCodec is the same with grpc's oldest.
type oldCodec struct{ textCodec }

func (c oldCodec) String() string { return c.name }

func init() { encoding.RegisterCodec(textCodec{"test-text"}) }

func TestCodecs(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		var contentTypes shared[[]string]
		h.newServer(0, &testService{unary: func(ctx context.Context, in *pb.Request) (*pb.Reply, error) {
			contentTypes.set(metadata.ValueFromIncomingContext(ctx, "content-type"))
			return &pb.Reply{Text: in.Text}, nil
		}})
		h.serveForced(1)
		client := pb.NewTestClient(h.newConn())
		for name, option := range map[string]grpc.CallOption{
			"subtype":  grpc.CallContentSubtype("TEST-text"),
			"codec":    grpc.ForceCodec(textCodec{"test-text"}),
			"codec v2": grpc.ForceCodecV2(textCodecV2{textCodec{"test-text"}}),
			"old":      grpc.CallCustomCodec(oldCodec{textCodec{"test-text"}}),
		} {
			var header metadata.MD
			reply, err := client.Unary(testContext(t), &pb.Request{Text: name, Data: []byte("lost")}, option, grpc.Header(&header))
			wantNoError(t, err)
			if reply.Text != name || len(reply.Data) > 0 {
				t.Fatalf("%s: got %v", name, reply)
			}
			if got := contentTypes.get(); !slices.Equal(got, []string{"application/grpc+test-text"}) {
				t.Fatalf("%s: the content type is %q", name, got)
			}
			wantValues(t, header, "content-type", "application/grpc+test-text")
		}
		_, err := client.Unary(testContext(t), &pb.Request{}, grpc.CallContentSubtype("nobodys"))
		wantCode(t, err, codes.Internal, `"nobodys"`)
		_, err = client.Unary(testContext(t), &pb.Request{}, grpc.ForceCodec(textCodec{"nobodys"}))
		wantCode(t, err, codes.Unimplemented, `"nobodys"`)
		reply, err := pb.NewTestClient(h.connTo(1)).Unary(testContext(t), &pb.Request{Text: "x"}, grpc.ForceCodec(textCodec{"nobodys"}))
		wantNoError(t, err)
		if reply.Text != "x" {
			t.Fatalf("got %v", reply)
		}
	})
}

// serveForced has a server that knows one codec, whatever a call says.
func (h *harness) serveForced(number int) {
	h.newServer(number, &testService{}, ForceServerCodec(textCodec{"test-text"}))
}

func TestCallOptions(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		client := h.pair(WithDefaultCallOptions(grpc.UseCompressor("identity")))
		for _, option := range []grpc.CallOption{
			embedding{value: 1}, &embedding{value: 1}, grpc.EmptyCallOption{}, grpc.StaticMethod(), grpc.FailFast(true), grpc.WaitForReady(true),
			grpc.MaxCallRecvMsgSize(math.MaxInt), grpc.MaxCallSendMsgSize(math.MaxInt), grpc.MaxRetryRPCBufferSize(0),
		} {
			if _, err := client.Unary(testContext(t), &pb.Request{}, option); err != nil {
				t.Errorf("%T: %v", option, err)
			}
		}
		for _, option := range []grpc.CallOption{grpc.CallAuthority("other"), hiding{grpc.WaitForReady(true)}, nil} {
			var finished error
			_, err := client.Unary(testContext(t), &pb.Request{}, option, grpc.OnFinish(func(err error) { finished = err }))
			if err == nil || finished != err {
				t.Errorf("%T: %v; OnFinish got %v", option, err, finished)
			}
		}
		_, err := client.Unary(testContext(t), &pb.Request{}, hiding{grpc.WaitForReady(true)})
		wantCode(t, err, codes.Unimplemented, "tollfree.hiding", "docs/guide/go.md")
	})
}

func TestPreparedMessagesAreRefused(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		h.newServer(0, &testService{})
		stream, err := h.newConn().NewStream(testContext(t), &pb.Test_ServiceDesc.Streams[2], pb.Test_Bidi_FullMethodName)
		wantNoError(t, err)
		wantCode(t, stream.SendMsg(&grpc.PreparedMsg{}), codes.Internal, "PreparedMsg")
	})
}
