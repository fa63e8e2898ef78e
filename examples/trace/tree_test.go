package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// TestMain has the test binary be the service in Go when it is started as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "-relay" {
		if err := run(true, nil, os.Args[2:]); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// servicesOf are two services in Go, with those between them that TOLLFREE_TRACE_SERVICES has, as `make` sets it: NAME=PROGRAM, by semicolons.
func servicesOf(t *testing.T) []service {
	t.Helper()
	itself, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	services := []service{{"go-service", []string{itself, "-relay"}}}
	for text := range strings.SplitSeq(os.Getenv("TOLLFREE_TRACE_SERVICES"), ";") {
		if name, command, ok := strings.Cut(text, "="); ok {
			services = append(services, service{name, strings.Fields(command)})
		}
	}
	return append(services, service{"last-service", []string{itself, "-relay"}})
}

// spansOf makes a call through services, and gives its spans and the names of the processes.
func spansOf(t *testing.T, services []service) ([]span, []string) {
	t.Helper()
	collector, err := newCollector()
	if err != nil {
		t.Fatal(err)
	}
	defer collector.stop()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	passed, err := passThrough(ctx, collector.endpoint(), services)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{clientName}
	for i, s := range services {
		names = append(names, s.name)
		if i >= len(passed) || !strings.HasPrefix(passed[i], s.name+", process ") {
			t.Fatalf("the call passed %q", passed)
		}
	}
	return collector.take(), names
}

func TestACallHasOneTraceThroughAllServices(t *testing.T) {
	spans, names := spansOf(t, servicesOf(t))
	line, err := lineOf(spans, names)
	if err != nil {
		t.Fatal(err)
	}
	if len(line) != 2*(len(names)-1) || len(line[0].TraceId) != 16 {
		t.Fatalf("%d spans through %v", len(line), names)
	}
	t.Logf("%d spans, through %v", len(line), names)
	var printed bytes.Buffer
	if err := show(&printed, spans, names); err != nil || strings.Count(printed.String(), "Relay/Pass") != len(line) {
		t.Fatal(err, printed.String())
	}
	// Each span counts: one that is missing, is of another trace, has another parent or has come twice is an error.
	for i := range spans {
		without := slices.Delete(slices.Clone(spans), i, i+1)
		twice := append(slices.Clone(spans), spans[i])
		changed := func(change func(*tracepb.Span)) []span {
			all := slices.Clone(spans)
			all[i].Span = proto.Clone(all[i].Span).(*tracepb.Span)
			change(all[i].Span)
			return all
		}
		elsewhere := changed(func(s *tracepb.Span) { s.TraceId[15] ^= 1 })
		astray := changed(func(s *tracepb.Span) { s.ParentSpanId = []byte("astray!!") })
		for what, bad := range map[string][]span{"missing": without, "twice": twice, "of another trace": elsewhere, "with another parent": astray} {
			if err := show(io.Discard, bad, names); err == nil {
				t.Errorf("the span of %s %s is no error", place{spans[i].service, spans[i].Kind}, what)
			}
		}
	}
}

func TestAServiceThatDoesNotStartIsAnError(t *testing.T) {
	for _, command := range [][]string{{"/nonexistent"}, {"false"}, {"echo", "hello"}} {
		services := servicesOf(t)
		services[len(services)-1] = service{"odd-service", command}
		if err := demo(io.Discard, services); err == nil || !strings.Contains(err.Error(), "odd-service") {
			t.Errorf("%v: %v", command, err)
		}
	}
}

func TestArgumentsThatMakeNoSenseAreErrors(t *testing.T) {
	for _, arguments := range [][]string{{"-relay"}, {"what"}} {
		isRelay := arguments[0] == "-relay"
		if isRelay {
			arguments = nil
		}
		if run(isRelay, nil, arguments) == nil {
			t.Error(isRelay, arguments)
		}
	}
}
