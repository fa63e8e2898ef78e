//go:build interop

package tollfree

import (
	"testing"

	"google.golang.org/grpc"
)

// RustGateway is a gateway of the Rust implementation with one group, until the test ends.
func RustGateway(t *testing.T) (socket string) {
	t.Helper()
	socket, _ = rustGateway(t, "[groups.default]\n")
	return socket
}

// UntilCalled is a client of the group, as soon as a call succeeds.
func UntilCalled(t *testing.T, gateway string, call func(conn grpc.ClientConnInterface) error) *ClientConn {
	t.Helper()
	conn := viaConn(t, gateway, "group:default")
	eventually(t, "the group answers", func() bool { return call(conn) == nil })
	return conn
}
