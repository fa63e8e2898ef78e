package main

import (
	"context"
	"net"
	"sync"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// A span is one as a process has exported it.
type span struct {
	// service is the name of the process.
	service string
	*tracepb.Span
}

// A collector takes spans by OTLP, over gRPC and TCP, as OpenTelemetry's own collector does.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer
	server *grpc.Server
	socket net.Listener

	mu    sync.Mutex
	spans []span
}

func newCollector() (*collector, error) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &collector{server: grpc.NewServer(), socket: socket}
	collectorpb.RegisterTraceServiceServer(c.server, c)
	go func() { _ = c.server.Serve(socket) }()
	return c, nil
}

func (c *collector) endpoint() string { return "http://" + c.socket.Addr().String() }

func (c *collector) stop() { c.server.Stop() }

func (c *collector) Export(_ context.Context, in *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range in.ResourceSpans {
		name := "a process without a name"
		for _, attribute := range resource.GetResource().GetAttributes() {
			if attribute.Key == "service.name" {
				name = attribute.Value.GetStringValue()
			}
		}
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans = append(c.spans, span{name, s})
			}
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// take gives the spans that have come.
func (c *collector) take() []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spans
}
