package tollfree

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/tollfree/tollfree/go/internal/testproto"
)

func TestHealthAndReflection(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		server := NewServer(h.carrier.server(h)...)
		pb.RegisterTestServer(server, &testService{})
		checks := health.NewServer()
		healthpb.RegisterHealthServer(server, checks)
		reflection.Register(server)
		h.serve(server, 0)
		conn := h.newConn()

		client := healthpb.NewHealthClient(conn)
		ctx, cancel := context.WithCancel(testContext(t))
		watch, err := client.Watch(ctx, &healthpb.HealthCheckRequest{})
		wantNoError(t, err)
		for _, want := range []healthpb.HealthCheckResponse_ServingStatus{healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING} {
			reply, err := watch.Recv()
			wantNoError(t, err)
			if reply.Status != want {
				t.Fatalf("the server is %s, want %s", reply.Status, want)
			}
			checks.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
		}
		cancel()
		_, err = watch.Recv()
		wantCode(t, err, codes.Canceled)

		stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(testContext(t))
		wantNoError(t, err)
		wantNoError(t, stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}))
		reply, err := stream.Recv()
		wantNoError(t, err)
		var names []string
		for _, s := range reply.GetListServicesResponse().GetService() {
			names = append(names, s.Name)
		}
		if !slices.Contains(names, "tollfree.test.Test") || !slices.Contains(names, "grpc.health.v1.Health") {
			t.Fatalf("reflection lists %q", names)
		}
		wantNoError(t, stream.CloseSend())
		if _, err := stream.Recv(); err != io.EOF {
			t.Fatal(err)
		}
	})
}

func TestServiceInfo(t *testing.T) {
	server := NewServer()
	pb.RegisterTestServer(server, &testService{})
	info := server.GetServiceInfo()["tollfree.test.Test"]
	if info.Metadata != "test.proto" || len(info.Methods) != 4 {
		t.Fatalf("got %+v", info)
	}
	if !slices.Contains(info.Methods, grpc.MethodInfo{Name: "ClientStream", IsClientStream: true}) {
		t.Fatalf("got %+v", info.Methods)
	}
}

func TestUnknownServiceHandler(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		h.newServer(0, &testService{}, UnknownServiceHandler(func(impl any, stream grpc.ServerStream) error {
			method, _ := grpc.MethodFromServerStream(stream)
			in := &pb.Request{}
			if err := stream.RecvMsg(in); err != nil {
				return err
			}
			return stream.SendMsg(&pb.Reply{Text: fmt.Sprint(method, " ", in.Text, " ", impl)})
		}))
		conn := h.newConn()
		for _, method := range []string{"/a.B/C", "/tollfree.test.Test/New"} {
			reply := &pb.Reply{}
			wantNoError(t, conn.Invoke(testContext(t), method, &pb.Request{Text: "x"}, reply))
			if reply.Text != method+" x <nil>" {
				t.Fatalf("got %q", reply.Text)
			}
		}
	})
}

// Calls whose number of messages is not that of the method.
func TestCardinality(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		h.newServer(0, &testService{}, UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			count := 0
			for stream.RecvMsg(&pb.Request{}) == nil {
				count++
			}
			if count == 0 {
				return nil
			}
			for range 2 {
				if err := stream.SendMsg(&pb.Reply{}); err != nil {
					return err
				}
			}
			return nil
		}))
		conn := h.newConn()
		wantCode(t, conn.Invoke(testContext(t), "/x.Y/Two", &pb.Request{}, &pb.Reply{}), codes.Internal, "more than one message")
		stream, err := conn.NewStream(testContext(t), &grpc.StreamDesc{ClientStreams: true}, "/x.Y/None")
		wantNoError(t, err)
		wantNoError(t, stream.CloseSend())
		wantCode(t, stream.RecvMsg(&pb.Reply{}), codes.Internal, "no message")
		both := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
		for count, words := range map[int]string{0: "no message", 2: "more than one message"} {
			stream, err := conn.NewStream(testContext(t), both, pb.Test_Unary_FullMethodName)
			wantNoError(t, err)
			for range count {
				wantNoError(t, stream.SendMsg(&pb.Request{}))
			}
			wantNoError(t, stream.CloseSend())
			wantCode(t, stream.RecvMsg(&pb.Reply{}), codes.Internal, words)
		}
	})
}

func TestMessagesThatCantBeDecoded(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		h.newServer(0, &testService{})
		conn := h.newConn()
		// A Request's field 1 is a string, which must be UTF-8.
		err := conn.Invoke(testContext(t), pb.Test_Unary_FullMethodName, &raw{"\x0a\x01\xff"}, &pb.Reply{}, grpc.ForceCodec(rawCodec{}))
		wantCode(t, err, codes.Internal, "can't be decoded")
		err = conn.Invoke(testContext(t), pb.Test_Unary_FullMethodName, &pb.Request{Text: "x"}, &emptypb.Empty{}, grpc.MaxCallRecvMsgSize(10))
		wantNoError(t, err)
		wantCode(t, conn.Invoke(testContext(t), pb.Test_Unary_FullMethodName, "no message", &pb.Reply{}), codes.Internal, "can't be encoded")
	})
}

// raw is a message that is its own encoding.
type raw struct{ bytes string }

type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) ([]byte, error) { return []byte(v.(*raw).bytes), nil }

func (rawCodec) Unmarshal([]byte, any) error { return nil }

func TestLimitOnConcurrentCalls(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		h.config.MaxCalls = 2
		var now, most atomic.Int32
		h.newServer(0, &testService{unary: func(context.Context, *pb.Request) (*pb.Reply, error) {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(5 * time.Millisecond)
			now.Add(-1)
			return &pb.Reply{}, nil
		}}, MaxConcurrentStreams(2))
		client := pb.NewTestClient(h.newConn())
		done := make(chan error, 10)
		for range cap(done) {
			go func() {
				_, err := client.Unary(testContext(t), &pb.Request{})
				done <- err
			}()
		}
		for range cap(done) {
			wantNoError(t, <-done)
		}
		if most.Load() != 2 {
			t.Fatalf("%d calls at once", most.Load())
		}
	})
}

func TestInlineMethods(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		s := h.newServer(0, &testService{}, Inline(pb.Test_Unary_FullMethodName, pb.Test_Bidi_FullMethodName))
		if !s.inline(pb.Test_Unary_FullMethodName) || s.inline(pb.Test_Bidi_FullMethodName) || s.inline("/x.Y/Z") {
			t.Fatal("other methods are inline than those that may be")
		}
		wantNoError(t, echoAll(testContext(t), pb.NewTestClient(h.newConn()), 0))
	})
}

// One program serves shared memory and TCP with the same services.
func TestTheSameServicesOverTCP(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		service := &testService{}
		ours, theirs := NewServer(h.carrier.server(h)...), grpc.NewServer()
		for _, s := range []grpc.ServiceRegistrar{ours, theirs} {
			pb.RegisterTestServer(s, service)
		}
		h.serve(ours, 0)
		socket, err := net.Listen("tcp", "127.0.0.1:0")
		wantNoError(t, err)
		done := make(chan error, 1)
		go func() { done <- theirs.Serve(socket) }()
		defer func() { theirs.Stop(); wantNoError(t, <-done) }()
		tcp, err := grpc.NewClient(socket.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		wantNoError(t, err)
		defer tcp.Close()
		for _, conn := range []grpc.ClientConnInterface{h.newConn(), tcp} {
			wantNoError(t, echoAll(testContext(t), pb.NewTestClient(conn), 0))
		}
	})
}

func TestServersThatStop(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		s := h.newServer(0, &testService{})
		wantNoError(t, echoAll(testContext(t), pb.NewTestClient(h.newConn()), 0))
		if err := s.Serve(h.address(0)); err == nil || !strings.Contains(err.Error(), h.address(0)) {
			t.Fatalf("an address that is taken: %v", err)
		}
		other := NewServer(h.carrier.server(h)...)
		l, err := other.Listen(h.address(1))
		wantNoError(t, err)
		if err := s.ServeListener(l); err == nil {
			t.Fatal("another server's listener is served")
		}
		wantNoError(t, l.Close())
		if l.Address() != h.address(1) {
			t.Fatalf("the address is %s", l.Address())
		}
		s.GracefulStop()
		s.GracefulStop()
		s.Stop()
		if err := s.Serve(h.address(2)); err != grpc.ErrServerStopped {
			t.Fatalf("Serve after Stop: %v", err)
		}
	})
}

func TestProgramsThatRegisterWrongly(t *testing.T) {
	for name, register := range map[string]func(*Server){
		"twice": func(s *Server) {
			pb.RegisterTestServer(s, &testService{})
			pb.RegisterTestServer(s, &testService{})
		},
		"another type": func(s *Server) { s.RegisterService(&pb.Test_ServiceDesc, 1) },
	} {
		func() {
			defer func() {
				if said := fmt.Sprint(recover()); !strings.Contains(said, "tollfree.test.Test") {
					t.Errorf("%s: %s", name, said)
				}
			}()
			register(NewServer())
		}()
	}
}

// A trailer that gRPC forbids can't be reported where it is set.
func TestTrailerThatGRPCForbids(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		h.newServer(0, &testService{server: func(_ *pb.Request, stream grpc.ServerStreamingServer[pb.Reply]) error {
			stream.SetTrailer(metadata.Pairs("bad name", "x"))
			return nil
		}})
		stream, err := pb.NewTestClient(h.newConn()).ServerStream(testContext(t), &pb.Request{})
		wantNoError(t, err)
		_, err = stream.Recv()
		wantCode(t, err, codes.Internal, `"bad name"`)
	})
}

const panicVariable = "TOLLFREE_TEST_PANIC"

// A handler that panics ends its process, as with grpc-go.
func TestPanics(t *testing.T) {
	if os.Getenv(panicVariable) != "" {
		overFake(t, func(t *testing.T, h *harness) {
			h.newServer(0, &testService{unary: func(context.Context, *pb.Request) (*pb.Reply, error) { panic("the handler's words") }})
			_, err := pb.NewTestClient(h.newConn()).Unary(testContext(t), &pb.Request{})
			fmt.Println("the process lives", status.Code(err))
		})
		return
	}
	command := exec.Command(os.Args[0], "-test.run=^TestPanics$")
	command.Env = append(os.Environ(), panicVariable+"=1")
	out, err := command.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "the handler's words") || strings.Contains(string(out), "lives") {
		t.Fatalf("%v: %s", err, out)
	}
}

// A gateway asks for the protocol's own methods; a server that lacks them says so itself, and asks no handler of the program's.
func TestTheProtocolsOwnMethodsAreReserved(t *testing.T) {
	found := 0
	text, err := os.ReadFile("../spec/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range regexp.MustCompile("`(/tollfree\\.\\w+/\\w+)`").FindAllStringSubmatch(string(text), -1) {
		// Those of an upgrade go over HTTP/2.
		if strings.HasPrefix(path[1], "/tollfree.Upgrade/") {
			continue
		}
		if found++; !isReserved(path[1]) {
			t.Errorf("%s is not reserved", path[1])
		}
	}
	if found < 3 || isReserved("/tollfree.demo.v1.Greeter/Greet") {
		t.Errorf("%d methods were found", found)
	}
}
