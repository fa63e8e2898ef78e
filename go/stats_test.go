package tollfree

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"

	pb "github.com/tollfree/tollfree/go/internal/testproto"
)

// recorder is a stats handler that notes what it is told.
type recorder struct {
	mu     sync.Mutex
	events []string
	conns  []string
	sizes  []payloadSize
	errs   []error
}

type payloadSize struct{ plain, compressed int }

type tagKey struct{}

func (r *recorder) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, tagKey{}, info.FullMethodName)
}

func (r *recorder) HandleRPC(ctx context.Context, s stats.RPCStats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := strings.TrimPrefix(fmt.Sprintf("%T", s), "*stats.")
	if ctx.Value(tagKey{}) == nil {
		name += " without tag"
	}
	switch s := s.(type) {
	case *stats.OutPayload:
		r.sizes = append(r.sizes, payloadSize{s.Length, s.CompressedLength})
	case *stats.InPayload:
		r.sizes = append(r.sizes, payloadSize{s.Length, s.CompressedLength})
	case *stats.End:
		r.errs = append(r.errs, s.Error)
	}
	r.events = append(r.events, name)
}

func (r *recorder) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (r *recorder) HandleConn(_ context.Context, s stats.ConnStats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns = append(r.conns, strings.TrimPrefix(fmt.Sprintf("%T", s), "*stats."))
}

func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events = nil
	return events
}

func (r *recorder) payloads() []payloadSize {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sizes)
}

func (r *recorder) sessions() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.conns)
}

func (r *recorder) ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.events, "End")
}

func TestStatsHandlers(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		ofClient, ofServer := &recorder{}, &recorder{}
		server := h.newServer(0, &testService{}, StatsHandler(ofServer))
		conn := h.newConn(WithStatsHandler(ofClient))
		client := pb.NewTestClient(conn)
		want := func(who *recorder, events ...string) {
			t.Helper()
			eventually(t, "the end of the call", who.ended)
			if got := who.take(); !slices.Equal(got, events) {
				t.Fatalf("got  %v\nwant %v", got, events)
			}
		}
		_, err := client.Unary(testContext(t), &pb.Request{Text: "x"})
		wantNoError(t, err)
		want(ofClient, "Begin", "OutHeader", "OutPayload", "InHeader", "InPayload", "InTrailer", "End")
		want(ofServer, "InHeader", "Begin", "InPayload", "OutHeader", "OutPayload", "OutTrailer", "End")

		stream, err := client.Bidi(testContext(t))
		wantNoError(t, err)
		for range 2 {
			wantNoError(t, stream.Send(&pb.Request{}))
			_, err := stream.Recv()
			wantNoError(t, err)
		}
		wantNoError(t, stream.CloseSend())
		if _, err := stream.Recv(); err != io.EOF {
			t.Fatal(err)
		}
		want(ofClient, "Begin", "OutHeader", "OutPayload", "InHeader", "InPayload", "OutPayload", "InPayload", "InTrailer", "End")
		want(ofServer, "InHeader", "Begin", "InPayload", "OutHeader", "OutPayload", "InPayload", "OutPayload", "OutTrailer", "End")

		wantCode(t, conn.Invoke(testContext(t), "/tollfree.test.Test/No", &pb.Request{}, &pb.Reply{}), codes.Unimplemented)
		want(ofClient, "Begin", "OutHeader", "OutPayload", "InTrailer", "End")
		both := []*recorder{ofClient, ofServer}
		for _, who := range both {
			if got := who.sessions(); !slices.Equal(got, []string{"ConnBegin"}) {
				t.Fatalf("sessions: %v", got)
			}
		}
		conn.Close()
		server.Stop()
		for _, who := range both {
			eventually(t, "the end of the session", func() bool { return slices.Equal(who.sessions(), []string{"ConnBegin", "ConnEnd"}) })
		}
	})
}

func TestOpenTelemetry(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		spans := tracetest.NewSpanRecorder()
		provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
		options := []otelgrpc.Option{otelgrpc.WithTracerProvider(provider), otelgrpc.WithPropagators(propagation.TraceContext{})}
		h.newServer(0, &testService{}, StatsHandler(otelgrpc.NewServerHandler(options...)))
		client := pb.NewTestClient(h.newConn(WithStatsHandler(otelgrpc.NewClientHandler(options...))))
		ctx, root := provider.Tracer("test").Start(testContext(t), "root")
		_, err := client.Unary(ctx, &pb.Request{})
		wantNoError(t, err)
		root.End()
		eventually(t, "three spans", func() bool { return len(spans.Ended()) == 3 })
		var kinds []string
		for _, span := range spans.Ended() {
			kinds = append(kinds, span.SpanKind().String())
			if span.SpanContext().TraceID() != root.SpanContext().TraceID() {
				t.Errorf("span %s is of another trace", span.Name())
			}
			if span.Name() != "root" && span.Name() != "tollfree.test.Test/Unary" {
				t.Errorf("a span is called %s", span.Name())
			}
		}
		slices.Sort(kinds)
		if !slices.Equal(kinds, []string{"client", "internal", "server"}) {
			t.Fatalf("the spans are %v", kinds)
		}
	})
}
