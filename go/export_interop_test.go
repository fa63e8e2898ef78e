//go:build interop

package tollfree

import (
	"fmt"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc"
)

// RustGateway is a gateway of the Rust implementation with one group, until the test ends.
func RustGateway(t *testing.T) (socket string) {
	t.Helper()
	socket, _ = rustGateway(t, "[groups.default]\n")
	return socket
}

// RustGatewayAndWorld is RustGateway, with the address at which it takes calls by HTTP/2.
func RustGatewayAndWorld(t *testing.T) (socket, world string) {
	t.Helper()
	return rustGateway(t, "[groups.default]\n")
}

// UntilCalled is a client of the group, as soon as a call succeeds.
func UntilCalled(t *testing.T, gateway string, call func(conn grpc.ClientConnInterface) error) *ClientConn {
	t.Helper()
	conn := viaConn(t, gateway, "group:default")
	eventually(t, "the group answers", func() bool { return call(conn) == nil })
	return conn
}

// RustPool is where a server of the Rust implementation coordinates a pool until the test ends.
func RustPool(t *testing.T) (coordinator string) {
	t.Helper()
	_, coordinator = rustPool(t)
	return coordinator
}

// JoinUntilEnd joins a pool until the test ends.
func JoinUntilEnd(t *testing.T, coordinator string) *Pool {
	t.Helper()
	return join(t, coordinator)
}

// PoolName is where a pool can be coordinated.
func PoolName() string {
	return fmt.Sprintf("shm-abstract:pool-%d-%d", os.Getpid(), time.Now().UnixNano())
}

// RefCounts says how many refs this process has passed on, and has taken hold of.
func RefCounts(p *Pool) (lent, taken uint64) { return p.member.Counts() }

// LiesIn says whether bytes lie in memory of the pool that this process holds.
func LiesIn(p *Pool, data []byte) bool { return liesIn(p, data) }
