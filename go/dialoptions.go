package tollfree

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/stats"

	rules "github.com/tollfree/tollfree/go/internal/balancer"
	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/pool"
	"github.com/tollfree/tollfree/go/internal/transport"
)

// A DialOption is a setting of NewClient. Its name is that of grpc's option, whose type package grpc keeps to itself.
type DialOption func(*dialOptions) error

// agentMax is the length of a handshake's text in bytes (spec/wire.md, section 3).
const agentMax = 120

// dialer begins a session.
type dialer func(ctx context.Context, address string) (call.Client, error)

type dialOptions struct {
	targets     []rules.Target
	unary       []grpc.UnaryClientInterceptor
	stream      []grpc.StreamClientInterceptor
	firstUnary  grpc.UnaryClientInterceptor
	firstStream grpc.StreamClientInterceptor
	calls       []grpc.CallOption
	handlers    []stats.Handler
	credentials []credentials.PerRPCCredentials
	config      *serviceConfig
	agent       string
	admits      func(uid uint32) bool // nil: the own user
	pool        *pool.Pool            // nil: none
	via         string                // the target of all calls, which gateways make; empty: none
	// certificates are for gateways of other hosts; nil: there are none.
	certificates *transport.Certificates
	dial         dialer
}

func newDialOptions(address string, options []DialOption) (*dialOptions, error) {
	o := &dialOptions{targets: []rules.Target{rules.NewTarget(address)}, config: &serviceConfig{}}
	for _, option := range options {
		if err := option(o); err != nil {
			return nil, err
		}
	}
	for _, target := range o.targets {
		if err := checkGateway(target.Address, o.certificates); err != nil {
			return nil, err
		}
		if o.via == "" && strings.HasPrefix(target.Address, transport.StreamScheme) {
			return nil, fmt.Errorf("tollfree: address %q is a gateway's of another host: say by WithVia what it is to call", target.Address)
		}
	}
	if o.via != "" {
		if err := transport.CheckTarget(o.via); err != nil {
			return nil, fmt.Errorf("tollfree: WithVia: %w; write https://host:port, http://host:port or group:name", err)
		}
	}
	if o.firstUnary != nil {
		o.unary = append([]grpc.UnaryClientInterceptor{o.firstUnary}, o.unary...)
	}
	if o.firstStream != nil {
		o.stream = append([]grpc.StreamClientInterceptor{o.firstStream}, o.stream...)
	}
	if o.dial == nil {
		o.dial = transportDialer(o)
	}
	return o, nil
}

// WithEndpoint adds a server that the client may call, beside that of NewClient's address. The service config's
// loadBalancingConfig says which one a call goes to: pick_first (the default), round_robin or least_outstanding; and, by
// outlier_detection_experimental, which servers get no calls for a while since calls fail there.
func WithEndpoint(address string, options ...EndpointOption) DialOption {
	return func(o *dialOptions) error {
		target := rules.NewTarget(address)
		for _, option := range options {
			option(&target)
		}
		o.targets = append(o.targets, target)
		return nil
	}
}

// An EndpointOption is a setting of WithEndpoint.
type EndpointOption func(*rules.Target)

// Weight is the endpoint's share of the calls, beside the other endpoints of its priority; 1 by default. An endpoint of weight 0 gets no
// calls.
func Weight(weight uint32) EndpointOption {
	return func(t *rules.Target) { t.Weight = weight }
}

// Priority is 0 by default, as that of NewClient's address, which is the highest. Calls go to the highest priority of which an endpoint can be
// used, and wait while one of it is being connected. Endpoints of lower priorities are not connected before they are needed.
func Priority(priority uint32) EndpointOption {
	return func(t *rules.Target) { t.Priority = priority }
}

// WithUnaryInterceptor sets the interceptor of unary calls that comes before those of WithChainUnaryInterceptor.
// The *grpc.ClientConn that interceptors get makes its calls by this client, and has its target; it has no other use.
func WithUnaryInterceptor(interceptor grpc.UnaryClientInterceptor) DialOption {
	return func(o *dialOptions) error {
		o.firstUnary = interceptor
		return nil
	}
}

// WithChainUnaryInterceptor adds interceptors of unary calls; the first is outermost.
func WithChainUnaryInterceptor(interceptors ...grpc.UnaryClientInterceptor) DialOption {
	return func(o *dialOptions) error {
		o.unary = append(o.unary, interceptors...)
		return nil
	}
}

// WithStreamInterceptor sets the interceptor of streams that comes before those of WithChainStreamInterceptor.
func WithStreamInterceptor(interceptor grpc.StreamClientInterceptor) DialOption {
	return func(o *dialOptions) error {
		o.firstStream = interceptor
		return nil
	}
}

// WithChainStreamInterceptor adds interceptors of streams; the first is outermost.
func WithChainStreamInterceptor(interceptors ...grpc.StreamClientInterceptor) DialOption {
	return func(o *dialOptions) error {
		o.stream = append(o.stream, interceptors...)
		return nil
	}
}

// WithDefaultCallOptions sets options of all calls; a call's own come after them.
func WithDefaultCallOptions(options ...grpc.CallOption) DialOption {
	return func(o *dialOptions) error {
		o.calls = append(o.calls, options...)
		return nil
	}
}

// WithStatsHandler adds a handler of sessions' and calls' events, such as otelgrpc's.
func WithStatsHandler(handler stats.Handler) DialOption {
	return func(o *dialOptions) error {
		if handler != nil {
			o.handlers = append(o.handlers, handler)
		}
		return nil
	}
}

// WithPerRPCCredentials adds credentials to all calls.
func WithPerRPCCredentials(creds credentials.PerRPCCredentials) DialOption {
	return func(o *dialOptions) error {
		if creds == nil {
			return errors.New("tollfree: WithPerRPCCredentials got nil")
		}
		o.credentials = append(o.credentials, creds)
		return nil
	}
}

// WithDefaultServiceConfig sets gRPC's service config, in JSON: loadBalancingConfig, methodConfig (name, timeout, waitForReady,
// maxRequestMessageBytes, maxResponseMessageBytes, retryPolicy), retryThrottling and healthCheckConfig. hedgingPolicy is an error.
//
// With healthCheckConfig the client calls grpc.health.v1.Health/Watch at each server, and calls go only to servers that answer SERVING or
// have no health service. pick_first, the default policy, does not check health, as in grpc-go.
func WithDefaultServiceConfig(json string) DialOption {
	return func(o *dialOptions) error {
		config, err := parseServiceConfig(json)
		if err == nil {
			o.config = config
		}
		return err
	}
}

// WithUserAgent sets what goes before Tollfree's own name in the user-agent that servers see. Together they have at most
// 120 bytes.
func WithUserAgent(agent string) DialOption {
	return func(o *dialOptions) error {
		if most := agentMax - len(agentName) - 1; len(agent) > most {
			return fmt.Errorf("tollfree: WithUserAgent got %d bytes: at most %d travel", len(agent), most)
		}
		o.agent = agent
		return nil
	}
}

// WithPeers says whose servers the client connects to; without it, those of the own user (the effective uid) alone.
func WithPeers(admits func(uid uint32) bool) DialOption {
	return func(o *dialOptions) error {
		o.admits = admits
		return nil
	}
}

// WithVia says that the addresses are those of gateways, which make the client's calls at target: "https://host:port",
// "http://host:port", or "group:name" for the backends of a group. If a gateway with a group's target names the one process that
// would get the calls, they go to that process in a session of their own (a direct connection): see ClientConn.Direct.
func WithVia(target string) DialOption {
	return func(o *dialOptions) error {
		if target == "" {
			return errors.New("tollfree: WithVia got no target: write https://host:port, http://host:port or group:name")
		}
		o.via = target
		return nil
	}
}

// WithCertificates says what the client shows to gateways of other hosts ("device+tls://host:port"), and trusts there: PEM files with the
// authorities that sign a gateway's certificate, with this process's certificate, and with its key. They are read anew for each connection.
func WithCertificates(authorities, certificate, key string) DialOption {
	return func(o *dialOptions) error {
		o.certificates = &transport.Certificates{Authorities: authorities, Certificate: certificate, Key: key}
		return nil
	}
}

// receiveMax is the highest limit on messages of calls without an option of their own.
func (o *dialOptions) receiveMax() int {
	longest := defaultReceiveMax
	for _, option := range o.calls {
		if limit, ok := option.(grpc.MaxRecvMsgSizeCallOption); ok {
			longest = limit.MaxRecvMsgSize
		}
	}
	for _, method := range o.config.methods {
		if method.responseMax != nil {
			longest = max(longest, *method.responseMax)
		}
	}
	return longest
}

// withDialer has sessions begin by dial, in tests.
func withDialer(dial dialer) DialOption {
	return func(o *dialOptions) error {
		o.dial = dial
		return nil
	}
}
