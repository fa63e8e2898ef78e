package rendezvous

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tollfree/tollfree/go/internal/steps"
	"github.com/tollfree/tollfree/go/internal/system"
)

const (
	// bindPatience is the longest that a start waits for another at the same path, unbindPatience a shutdown: the file
	// that it leaves then is in nobody's way.
	bindPatience   = 2 * time.Second
	unbindPatience = 50 * time.Millisecond
	lockPause      = 2 * time.Millisecond
)

// A Listener is a bound socket.
type Listener struct {
	*net.UnixListener
	path          string
	device, inode uint64
	// adopted says that another process has made the file, and removes it.
	adopted bool
}

// Bind binds an address, in the place of a server that died there, and listens.
//
// Errors: a live server has it, or something that is no socket lies there; what the kernel refuses.
func Bind(address Address) (*Listener, error) {
	fail := func(err error) error { return fmt.Errorf("%s can't be served: %w", address, err) }
	if address.path == "" {
		socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: address.socketName(), Net: "unix"})
		if errors.Is(err, system.EADDRINUSE) {
			return nil, fail(errors.New("a running server has it"))
		}
		if err != nil {
			return nil, fail(err)
		}
		return &Listener{UnixListener: socket}, nil
	}
	unlock, err := lock(address.path, bindPatience)
	if err != nil {
		return nil, fail(err)
	}
	defer unlock()
	steps.Pass(steps.PathLocked)
	if err := clearStale(address.path); err != nil {
		return nil, fail(err)
	}
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: address.path, Net: "unix"})
	if err != nil {
		return nil, fail(err)
	}
	// Only under the lock, and only this very file: see Close.
	socket.SetUnlinkOnClose(false)
	listener := &Listener{UnixListener: socket, path: address.path}
	var stat system.Stat_t
	if err := system.Lstat(address.path, &stat); err != nil {
		_ = socket.Close()
		return nil, fail(err)
	}
	listener.device, listener.inode = stat.Dev, stat.Ino
	steps.Pass(steps.Bound)
	return listener, nil
}

// Adopt takes over a socket that listens already: another process has bound it, and its file is left to that. The socket is closed
// where Adopt fails.
//
// Errors: it is no socket that listens for streams at a path or an abstract name.
func Adopt(socket *net.UnixListener) (listener *Listener, address Address, err error) {
	defer func() {
		if err != nil {
			_ = socket.Close()
		}
	}()
	socket.SetUnlinkOnClose(false)
	name := socket.Addr().String()
	if abstract, ok := strings.CutPrefix(name, "@"); ok {
		address, err = ParseAddress("shm-abstract:" + abstract)
	} else {
		address, err = ParseAddress("shm://" + name)
	}
	if err != nil {
		return nil, address, fmt.Errorf("a socket that is bound already: %w", err)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, address, err
	}
	var inner error
	err = raw.Control(func(fd uintptr) {
		kind, err := system.GetsockoptInt(int(fd), system.SOL_SOCKET, system.SO_TYPE)
		if err != nil || kind != system.SOCK_STREAM {
			inner = errors.New("it is no socket for streams")
			return
		}
		// Clients learn who has called listen last.
		inner = system.Listen(int(fd), system.SOMAXCONN)
	})
	if err = errors.Join(err, inner); err != nil {
		return nil, address, fmt.Errorf("%s, which is bound already: %w", address, err)
	}
	listener = &Listener{UnixListener: socket, path: address.path, adopted: true}
	var stat system.Stat_t
	if address.path != "" && system.Lstat(address.path, &stat) == nil {
		listener.device, listener.inode = stat.Dev, stat.Ino
	}
	return listener, address, nil
}

// Close stops listening, and removes the socket's file if Bind made that very file.
func (l *Listener) Close() error {
	err := l.UnixListener.Close()
	if l.path == "" || l.adopted || errors.Is(err, net.ErrClosed) {
		return err
	}
	unlock, lockErr := lock(l.path, unbindPatience)
	if lockErr != nil {
		return err
	}
	defer unlock()
	var stat system.Stat_t
	if system.Lstat(l.path, &stat) == nil && stat.Dev == l.device && stat.Ino == l.inode {
		_ = os.Remove(l.path)
	}
	return err
}

// lock takes the lock of a path as section 2 says.
func lock(path string, patience time.Duration) (unlock func(), err error) {
	name := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".lock")
	until := time.Now().Add(patience)
	for {
		file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|system.O_NOFOLLOW|system.O_CLOEXEC, 0o600)
		if err != nil {
			return nil, err
		}
		held, err := hold(file, name)
		if err == nil && held {
			return func() {
				_ = os.Remove(name)
				_ = file.Close()
			}, nil
		}
		_ = file.Close()
		if err != nil {
			return nil, err
		}
		if time.Now().After(until) {
			return nil, fmt.Errorf("%s: another server that starts or ends holds the lock", name)
		}
		time.Sleep(lockPause)
	}
}

// hold tries to take the lock on an open file, and says whether that is still the file of this name.
func hold(file *os.File, name string) (bool, error) {
	var open, named system.Stat_t
	fd := int(file.Fd())
	if err := system.Fstat(fd, &open); err != nil {
		return false, err
	}
	if open.Uid != uint32(os.Geteuid()) || open.Mode&0o077 != 0 {
		return false, fmt.Errorf("%s is another user's, or open to others, who could hold it: remove it", name)
	}
	if err := system.Flock(fd, system.LOCK_EX|system.LOCK_NB); err != nil {
		if errors.Is(err, system.EWOULDBLOCK) || errors.Is(err, system.EINTR) {
			return false, nil
		}
		return false, fmt.Errorf("%s: flock: %w", name, err)
	}
	err := system.Lstat(name, &named)
	return err == nil && named.Dev == open.Dev && named.Ino == open.Ino, nil
}

// clearStale makes way where a server has died.
func clearStale(path string) error {
	var stat system.Stat_t
	if err := system.Lstat(path, &stat); err != nil {
		if errors.Is(err, system.ENOENT) {
			return nil
		}
		return err
	}
	if stat.Mode&system.S_IFMT != system.S_IFSOCK {
		return fmt.Errorf("%s exists and is no socket, so it is left alone; remove it or choose another path", path)
	}
	fd, err := system.Socket(system.AF_UNIX, system.SOCK_STREAM|system.SOCK_CLOEXEC|system.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer system.Close(fd)
	switch err := system.Connect(fd, &system.SockaddrUnix{Name: path}); {
	case err == nil:
		if cred, err := system.GetsockoptUcred(fd, system.SOL_SOCKET, system.SO_PEERCRED); err != nil || !isDead(fd, cred.Pid) {
			return errors.New("a running server has it")
		}
	case errors.Is(err, system.ECONNREFUSED):
	default:
		return fmt.Errorf("somebody may have it: connect: %w", err)
	}
	return os.Remove(path)
}
