package rendezvous

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/tollfree/tollfree/go/internal/system"
)

// overflowUID is the user id that stands for those whom a user namespace does not map, unless the system has another.
const overflowUID = 65534

// SameUser says whether a user id is this process's own, and one user's: the overflow id stands for several in a user namespace
// that does not map all.
func SameUser(uid uint32) bool {
	if uid != uint32(os.Geteuid()) {
		return false
	}
	overflow := uint64(overflowUID)
	if text, err := os.ReadFile("/proc/sys/kernel/overflowuid"); err == nil {
		if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32); err == nil {
			overflow = n
		}
	}
	if uint64(uid) != overflow && uid != overflowUID {
		return true
	}
	text, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && mapsAll(string(text))
}

// mapsAll says whether a user namespace's map has all user ids.
func mapsAll(text string) bool {
	all := uint64(0)
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) == 3 {
			n, _ := strconv.ParseUint(fields[2], 10, 64)
			all += n
		}
	}
	return all >= 1<<32-1
}

// UserOf is the user whose process is at the other end of a connection, as the kernel says.
func UserOf(conn *net.UnixConn) (uint32, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *system.Ucred
	var inner error
	if err := raw.Control(func(fd uintptr) {
		cred, inner = system.GetsockoptUcred(int(fd), system.SOL_SOCKET, system.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if inner != nil {
		return 0, fmt.Errorf("SO_PEERCRED: %w", inner)
	}
	return cred.Uid, nil
}
