package tollfree

import (
	"context"
	"crypto/tls"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
)

// invited is a call by which a gateway asks for a join.
type invited struct {
	call.ServerCall
	peer   call.Peer
	header metadata.MD
	joined *string
}

func (c invited) Context() context.Context { return context.Background() }
func (c invited) Peer() call.Peer          { return c.peer }
func (c invited) Header() metadata.MD      { return c.header }

func (c invited) Join(_ context.Context, address string, invitation [16]byte) error {
	*c.joined = address + string(invitation[:])
	return nil
}

// A server joins the pools of gateways of its user and of root, which it is invited to, and no other.
func TestWhoseInvitationsAreTaken(t *testing.T) {
	own := uint32(os.Geteuid())
	const address, invitation = "shm-abstract:pool", "000102030405060708090a0b0c0d0e0F"
	for name, asked := range map[string]struct {
		peer                call.Peer
		address, invitation string
		code                codes.Code
	}{
		"the own user":       {call.Peer{UID: own}, address, invitation, codes.OK},
		"root":               {call.Peer{UID: 0}, address, invitation, codes.OK},
		"another user":       {call.Peer{UID: own + 4711}, address, invitation, codes.FailedPrecondition},
		"another host":       {call.Peer{UID: own, Secret: new(tls.ConnectionState)}, address, invitation, codes.FailedPrecondition},
		"no address":         {call.Peer{UID: own}, "", invitation, codes.InvalidArgument},
		"an address of TCP":  {call.Peer{UID: own}, "localhost:1", invitation, codes.InvalidArgument},
		"no invitation":      {call.Peer{UID: own}, address, "", codes.InvalidArgument},
		"a short invitation": {call.Peer{UID: own}, address, invitation[:30], codes.InvalidArgument},
		"a long invitation":  {call.Peer{UID: own}, address, invitation + "00", codes.InvalidArgument},
		"other digits":       {call.Peer{UID: own}, address, strings.Repeat("x", 32), codes.InvalidArgument},
	} {
		joined := ""
		header := metadata.MD{headerPool: {asked.address}, headerInvitation: {asked.invitation}}
		err := joinPool(invited{peer: asked.peer, header: header, joined: &joined})
		if status.Code(err) != asked.code {
			t.Errorf("%s: %v", name, err)
		}
		if want := address + "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"; (joined == want) != (asked.code == codes.OK) {
			t.Errorf("%s: joined %q", name, joined)
		}
	}
}
