package tollfree

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	pb "github.com/tollfree/tollfree/go/internal/testproto"
)

func TestAllFourKinds(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		ctx, client := testContext(t), h.pair()
		for i := range 100 {
			text := fmt.Sprint("call ", i)
			reply, err := client.Unary(ctx, &pb.Request{Text: text})
			wantNoError(t, err)
			if reply.Text != text {
				t.Fatalf("got %q, want %q", reply.Text, text)
			}
		}

		replies, err := client.ServerStream(ctx, &pb.Request{Text: "x", Count: 1000})
		wantNoError(t, err)
		for i := range int32(1000) {
			reply, err := replies.Recv()
			wantNoError(t, err)
			if reply.Count != i {
				t.Fatalf("got %d, want %d", reply.Count, i)
			}
		}
		for range 2 {
			if _, err := replies.Recv(); err != io.EOF {
				t.Fatalf("the stream ends with %v", err)
			}
		}

		requests, err := client.ClientStream(ctx)
		wantNoError(t, err)
		for _, text := range []string{"a", "b", "c"} {
			wantNoError(t, requests.Send(&pb.Request{Text: text}))
		}
		reply, err := requests.CloseAndRecv()
		wantNoError(t, err)
		if reply.Text != "a b c" {
			t.Fatalf("got %q", reply.Text)
		}

		both, err := client.Bidi(ctx)
		wantNoError(t, err)
		for i := range int32(100) {
			wantNoError(t, both.Send(&pb.Request{Count: i}))
			reply, err := both.Recv()
			wantNoError(t, err)
			if reply.Count != i {
				t.Fatalf("got %d, want %d", reply.Count, i)
			}
		}
		wantNoError(t, both.CloseSend())
		if _, err := both.Recv(); err != io.EOF {
			t.Fatalf("the stream ends with %v", err)
		}
		if err := both.Send(&pb.Request{}); status.Code(err) != codes.Internal {
			t.Fatalf("Send after CloseSend returned %v", err)
		}
	})
}

func TestMessagesOfAllSizes(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		ctx, client := testContext(t), h.pair()
		for _, size := range []int{0, 1, 63, 1 << 10, 8 << 10, 64<<10 + 1, 1 << 20, 4<<20 - 16} {
			data := bytes.Repeat([]byte{byte(size), 7, 9}, size/3+1)[:size]
			reply, err := client.Unary(ctx, &pb.Request{Data: data})
			wantNoError(t, err)
			if !bytes.Equal(reply.Data, data) {
				t.Fatalf("%d bytes came back different", size)
			}
		}
	})
}

func TestManyCallsAtOnce(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		ctx, client := testContext(t), h.pair()
		errs := make(chan error, 64)
		for i := range cap(errs) {
			go func() { errs <- echoAll(ctx, client, i) }()
		}
		for range cap(errs) {
			wantNoError(t, <-errs)
		}
	})
}

func echoAll(ctx context.Context, client pb.TestClient, worker int) error {
	both, err := client.Bidi(ctx)
	if err != nil {
		return err
	}
	for i := range 50 {
		text := fmt.Sprint(worker, "/", i)
		if reply, err := client.Unary(ctx, &pb.Request{Text: text}); err != nil || reply.Text != text {
			return fmt.Errorf("unary: %v, %v", reply, err)
		}
		if err := both.Send(&pb.Request{Text: text}); err != nil {
			return err
		}
		if reply, err := both.Recv(); err != nil || reply.Text != text {
			return fmt.Errorf("stream: %v, %v", reply, err)
		}
	}
	if err := both.CloseSend(); err != nil {
		return err
	}
	if _, err := both.Recv(); err != io.EOF {
		return fmt.Errorf("end: %v", err)
	}
	return nil
}

func TestMetadata(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		var request shared[metadata.MD]
		h.newServer(0, &testService{
			unary: func(ctx context.Context, in *pb.Request) (*pb.Reply, error) {
				md, _ := metadata.FromIncomingContext(ctx)
				request.set(md)
				if method, ok := grpc.Method(ctx); !ok || method != pb.Test_Unary_FullMethodName {
					return nil, status.Errorf(codes.Internal, "grpc.Method is %q", method)
				}
				if err := grpc.SetHeader(ctx, metadata.Pairs("first", "1", "Shared", "a")); err != nil {
					return nil, err
				}
				if err := grpc.SendHeader(ctx, metadata.Pairs("second-bin", "\x00\xff", "shared", "b")); err != nil {
					return nil, err
				}
				if err := grpc.SetHeader(ctx, metadata.Pairs("late", "x")); status.Code(err) != codes.Internal {
					return nil, status.Errorf(codes.Internal, "SetHeader after SendHeader returned %v", err)
				}
				if err := grpc.SetTrailer(ctx, metadata.Pairs("end", "e")); err != nil {
					return nil, err
				}
				return &pb.Reply{}, grpc.SetTrailer(ctx, metadata.Pairs("end", "f", "end-bin", "\x01"))
			},
			bidi: func(stream grpc.BidiStreamingServer[pb.Request, pb.Reply]) error {
				if err := stream.SendHeader(metadata.Pairs("early", "yes")); err != nil {
					return err
				}
				_, err := stream.Recv()
				stream.SetTrailer(metadata.Pairs("end", "stream"))
				if err == io.EOF {
					return status.Error(codes.DataLoss, "nothing came")
				}
				return err
			},
		})
		client := pb.NewTestClient(h.newConn(WithUserAgent("tester/1")))
		ctx := metadata.AppendToOutgoingContext(testContext(t), "Name", "value", "name", "again", "raw-bin", "\x00\x01\xfe",
			"user-agent", "forged", "grpc-timeout", "1S", "te", "x")
		var header, trailer metadata.MD
		_, err := client.Unary(ctx, &pb.Request{}, grpc.Header(&header), grpc.Trailer(&trailer))
		wantNoError(t, err)
		seen := request.get()
		wantValues(t, seen, "name", "value", "again")
		wantValues(t, seen, "raw-bin", "\x00\x01\xfe")
		wantValues(t, seen, ":authority", "localhost")
		wantValues(t, seen, "content-type", "application/grpc")
		wantValues(t, seen, "grpc-timeout")
		wantValues(t, seen, "te")
		if agent := seen.Get("user-agent"); len(agent) != 1 || agent[0] == "forged" {
			t.Fatalf("user-agent is %q", agent)
		}
		wantValues(t, header, "first", "1")
		wantValues(t, header, "second-bin", "\x00\xff")
		wantValues(t, header, "shared", "a", "b")
		wantValues(t, header, "late")
		wantValues(t, header, "content-type", "application/grpc")
		wantValues(t, trailer, "end", "e", "f")
		wantValues(t, trailer, "end-bin", "\x01")

		stream, err := client.Bidi(ctx)
		wantNoError(t, err)
		header, err = stream.Header() // before anything was sent
		wantNoError(t, err)
		wantValues(t, header, "early", "yes")
		wantNoError(t, stream.CloseSend())
		_, err = stream.Recv()
		wantCode(t, err, codes.DataLoss, "nothing came")
		wantValues(t, stream.Trailer(), "end", "stream")
	})
}

func TestMetadataThatGRPCForbids(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		client := h.pair()
		for name, value := range map[string]string{"sp ace": "x", "name": "line\nfeed", "ümlaut": "x"} {
			ctx := metadata.NewOutgoingContext(testContext(t), metadata.MD{name: {value}})
			_, err := client.Unary(ctx, &pb.Request{})
			wantCode(t, err, codes.Internal, "metadata")
		}
	})
}

func TestStatuses(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		detailed, err := status.New(codes.FailedPrecondition, "not so: äöü\n%").WithDetails(&errdetails.ErrorInfo{Reason: "TEST", Domain: "tollfree"})
		wantNoError(t, err)
		garbled, err := status.New(codes.Internal, "\xff").WithDetails(&errdetails.ErrorInfo{})
		wantNoError(t, err)
		answers := map[string]error{
			"detailed": detailed.Err(),
			"garbled":  garbled.Err(),
			"plain":    errPlain,
			"canceled": context.Canceled,
			"late":     context.DeadlineExceeded,
			"wrapped":  fmt.Errorf("around: %w", status.Error(codes.NotFound, "it")),
		}
		h.newServer(0, &testService{
			unary: func(_ context.Context, in *pb.Request) (*pb.Reply, error) { return nil, answers[in.Text] },
			server: func(in *pb.Request, stream grpc.ServerStreamingServer[pb.Reply]) error {
				if err := stream.Send(&pb.Reply{}); err != nil {
					return err
				}
				return answers[in.Text]
			},
		})
		client := pb.NewTestClient(h.newConn())
		want := map[string]codes.Code{
			"detailed": codes.FailedPrecondition, "plain": codes.Unknown, "canceled": codes.Canceled, "late": codes.DeadlineExceeded, "wrapped": codes.NotFound,
			"garbled": codes.Internal,
		}
		for text, code := range want {
			_, err := client.Unary(testContext(t), &pb.Request{Text: text})
			wantCode(t, err, code)
			stream, err := client.ServerStream(testContext(t), &pb.Request{Text: text})
			wantNoError(t, err)
			_, err = stream.Recv()
			wantNoError(t, err)
			_, err = stream.Recv()
			wantCode(t, err, code)
			got := status.Convert(err)
			if text == "garbled" && h.carrier.name == shmCarrier.name && (got.Message() != "\ufffd" || len(got.Details()) > 0) {
				t.Errorf("a message that is no UTF-8 came as %v", got)
			}
			if text != "detailed" {
				continue
			}
			if got.Message() != detailed.Message() || len(got.Details()) != 1 {
				t.Fatalf("got %v", got)
			}
			if info, ok := got.Details()[0].(*errdetails.ErrorInfo); !ok || info.Reason != "TEST" {
				t.Fatalf("the detail is %v", got.Details()[0])
			}
		}
	})
}

func TestUnknownMethods(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		h.newServer(0, &testService{})
		conn := h.newConn()
		for method, words := range map[string]string{
			"/tollfree.test.Test/Nothing": "unknown method Nothing", "/other.Service/Unary": "unknown service other.Service",
		} {
			wantCode(t, conn.Invoke(testContext(t), method, &pb.Request{}, &pb.Reply{}), codes.Unimplemented, words)
		}
	})
}

func TestPeers(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		check := func(who string, p *peer.Peer, ok bool) {
			t.Helper()
			if !ok {
				t.Fatalf("the %s has no peer", who)
			}
			info, ok := p.AuthInfo.(AuthInfo)
			if !ok || info.PID == 0 || p.Addr.Network() != "unix" || p.Addr.String() == "" {
				t.Fatalf("the %s's peer is %+v", who, p)
			}
			if err := credentials.CheckSecurityLevel(info, credentials.PrivacyAndIntegrity); err != nil {
				t.Fatal(err)
			}
		}
		h.newServer(0, &testService{unary: func(ctx context.Context, _ *pb.Request) (*pb.Reply, error) {
			p, ok := peer.FromContext(ctx)
			check("server", p, ok)
			return &pb.Reply{}, nil
		}})
		client := pb.NewTestClient(h.newConn())
		var p peer.Peer
		_, err := client.Unary(testContext(t), &pb.Request{}, grpc.Peer(&p))
		wantNoError(t, err)
		check("client", &p, true)
		stream, err := client.Bidi(testContext(t))
		wantNoError(t, err)
		from, ok := peer.FromContext(stream.Context())
		check("client", from, ok)
		wantNoError(t, stream.CloseSend())
		if _, err := stream.Recv(); err != io.EOF {
			t.Fatal(err)
		}
	})
}

func TestMessageLimits(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		h.newServer(0, &testService{}, MaxRecvMsgSize(1<<20), MaxSendMsgSize(512<<10))
		conn := h.newConn(WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(300 << 10)))
		client := pb.NewTestClient(conn)
		data := func(size int) *pb.Request { return &pb.Request{Data: make([]byte, size)} }
		_, err := client.Unary(testContext(t), data(2<<20), grpc.MaxCallSendMsgSize(math.MaxInt32))
		wantCode(t, err, codes.ResourceExhausted, "1048576") // the server's of requests
		_, err = client.Unary(testContext(t), data(600<<10))
		wantCode(t, err, codes.ResourceExhausted, "524288") // the server's of answers
		_, err = client.Unary(testContext(t), data(400<<10))
		wantCode(t, err, codes.ResourceExhausted, "307200") // the client's of answers
		_, err = client.Unary(testContext(t), data(400<<10), grpc.MaxCallRecvMsgSize(1<<20))
		wantNoError(t, err)
		_, err = client.Unary(testContext(t), data(400<<10), grpc.MaxCallSendMsgSize(1000))
		wantCode(t, err, codes.ResourceExhausted, "1000") // the client's of requests
		stream, err := client.ServerStream(testContext(t), &pb.Request{Data: make([]byte, 400<<10), Count: 3})
		wantNoError(t, err)
		_, err = stream.Recv()
		wantCode(t, err, codes.ResourceExhausted, "307200")
	})
}

func TestCompression(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		var request shared[metadata.MD]
		counted := &recorder{}
		h.newServer(0, &testService{unary: func(ctx context.Context, in *pb.Request) (*pb.Reply, error) {
			md, _ := metadata.FromIncomingContext(ctx)
			request.set(md)
			return &pb.Reply{Data: in.Data}, nil
		}}, StatsHandler(counted))
		client := pb.NewTestClient(h.newConn())
		data := bytes.Repeat([]byte("tollfree "), 100_000)
		reply, err := client.Unary(testContext(t), &pb.Request{Data: data}, grpc.UseCompressor(gzip.Name))
		wantNoError(t, err)
		if !bytes.Equal(reply.Data, data) {
			t.Fatal("the data came back different")
		}
		wantValues(t, request.get(), "grpc-accept-encoding", "gzip")
		lengths := counted.payloads()
		for _, l := range lengths {
			if l.compressed > len(data)/10 || l.plain < len(data) {
				t.Fatalf("a message of %d bytes travelled as %d", l.plain, l.compressed)
			}
		}
		if len(lengths) != 2 {
			t.Fatalf("the server counted %v", lengths)
		}
		// What is short on the way may be too long after.
		_, err = client.Unary(testContext(t), &pb.Request{Data: make([]byte, 16<<20)}, grpc.UseCompressor(gzip.Name))
		wantCode(t, err, codes.ResourceExhausted, "decompression")
		_, err = client.Unary(testContext(t), &pb.Request{}, grpc.UseCompressor("squeeze"))
		wantCode(t, err, codes.Internal, `"squeeze"`)

		stream, err := client.Bidi(testContext(t), grpc.UseCompressor(gzip.Name))
		wantNoError(t, err)
		for range 5 {
			wantNoError(t, stream.Send(&pb.Request{Data: data}))
			reply, err := stream.Recv()
			wantNoError(t, err)
			if !bytes.Equal(reply.Data, data) {
				t.Fatal("the data came back different")
			}
		}
		wantNoError(t, stream.CloseSend())
		if _, err := stream.Recv(); err != io.EOF {
			t.Fatal(err)
		}
	})
}

// token is a call credential.
type token struct {
	value string
	err   error
	seen  []string
}

func (c *token) GetRequestMetadata(ctx context.Context, uri ...string) (map[string]string, error) {
	info, ok := credentials.RequestInfoFromContext(ctx)
	if !ok {
		return nil, errPlain
	}
	if err := credentials.CheckSecurityLevel(info.AuthInfo, credentials.PrivacyAndIntegrity); err != nil {
		return nil, err
	}
	c.seen = append(c.seen, append(uri, info.Method)...)
	if c.err != nil {
		return nil, c.err
	}
	if c.value == "" {
		return nil, errPlain
	}
	return map[string]string{"Authorization": c.value}, nil
}

func (c *token) RequireTransportSecurity() bool { return true }

func TestCallCredentials(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		h.newServer(0, &testService{unary: func(ctx context.Context, _ *pb.Request) (*pb.Reply, error) {
			return &pb.Reply{Text: fmt.Sprint(metadata.ValueFromIncomingContext(ctx, "authorization"))}, nil
		}})
		all, one := &token{value: "Bearer all"}, &token{value: "Bearer one"}
		client := pb.NewTestClient(h.newConn(WithPerRPCCredentials(all)))
		reply, err := client.Unary(testContext(t), &pb.Request{}, grpc.PerRPCCredentials(one))
		wantNoError(t, err)
		if reply.Text != "[Bearer all Bearer one]" {
			t.Fatalf("the server saw %s", reply.Text)
		}
		if want := []string{"https://localhost/tollfree.test.Test", pb.Test_Unary_FullMethodName}; !slices.Equal(one.seen, want) {
			t.Fatalf("the credentials saw %q, want %q", one.seen, want)
		}
		_, err = client.Unary(testContext(t), &pb.Request{}, grpc.PerRPCCredentials(&token{}))
		wantCode(t, err, codes.Unauthenticated, "no status")
		// An application's status is a server's alone: gRFC A54.
		for code, want := range map[codes.Code]codes.Code{codes.Unavailable: codes.Unavailable, codes.NotFound: codes.Internal, codes.DataLoss: codes.Internal} {
			_, err = client.Unary(testContext(t), &pb.Request{}, grpc.PerRPCCredentials(&token{err: status.Error(code, "no token")}))
			wantCode(t, err, want, "no token")
		}
	})
}
