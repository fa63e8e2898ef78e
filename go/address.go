package tollfree

import (
	"fmt"
	"net"
	"strings"

	"github.com/tollfree/tollfree/go/internal/transport"
)

const (
	schemePath     = "shm"
	schemeAbstract = "shm-abstract"
	// socketNameMax is the longest path or abstract name that fits sun_path.
	socketNameMax = 107
)

// checkAddress says what is wrong with an address (spec/wire.md, section 2).
func checkAddress(address string) error {
	if path, ok := strings.CutPrefix(address, schemePath+"://"); ok {
		switch {
		case !strings.HasPrefix(path, "/"):
			return fmt.Errorf("tollfree: address %q has no absolute path: write %s:///run/app/greeter.sock with three slashes", address, schemePath)
		case strings.HasSuffix(path, "/"):
			return fmt.Errorf("tollfree: address %q names a directory: name the socket in it", address)
		case len(path) > socketNameMax:
			return fmt.Errorf("tollfree: address %q has a path of %d bytes: a socket's path has at most %d", address, len(path), socketNameMax)
		case strings.ContainsRune(path, 0):
			return fmt.Errorf("tollfree: address %q has a NUL in its path", address)
		}
		return nil
	}
	if name, ok := strings.CutPrefix(address, schemeAbstract+":"); ok {
		switch {
		case name == "":
			return fmt.Errorf("tollfree: address %q has no name: write %s:greeter", address, schemeAbstract)
		case len(name) > socketNameMax:
			return fmt.Errorf("tollfree: address %q has a name of %d bytes: an abstract name has at most %d", address, len(name), socketNameMax)
		case strings.ContainsRune(name, 0):
			return fmt.Errorf("tollfree: address %q has a NUL in its name", address)
		}
		return nil
	}
	scheme, _, found := strings.Cut(address, ":")
	if !found {
		scheme = "no"
	}
	return fmt.Errorf("tollfree: address %q has %s scheme that Tollfree serves: write %s:///run/app/greeter.sock or %s:greeter here, "+
		"and use grpc.NewClient or grpc.NewServer for other addresses", address, article(scheme), schemePath, schemeAbstract)
}

// checkGateway does as checkAddress for the address of a gateway, which may be another host's where there are certificates.
func checkGateway(address string, certificates *transport.Certificates) error {
	if !strings.HasPrefix(address, transport.StreamScheme) {
		return checkAddress(address)
	}
	if certificates == nil {
		return fmt.Errorf("tollfree: address %q is a gateway's of another host, which needs certificates: set Certificates or WithCertificates", address)
	}
	if err := transport.CheckStreamAddress(address); err != nil {
		return fmt.Errorf("tollfree: %w", err)
	}
	return nil
}

func article(scheme string) string {
	if scheme == "no" {
		return "no"
	}
	return "the scheme " + scheme + ", not a"
}

// socketAddr is the address of a peer, as peer.Peer and stats handlers show it.
func socketAddr(address string) net.Addr {
	if path, ok := strings.CutPrefix(address, schemePath+"://"); ok {
		return &net.UnixAddr{Name: path, Net: "unix"}
	}
	name, _ := strings.CutPrefix(address, schemeAbstract+":")
	return &net.UnixAddr{Name: "@" + name, Net: "unix"}
}
