package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// A place is where a call through several services has a span: a process, and the end of the call that it is.
type place struct {
	service string
	kind    tracepb.Span_SpanKind
}

func (p place) String() string {
	return fmt.Sprintf("%s, %s", p.service, strings.ToLower(strings.TrimPrefix(p.kind.String(), "SPAN_KIND_")))
}

// placesOf are the places of a call through these processes, the client's first, from the root of the trace down.
func placesOf(names []string) (places []place) {
	for i, name := range names {
		if i > 0 {
			places = append(places, place{name, tracepb.Span_SPAN_KIND_SERVER})
		}
		if i+1 < len(names) {
			places = append(places, place{name, tracepb.Span_SPAN_KIND_CLIENT})
		}
	}
	return places
}

// lineOf puts the spans of a call in order: the root's first, then each below the one before. Each place has one span, all are of one trace, and
// each names the span above it as its parent.
//
// Errors: what is not so.
func lineOf(spans []span, names []string) ([]span, error) {
	var line []span
	for _, at := range placesOf(names) {
		var found []span
		for _, s := range spans {
			if (place{s.service, s.Kind}) == at {
				found = append(found, s)
			}
		}
		if len(found) != 1 {
			return nil, fmt.Errorf("%d spans of %s have come, where the call has one", len(found), at)
		}
		s := found[0]
		var above []byte
		if len(line) > 0 {
			before := line[len(line)-1]
			if !bytes.Equal(s.TraceId, before.TraceId) {
				return nil, fmt.Errorf("the span of %s is of trace %x, that of %s above it of trace %x", at, s.TraceId, place{before.service, before.Kind}, before.TraceId)
			}
			above = before.SpanId
		}
		if !bytes.Equal(s.ParentSpanId, above) {
			return nil, fmt.Errorf("the span of %s has the parent %x, where it is %x", at, s.ParentSpanId, above)
		}
		line = append(line, s)
	}
	if len(line) != len(spans) {
		return nil, fmt.Errorf("%d spans have come, where the call has %d", len(spans), len(line))
	}
	return line, nil
}

// show prints the spans as a tree.
func show(out io.Writer, spans []span, names []string) error {
	line, err := lineOf(spans, names)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\nIts trace %x, of %d spans:\n", line[0].TraceId, len(line))
	for depth, s := range line {
		branch := ""
		if depth > 0 {
			branch = strings.Repeat("  ", depth-1) + "└─ "
		}
		took := time.Duration(s.EndTimeUnixNano - s.StartTimeUnixNano)
		fmt.Fprintf(out, "  %-46s %-16s %-6s %9.3f ms\n", branch+strings.TrimPrefix(s.Name, "/"), s.service,
			strings.ToLower(strings.TrimPrefix(s.Kind.String(), "SPAN_KIND_")), float64(took.Nanoseconds())/1e6)
	}
	return nil
}
