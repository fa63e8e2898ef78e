package tollfree

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/stats"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/pool"
	"github.com/tollfree/tollfree/go/internal/transport"
)

// A ServerOption is a setting of NewServer. Its name is that of grpc's option, whose type package grpc keeps to itself.
type ServerOption func(*serverOptions)

// listenFunc binds an address.
type listenFunc func(address string) (call.Listener, error)

type serverOptions struct {
	unary       []grpc.UnaryServerInterceptor
	stream      []grpc.StreamServerInterceptor
	firstUnary  grpc.UnaryServerInterceptor
	firstStream grpc.StreamServerInterceptor
	handlers    []stats.Handler
	unknown     *grpc.StreamDesc
	codec       codec // nil: by the content type
	receiveMax  int
	sendMax     int
	concurrent  uint32                // 0: the transport's default
	admits      func(uid uint32) bool // nil: the own user
	inline      map[string]bool
	inPlace     map[string]bool
	pool        *pool.Pool // nil: none
	// certificates are for gateways of other hosts; nil: there are none.
	certificates *transport.Certificates
	listen       listenFunc
	// objectsOf says of which methods the server takes objects; NewServer sets it.
	objectsOf func(path string) (fingerprint uint64, ok bool)
}

func newServerOptions(options []ServerOption) *serverOptions {
	o := &serverOptions{
		receiveMax: defaultReceiveMax, sendMax: defaultSendMax, inline: map[string]bool{}, inPlace: map[string]bool{},
	}
	for _, option := range options {
		option(o)
	}
	if o.firstUnary != nil {
		o.unary = append([]grpc.UnaryServerInterceptor{o.firstUnary}, o.unary...)
	}
	if o.firstStream != nil {
		o.stream = append([]grpc.StreamServerInterceptor{o.firstStream}, o.stream...)
	}
	if o.listen == nil {
		o.listen = transportListener(o)
	}
	return o
}

// UnaryInterceptor sets the interceptor of unary calls that comes before those of ChainUnaryInterceptor.
func UnaryInterceptor(interceptor grpc.UnaryServerInterceptor) ServerOption {
	return func(o *serverOptions) { o.firstUnary = interceptor }
}

// ChainUnaryInterceptor adds interceptors of unary calls; the first is outermost.
func ChainUnaryInterceptor(interceptors ...grpc.UnaryServerInterceptor) ServerOption {
	return func(o *serverOptions) { o.unary = append(o.unary, interceptors...) }
}

// StreamInterceptor sets the interceptor of streams that comes before those of ChainStreamInterceptor.
func StreamInterceptor(interceptor grpc.StreamServerInterceptor) ServerOption {
	return func(o *serverOptions) { o.firstStream = interceptor }
}

// ChainStreamInterceptor adds interceptors of streams; the first is outermost.
func ChainStreamInterceptor(interceptors ...grpc.StreamServerInterceptor) ServerOption {
	return func(o *serverOptions) { o.stream = append(o.stream, interceptors...) }
}

// StatsHandler adds a handler of sessions' and calls' events, such as otelgrpc's.
func StatsHandler(handler stats.Handler) ServerOption {
	return func(o *serverOptions) {
		if handler != nil {
			o.handlers = append(o.handlers, handler)
		}
	}
}

// UnknownServiceHandler sets the handler of calls whose service or method nobody has registered. It gets them as bidirectional
// streams; without it they end UNIMPLEMENTED.
func UnknownServiceHandler(handler grpc.StreamHandler) ServerOption {
	return func(o *serverOptions) {
		o.unknown = &grpc.StreamDesc{StreamName: "unknown", Handler: handler, ClientStreams: true, ServerStreams: true}
	}
}

// ForceServerCodec sets the codec of all calls, whatever their content type says.
func ForceServerCodec(c encoding.Codec) ServerOption {
	return func(o *serverOptions) { o.codec = bridgedCodec{c} }
}

// ForceServerCodecV2 sets the codec of all calls, whatever their content type says.
func ForceServerCodecV2(c encoding.CodecV2) ServerOption {
	return func(o *serverOptions) { o.codec = c }
}

// MaxRecvMsgSize limits messages of clients, in bytes: 4 MiB by default. A longer one ends its call with RESOURCE_EXHAUSTED.
func MaxRecvMsgSize(bytes int) ServerOption {
	return func(o *serverOptions) { o.receiveMax = max(bytes, 0) }
}

// MaxSendMsgSize limits messages to clients, in bytes: 2 GiB by default.
func MaxSendMsgSize(bytes int) ServerOption {
	return func(o *serverOptions) { o.sendMax = max(bytes, 0) }
}

// MaxConcurrentStreams limits the calls that a session has under way; 1024 by default. More wait at the client.
func MaxConcurrentStreams(n uint32) ServerOption {
	return func(o *serverOptions) { o.concurrent = n }
}

// Peers says whose processes may connect; without it, those of the own user (the effective uid) alone. The kernel vouches for
// the uid.
func Peers(admits func(uid uint32) bool) ServerOption {
	return func(o *serverOptions) { o.admits = admits }
}

// Inline says that the handlers of these methods, "/package.Service/Method", answer at once: they run on the goroutine that
// reads their session, which saves a switch of goroutines. Nothing else of the session is read meanwhile, so such a handler must
// not wait: for no lock that is held for long, no other call, and no message beyond the first. Streams are never inline.
func Inline(methods ...string) ServerOption {
	return func(o *serverOptions) {
		for _, method := range methods {
			o.inline[method] = true
		}
	}
}

// withListen has addresses be bound by listen, in tests.
func withListen(listen listenFunc) ServerOption {
	return func(o *serverOptions) { o.listen = listen }
}

// chainUnary is one interceptor of several; nil of none.
func chainUnary(all []grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	if len(all) < 2 {
		if len(all) == 1 {
			return all[0]
		}
		return nil
	}
	outer, inner := all[0], chainUnary(all[1:])
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		return outer(ctx, request, info, func(ctx context.Context, request any) (any, error) {
			return inner(ctx, request, info, handler)
		})
	}
}

// chainStream is one interceptor of several; nil of none.
func chainStream(all []grpc.StreamServerInterceptor) grpc.StreamServerInterceptor {
	if len(all) < 2 {
		if len(all) == 1 {
			return all[0]
		}
		return nil
	}
	outer, inner := all[0], chainStream(all[1:])
	return func(impl any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		return outer(impl, stream, info, func(impl any, stream grpc.ServerStream) error {
			return inner(impl, stream, info, handler)
		})
	}
}

// Certificates says what Attach shows to gateways of other hosts, and trusts there: PEM files with the authorities that sign a gateway's
// certificate, with this process's certificate, and with its key. They are read anew for each connection.
func Certificates(authorities, certificate, key string) ServerOption {
	return func(o *serverOptions) {
		o.certificates = &transport.Certificates{Authorities: authorities, Certificate: certificate, Key: key}
	}
}
