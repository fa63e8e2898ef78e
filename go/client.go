package tollfree

import (
	"context"
	"sync/atomic"
	"unsafe"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"

	"github.com/tollfree/tollfree/go/internal/call"
)

// clientKey is of a session's context: its *client.
type clientKey struct{}

// A client is what a server knows of a session's client.
type client struct {
	// agent is its user-agent, as metadata have it.
	agent []string
	// session is the session's context; nil where the carrier does not tell of sessions.
	session context.Context
	// gateway says that it hands in calls of others.
	gateway bool
	// neighbor is who it is where a gateway has led it here; nil: it has come by itself.
	neighbor *Caller
	// last is the header of the last call. Calls of one client often have the same.
	last atomic.Pointer[shownHeader]
}

// A shownHeader is a header as it came, and as it is shown, also in a context of the session's. Nobody changes either: package metadata
// hands out copies.
type shownHeader struct {
	came, shown metadata.MD
	// plain says that messages are protobuf's, and not compressed.
	plain bool
	// caller is nil, unless a gateway has called.
	caller  *Caller
	context context.Context
}

// within is a context with the header.
func (h *shownHeader) within(ctx context.Context) context.Context {
	if h.caller != nil {
		ctx = context.WithValue(ctx, callerKey{}, h.caller)
	}
	return metadata.NewIncomingContext(ctx, h.shown)
}

// A rebaser is a call whose context may descend from another one of the session's.
type rebaser interface {
	Rebase(parent context.Context) bool
}

// withHeader is the context of a call with its header.
func (c *client) withHeader(ctx context.Context, from call.ServerCall, header metadata.MD) context.Context {
	show := c.show(header)
	if r, is := from.(rebaser); is && show.context != nil && r.Rebase(show.context) {
		return ctx
	}
	return show.within(ctx)
}

// show makes of a call's header what grpc-go shows: with what does not travel, and without what is the transport's. Nobody changes
// the header from then on.
func (c *client) show(header metadata.MD) *shownHeader {
	if last := c.last.Load(); last != nil && sameMap(last.came, header) {
		return last
	}
	shown := make(metadata.MD, len(header)+3)
	for name, values := range header {
		if name != headerEncoding {
			shown[name] = values
		}
	}
	shown[headerAuthority] = authorityValue
	if shown[headerContentType] == nil {
		shown[headerContentType] = contentTypeValue
	}
	if shown[headerUserAgent] == nil {
		shown[headerUserAgent] = c.agent
	}
	subtype, ok := subtypeOf(first(header, headerContentType))
	compression := first(header, headerEncoding)
	last := &shownHeader{came: header, shown: shown, plain: ok && subtype == "" && (compression == "" || compression == encoding.Identity)}
	switch {
	case c.gateway:
		last.caller = callerOf(shown)
	case c.neighbor != nil:
		withoutGateway(shown)
		last.caller = c.neighbor
	}
	if c.session != nil {
		last.context = last.within(c.session)
	}
	c.last.Store(last)
	return last
}

// sameMap says whether two variables have the same map, not whether it has the same content.
func sameMap(a, b metadata.MD) bool {
	return *(*unsafe.Pointer)(unsafe.Pointer(&a)) == *(*unsafe.Pointer)(unsafe.Pointer(&b))
}
