package transport

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/rendezvous"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// CheckTarget says what is wrong with a target of calls by way of a gateway.
func CheckTarget(target string) error {
	_, err := wire.EncodeTarget(target)
	return err
}

// DialVia makes a session with the gateway at an address, which makes its calls at a target: spec/wire.md, section 24.
//
// Errors are statuses, as Dial's.
func DialVia(ctx context.Context, address, target string, config Config) (call.Client, error) {
	where, err := rendezvous.ParseAddress(address)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	registration, err := wire.EncodeTarget(target)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	c, err := dial(ctx, where, config.filled(), connectTo(where), &presentation{kind: wire.KindVia, registration: registration})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// A Process is one that a gateway has named, as the kernel names it to the gateway.
type Process struct {
	PID int32
	UID uint32
}

// ParseProcess takes a process out of the header tollfree-process.
func ParseProcess(text string) (p Process, ok bool) {
	var end string
	n, _ := fmt.Sscanf(text+" .", "pid=%d,uid=%d %s", &p.PID, &p.UID, &end)
	return p, n == 3 && end == "." && text == p.String()
}

func (p Process) String() string { return fmt.Sprintf("pid=%d,uid=%d", p.PID, p.UID) }

// is says whether this process is at the other end. A number of 0, which the kernel shows for processes that it can't show, is nobody's.
func (p Process) is(conn *rendezvous.Conn) bool {
	return p.PID > 0 && conn.PID() == p.PID && conn.UID() == p.UID
}

// DialDirect makes a session with a process that a gateway has named, at an abstract address.
//
// Errors are statuses: PermissionDenied where another process is there.
func DialDirect(ctx context.Context, address string, process Process, config Config) (call.Client, error) {
	where, err := rendezvous.ParseAddress(address)
	if err == nil && where.Path() != "" {
		err = fmt.Errorf("%s: a direct connection is made by an abstract name", address)
	}
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	// The gateway has named its user; without it, calls would have gone to the same process.
	config.Admits = func(uid uint32) bool { return uid == process.UID }
	connect := func(ctx context.Context) (*rendezvous.Conn, error) {
		conn, err := rendezvous.Connect(ctx, where)
		if err == nil && !process.is(conn) {
			conn.Close()
			return nil, fmt.Errorf("process %d of user %d is there, and not the one that the gateway has named (%s)", conn.PID(), conn.UID(), process)
		}
		return conn, err
	}
	c, err := dial(ctx, where, config.filled(), connect, &presentation{kind: wire.KindHello})
	if err != nil {
		return nil, err
	}
	return c, nil
}
