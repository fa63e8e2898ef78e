package tollfree

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/flat"
	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/rendezvous"
)

// The service by which a gateway asks for what it needs to send objects, and its headers: spec/wire.md, section 24.
const (
	objectsService = "/tollfree.Objects/"
	describeMethod = objectsService + "Describe"
	joinMethod     = objectsService + "Join"

	headerPool       = "tollfree-pool"
	headerInvitation = "tollfree-invitation"
)

// describe answers a gateway that asks for a method's types: spec/wire.md, section 24.
func (s *Server) describe(from call.ServerCall) {
	path := first(from.Header(), "tollfree-method")
	m := s.method(path)
	if _, takes := s.objectsOf(path); !takes {
		from.Finish(nil, nil, status.Newf(codes.NotFound, "tollfree: no objects are taken of %s", path), nil)
		return
	}
	d := flat.Description{Request: m.objects.request, Reply: m.objects.reply}
	from.Finish(nil, &call.Message{Data: mem.BufferSlice{mem.SliceBuffer(d.Bytes())}}, statusOK, nil)
}

// join answers a gateway that places what it sends in a pool of its own: this process becomes a member if the gateway is of its user, or root's. Objects
// that lie there are copied and verified as any others.
func (s *Server) join(from call.ServerCall) {
	from.Finish(nil, nil, status.Convert(joinPool(from)), nil)
}

func joinPool(from call.ServerCall) error {
	gateway := from.Peer()
	joiner, is := from.(interface {
		Join(ctx context.Context, address string, invitation [16]byte) error
	})
	if !is || gateway.Secret != nil || gateway.UID != 0 && !rendezvous.SameUser(gateway.UID) {
		return status.Error(codes.FailedPrecondition, "tollfree: this process does not trust its gateway's memory")
	}
	address := first(from.Header(), headerPool)
	if err := checkAddress(address); err != nil {
		return status.Errorf(codes.InvalidArgument, "tollfree: %s: %v", headerPool, err)
	}
	invitation, ok := parseInvitation(first(from.Header(), headerInvitation))
	if !ok {
		return status.Errorf(codes.InvalidArgument, "tollfree: %s has to be 32 hexadecimal digits", headerInvitation)
	}
	return joiner.Join(from.Context(), address, invitation)
}
