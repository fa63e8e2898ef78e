package tollfree

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/transport"
)

// Attach serves behind a gateway (tollfree-gateway), which hands in calls from elsewhere: the services that are registered, as a member
// of a group. It returns as Serve does. A gateway that is not there yet, or goes away, is waited for; one that refuses this process
// for good the first time is an error. Peers says as which users the gateway may run.
//
// A gateway of another host has an address of the form "device+tls://host:port", and Certificates says by what the two know each other.
//
// Handlers see the gateway as their peer, and CallerFromContext says for whom it calls.
func (s *Server) Attach(address, group string) error {
	if err := checkGateway(address, s.options.certificates); err != nil {
		return err
	}
	l, err := s.bind(func() (call.Listener, error) {
		names := make([]string, 0, len(s.services))
		for name := range s.services {
			names = append(names, name)
		}
		slices.Sort(names)
		return transport.Attach(address, group, names, s.options.certificates, serverConfig(s.options))
	})
	if err != nil {
		return fmt.Errorf("tollfree: attach to %s: %w", address, err)
	}
	return s.ServeListener(l)
}

// The method by which a gateway whose place another takes asks for a session with that one: spec/wire.md, section 24.
const (
	gatewayService = "/tollfree.Gateway/"
	moveMethod     = gatewayService + "Move"
)

// moveOn has the server attach anew, and returns when it has.
func moveOn(from call.ServerCall) error {
	mover, is := from.(interface {
		Move(ctx context.Context) error
	})
	if !is {
		return status.Error(codes.FailedPrecondition, "tollfree: this session can't move")
	}
	return mover.Move(from.Context())
}

// Names of what a gateway says of the client that a call is of: spec/wire.md, section 24.
const (
	gatewayPrefix = "tollfree-"
	headerCaller  = "tollfree-client-address"
	headerSubject = "tollfree-client-subject"
	headerName    = "tollfree-client-name"
)

// A Caller is who has called a gateway.
type Caller struct {
	// Address is "ip:port"; "unix:pid=P,uid=U" of a local process, "shm:pid=P,uid=U" of one that calls by way of the gateway,
	// "device:ip:port" of one that does so from another host.
	Address string
	// Subject is that of the client's certificate, Names are the certificate's DNS names and URIs; empty without one.
	Subject string
	Names   []string
}

type callerKey struct{}

// CallerFromContext says who has called the gateway, in a handler of a server that has attached; ok is false elsewhere.
func CallerFromContext(ctx context.Context) (caller Caller, ok bool) {
	c, ok := ctx.Value(callerKey{}).(*Caller)
	if !ok {
		return Caller{}, false
	}
	return Caller{c.Address, c.Subject, slices.Clone(c.Names)}, true
}

// callerOf takes what a gateway says out of a header.
func callerOf(header metadata.MD) *Caller {
	caller := &Caller{Address: first(header, headerCaller), Subject: unescaped(first(header, headerSubject))}
	for _, name := range header[headerName] {
		caller.Names = append(caller.Names, unescaped(name))
	}
	withoutGateway(header)
	return caller
}

// withoutGateway leaves out of a header what only a gateway says.
func withoutGateway(header metadata.MD) {
	for name := range header {
		if strings.HasPrefix(name, gatewayPrefix) {
			delete(header, name)
		}
	}
}

// unescaped undoes percent-encoding; what is none stays as it is.
func unescaped(text string) string {
	if plain, err := url.PathUnescape(text); err == nil {
		return plain
	}
	return text
}
