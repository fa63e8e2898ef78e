package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/tollfree/tollfree/examples/trace/relay"
	tollfree "github.com/tollfree/tollfree/go"
)

// instrument has the process export its spans by OTLP, as the usual variables of the environment say (OTEL_EXPORTER_OTLP_ENDPOINT,
// OTEL_SERVICE_NAME), and pass traces on in `traceparent`. flush exports the last spans.
func instrument(ctx context.Context) (flush func(context.Context) error, err error) {
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return nil, err
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	return provider.Shutdown, nil
}

// A relayService passes calls on to the next service, if there is one.
type relayService struct {
	relay.UnimplementedRelayServer
	next relay.RelayClient
}

func (s relayService) Pass(ctx context.Context, in *relay.PassRequest) (*relay.PassReply, error) {
	reply := &relay.PassReply{}
	if s.next != nil {
		var err error
		if reply, err = s.next.Pass(ctx, in); err != nil {
			return nil, err
		}
	}
	itself := fmt.Sprintf("%s, process %d", os.Getenv("OTEL_SERVICE_NAME"), os.Getpid())
	reply.Passed = append([]string{itself}, reply.Passed...)
	return reply, nil
}

// serve is the service in Go: it serves at address until the input ends.
func serve(address, next string, input io.Reader, output io.Writer) (err error) {
	flush, err := instrument(context.Background())
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		err = errors.Join(err, flush(ctx))
	}()
	var service relayService
	if next != "" {
		conn, err := tollfree.NewClient(next, tollfree.WithStatsHandler(otelgrpc.NewClientHandler()))
		if err != nil {
			return err
		}
		defer conn.Close()
		service.next = relay.NewRelayClient(conn)
	}
	server := tollfree.NewServer(tollfree.StatsHandler(otelgrpc.NewServerHandler()))
	relay.RegisterRelayServer(server, service)
	listener, err := server.Listen(address)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- server.ServeListener(listener) }()
	fmt.Fprintln(output, "ready")
	_, _ = io.Copy(io.Discard, input)
	server.GracefulStop()
	return <-ended
}
