package rendezvous

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/tollfree/tollfree/go/internal/system"
)

// peerOf asks the kernel who is at the other end of a connection, and for a descriptor of that process.
func peerOf(conn *net.UnixConn) (cred *system.Ucred, pidfd int, dead bool, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, -1, false, err
	}
	var inner error
	pidfd = -1
	err = raw.Control(func(fd uintptr) {
		if cred, inner = system.GetsockoptUcred(int(fd), system.SOL_SOCKET, system.SO_PEERCRED); inner != nil {
			inner = fmt.Errorf("SO_PEERCRED: %w", inner)
			return
		}
		pidfd, dead = pidfdOf(int(fd), cred.Pid)
	})
	return cred, pidfd, dead, errors.Join(err, inner)
}

// soPeerPidfd is SO_PEERPIDFD, from Linux 6.5 on.
const soPeerPidfd = 77

// pidfdOf gives a descriptor that becomes readable when the process at the other end has ended; -1 where only the socket can
// tell: it is this process, or not visible in its pid namespace.
func pidfdOf(fd int, pid int32) (pidfd int, dead bool) {
	if pid <= 0 || int(pid) == os.Getpid() {
		return -1, false
	}
	pidfd, err := system.GetsockoptInt(fd, system.SOL_SOCKET, soPeerPidfd)
	if err != nil {
		// The number is used once, and at once.
		pidfd, err = system.PidfdOpen(int(pid), 0)
		if errors.Is(err, system.ESRCH) {
			return -1, true
		}
	}
	if err != nil {
		return -1, false
	}
	system.CloseOnExec(pidfd)
	return pidfd, false
}

// isDead says whether the process at the other end has ended.
func isDead(fd int, pid int32) bool {
	pidfd, dead := pidfdOf(fd, pid)
	if pidfd < 0 {
		return dead
	}
	defer system.Close(pidfd)
	return HasEnded(pidfd)
}

// AwaitEnd waits until a pidfd's process has ended; false: the pidfd was closed before, or does not tell.
func AwaitEnd(pidfd *os.File) bool {
	raw, err := pidfd.SyscallConn()
	if err != nil {
		return false
	}
	ended := false
	err = raw.Read(func(fd uintptr) bool {
		ended = HasEnded(int(fd))
		return ended
	})
	return err == nil && ended
}

// HasEnded says whether a pidfd's process has ended, waited for or not.
func HasEnded(pidfd int) bool {
	fds := []system.PollFd{{Fd: int32(pidfd), Events: system.POLLIN}}
	for {
		n, err := system.Poll(fds, 0)
		if !errors.Is(err, system.EINTR) {
			return err == nil && n == 1
		}
	}
}
