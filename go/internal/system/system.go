// Package system is what sessions need of Linux, and stand-ins elsewhere, so that programs that use tollfree build there, too. No other package
// asks for which system it is compiled. Stand-ins return ErrUnsupported; Check refuses what would reach them. The build tag tollfree_elsewhere has the
// stand-ins on Linux, for tests.
package system

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
)

// ErrUnsupported is what stand-ins return.
var ErrUnsupported = errors.New("not on this system")

// Check refuses what needs shared memory where this is not Linux.
func Check() error {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return fmt.Errorf("shared memory needs a little-endian processor, and this program is compiled for %s: use grpc.NewClient and grpc.NewServer with a TCP address here", runtime.GOARCH)
	}
	if Supported {
		return nil
	}
	return fmt.Errorf("shared memory needs Linux, and this program runs on %s: use grpc.NewClient and grpc.NewServer with a TCP address here", runtime.GOOS)
}
