// Package stubserver stands in the place of grpc-go's package of this name while grpc-go's own tests run: see docs/grpc-go.md of the repository. A StubServer
// serves TCP as theirs does, and the same services through shared memory; calls of its client go through shared memory.
package stubserver

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	tollfree "github.com/tollfree/tollfree/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/stats"

	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	testpb "google.golang.org/grpc/interop/grpc_testing"
)

// GRPCServer is what a StubServer needs of its server.
type GRPCServer interface {
	grpc.ServiceRegistrar
	Stop()
	GracefulStop()
	Serve(net.Listener) error
}

// StubServer has the fields that tests set and read.
type StubServer struct {
	testgrpc.TestServiceServer

	EmptyCallF           func(ctx context.Context, in *testpb.Empty) (*testpb.Empty, error)
	UnaryCallF           func(ctx context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error)
	FullDuplexCallF      func(stream testgrpc.TestService_FullDuplexCallServer) error
	StreamingInputCallF  func(stream testgrpc.TestService_StreamingInputCallServer) error
	StreamingOutputCallF func(req *testpb.StreamingOutputCallRequest, stream testgrpc.TestService_StreamingOutputCallServer) error

	Client   testgrpc.TestServiceClient
	CC       *grpc.ClientConn
	S        GRPCServer
	Network  string
	Address  string
	Target   string
	Listener net.Listener
	R        *manual.Resolver

	// memory is the server of the same services, where there is one, at the address where.
	memory *tollfree.Server
	where  string
	ends   []func()
}

func (ss *StubServer) EmptyCall(ctx context.Context, in *testpb.Empty) (*testpb.Empty, error) {
	return ss.EmptyCallF(ctx, in)
}

func (ss *StubServer) UnaryCall(ctx context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	return ss.UnaryCallF(ctx, in)
}

func (ss *StubServer) FullDuplexCall(stream testgrpc.TestService_FullDuplexCallServer) error {
	return ss.FullDuplexCallF(stream)
}

func (ss *StubServer) StreamingInputCall(stream testgrpc.TestService_StreamingInputCallServer) error {
	return ss.StreamingInputCallF(stream)
}

func (ss *StubServer) StreamingOutputCall(in *testpb.StreamingOutputCallRequest, stream testgrpc.TestService_StreamingOutputCallServer) error {
	return ss.StreamingOutputCallF(in, stream)
}

type registering struct {
	grpc.EmptyServerOption
	register func(grpc.ServiceRegistrar)
}

// RegisterServiceServerOption has a function register further services.
func RegisterServiceServerOption(register func(grpc.ServiceRegistrar)) grpc.ServerOption {
	return &registering{register: register}
}

// private reads a field that package grpc keeps to itself: there is no other way to an option.
func private[T any](of any, path ...string) T {
	value := reflect.ValueOf(of).Elem()
	for _, name := range path {
		value = value.FieldByName(name)
	}
	return *(*T)(unsafe.Pointer(value.UnsafeAddr()))
}

// both serves TCP and shared memory.
type both struct {
	*grpc.Server
	memory *tollfree.Server
}

func (b *both) RegisterService(desc *grpc.ServiceDesc, service any) {
	b.Server.RegisterService(desc, service)
	b.memory.RegisterService(desc, service)
}

func (b *both) Stop() {
	b.memory.Stop()
	b.Server.Stop()
}

func (b *both) GracefulStop() {
	var stopped sync.WaitGroup
	stopped.Go(b.memory.GracefulStop)
	b.Server.GracefulStop()
	stopped.Wait()
}

// memoryServer has the options of a server for TCP.
func memoryServer(tcp *grpc.Server) *tollfree.Server {
	options := []tollfree.ServerOption{
		tollfree.MaxRecvMsgSize(private[int](tcp, "opts", "maxReceiveMessageSize")),
		tollfree.MaxSendMsgSize(private[int](tcp, "opts", "maxSendMessageSize")),
	}
	if unary := private[grpc.UnaryServerInterceptor](tcp, "opts", "unaryInt"); unary != nil {
		options = append(options, tollfree.UnaryInterceptor(unary))
	}
	if stream := private[grpc.StreamServerInterceptor](tcp, "opts", "streamInt"); stream != nil {
		options = append(options, tollfree.StreamInterceptor(stream))
	}
	for _, handler := range private[[]stats.Handler](tcp, "opts", "statsHandlers") {
		options = append(options, tollfree.StatsHandler(handler))
	}
	if unknown := private[*grpc.StreamDesc](tcp, "opts", "unknownStreamDesc"); unknown != nil {
		options = append(options, tollfree.UnknownServiceHandler(unknown.Handler))
	}
	if most := private[uint32](tcp, "opts", "maxConcurrentStreams"); most > 0 && most < 1<<16 {
		options = append(options, tollfree.MaxConcurrentStreams(most))
	}
	return tollfree.NewServer(options...)
}

var addresses atomic.Int64

func (ss *StubServer) listen(options []grpc.ServerOption) (net.Listener, error) {
	if ss.Network == "" {
		ss.Network = "tcp"
	}
	if ss.Address == "" {
		ss.Address = "localhost:0"
	}
	if ss.Target == "" {
		ss.R = manual.NewBuilderWithScheme("whatever")
	}
	tcp := ss.Listener
	if tcp == nil {
		var err error
		if tcp, err = net.Listen(ss.Network, ss.Address); err != nil {
			return nil, err
		}
	}
	ss.Address = tcp.Addr().String()
	if ss.S == nil {
		ss.S = grpc.NewServer(options...)
	}
	if server, is := ss.S.(*grpc.Server); is {
		ss.memory = memoryServer(server)
		ss.S = &both{server, ss.memory}
		ss.where = fmt.Sprintf("shm-abstract:tollfree-stubserver-%d-%d", os.Getpid(), addresses.Add(1))
	}
	for _, option := range options {
		if registers, is := option.(*registering); is {
			registers.register(ss.S)
		}
	}
	testgrpc.RegisterTestServiceServer(ss.S, ss)
	ss.ends = append(ss.ends, ss.S.Stop)
	return tcp, nil
}

// StartHandlerServer serves by net/http, and not through shared memory.
func (ss *StubServer) StartHandlerServer(options ...grpc.ServerOption) error {
	tcp, err := ss.listen(options)
	if err != nil {
		return err
	}
	ss.memory = nil
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: ss.S.(http.Handler), Protocols: protocols}
	go server.Serve(tcp)
	ss.ends = append(ss.ends, func() { server.Close() })
	return nil
}

// StartServer starts the server alone.
func (ss *StubServer) StartServer(options ...grpc.ServerOption) error {
	tcp, err := ss.listen(options)
	if err != nil {
		return err
	}
	if ss.memory != nil {
		listener, err := ss.memory.Listen(ss.where)
		if err != nil {
			return err
		}
		go ss.memory.ServeListener(listener)
	}
	go ss.S.Serve(tcp)
	return nil
}

// Start starts the server, and a client of it.
func (ss *StubServer) Start(serverOptions []grpc.ServerOption, options ...grpc.DialOption) error {
	if err := ss.StartServer(serverOptions...); err != nil {
		return err
	}
	if err := ss.StartClient(options...); err != nil {
		ss.Stop()
		return err
	}
	return nil
}

// switchboard is the last interceptor of a client's connection: its calls go where over says, once there is something.
type switchboard struct {
	over  atomic.Pointer[tollfree.ClientConn]
	calls atomic.Int64
}

func (s *switchboard) unary(ctx context.Context, method string, in, out any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if over := s.over.Load(); over != nil {
		s.calls.Add(1)
		return over.Invoke(ctx, method, in, out, options...)
	}
	return invoke(ctx, method, in, out, cc, options...)
}

func (s *switchboard) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, begin grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	if over := s.over.Load(); over != nil {
		s.calls.Add(1)
		return over.NewStream(ctx, desc, method, options...)
	}
	return begin(ctx, desc, cc, method, options...)
}

// memoryClient has the options of a connection over TCP that are not its interceptors' or its calls'.
func memoryClient(where string, tcp *grpc.ClientConn) (*tollfree.ClientConn, error) {
	var options []tollfree.DialOption
	for _, handler := range private[[]stats.Handler](tcp, "dopts", "copts", "StatsHandlers") {
		options = append(options, tollfree.WithStatsHandler(handler))
	}
	for _, creds := range private[[]credentials.PerRPCCredentials](tcp, "dopts", "copts", "PerRPCCredentials") {
		options = append(options, tollfree.WithPerRPCCredentials(creds))
	}
	if agent := private[string](tcp, "dopts", "copts", "UserAgent"); agent != "" {
		options = append(options, tollfree.WithUserAgent(agent))
	}
	if config := private[*string](tcp, "dopts", "defaultServiceConfigRawJSON"); config != nil {
		options = append(options, tollfree.WithDefaultServiceConfig(*config))
	}
	return tollfree.NewClient(where, options...)
}

// StartClient starts a client of the server.
func (ss *StubServer) StartClient(options ...grpc.DialOption) error {
	calls := new(switchboard)
	all := append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, options...)
	all = append(all, grpc.WithChainUnaryInterceptor(calls.unary), grpc.WithChainStreamInterceptor(calls.stream))
	if ss.R != nil {
		ss.Target = ss.R.Scheme() + ":///" + ss.Address
		all = append(all, grpc.WithResolvers(ss.R))
	}
	cc, err := grpc.NewClient(ss.Target, all...)
	if err != nil {
		return err
	}
	cc.Connect()
	ss.CC = cc
	if ss.R != nil {
		ss.R.UpdateState(resolver.State{Addresses: []resolver.Address{{Addr: ss.Address}}})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for state := cc.GetState(); state != connectivity.Ready; state = cc.GetState() {
		if !cc.WaitForStateChange(ctx, state) {
			cc.Close()
			return ctx.Err()
		}
	}
	if ss.memory != nil {
		over, err := memoryClient(ss.where, cc)
		if err != nil {
			cc.Close()
			return err
		}
		calls.over.Store(over)
		ss.ends = append(ss.ends, func() { over.Close() })
	}
	ss.ends = append(ss.ends, func() {
		cc.Close()
		// Whoever runs the tests wants to know which of them have made calls through shared memory.
		fmt.Printf("\n%d calls through shared memory\n", calls.calls.Load())
	})
	ss.Client = testgrpc.NewTestServiceClient(cc)
	return nil
}

// NewServiceConfig has the resolver give a service config: it is TCP's alone.
func (ss *StubServer) NewServiceConfig(config string) {
	if ss.R != nil {
		parsed := ss.R.CC().ParseServiceConfig(config)
		if parsed.Err != nil {
			panic(parsed.Err)
		}
		ss.R.UpdateState(resolver.State{Addresses: []resolver.Address{{Addr: ss.Address}}, ServiceConfig: parsed})
	}
}

// Stop stops the client and the server.
func (ss *StubServer) Stop() {
	for i := len(ss.ends) - 1; i >= 0; i-- {
		ss.ends[i]()
	}
	ss.ends = nil
}

// StartTestService starts a server, by default one that answers unary calls with nothing.
func StartTestService(t *testing.T, server *StubServer, options ...grpc.ServerOption) *StubServer {
	if server == nil {
		server = &StubServer{
			EmptyCallF: func(context.Context, *testpb.Empty) (*testpb.Empty, error) { return new(testpb.Empty), nil },
			UnaryCallF: func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
				return new(testpb.SimpleResponse), nil
			},
		}
	}
	if err := server.StartServer(options...); err != nil {
		t.Fatal(err)
	}
	return server
}
