// Package rendezvous is how two processes meet: addresses, sockets that exactly one server binds, who is at the other end,
// and messages with descriptors; spec/wire.md, sections 2, 3 and 7.
package rendezvous

import (
	"context"
	"fmt"
	"net"
	"strings"
)

// socketNameMax is the length of the longest name of a socket.
const socketNameMax = 107

// An Address is where a server is: a path, or a name in the abstract namespace.
type Address struct {
	path, name string
}

// ParseAddress takes an address apart.
//
// Errors: a text that is none.
func ParseAddress(text string) (Address, error) {
	if name, ok := strings.CutPrefix(text, "shm-abstract:"); ok {
		if len(name) == 0 || len(name) > socketNameMax || strings.ContainsRune(name, 0) {
			return Address{}, fmt.Errorf("%q is no address: the name has 1 to %d bytes, and no NUL", text, socketNameMax)
		}
		return Address{name: name}, nil
	}
	path, ok := strings.CutPrefix(text, "shm://")
	if !ok {
		return Address{}, fmt.Errorf("%q is no address: say shm:///absolute/path or shm-abstract:name", text)
	}
	if !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") || len(path) > socketNameMax || strings.ContainsRune(path, 0) {
		return Address{}, fmt.Errorf("%q is no address: the path is absolute, of at most %d bytes without NUL, and does not end in /", text, socketNameMax)
	}
	return Address{path: path}, nil
}

func (a Address) String() string {
	if a.path != "" {
		return "shm://" + a.path
	}
	return "shm-abstract:" + a.name
}

// socketName is what the net package calls the socket.
func (a Address) socketName() string {
	if a.path != "" {
		return a.path
	}
	return "@" + a.name
}

// Dial connects to the socket at the address.
//
// Errors: as the net package's.
func (a Address) Dial(ctx context.Context) (*net.UnixConn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", a.socketName())
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}
