package tollfree

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/system"
	"github.com/tollfree/tollfree/go/internal/transport"
)

// ListenOn takes a socket over that is bound and listens already. Its file is left to the process that has bound it. The server has
// closed the socket when it stops, or where ListenOn fails.
//
// A client that had connected before sees the process that bound the socket as its peer: that one's user is the client's own, or
// among WithPeers.
func (s *Server) ListenOn(socket *net.UnixListener) (*Listener, error) {
	l, err := s.bind(func() (call.Listener, error) { return transport.ListenOn(socket, serverConfig(s.options)) })
	if err != nil {
		_ = socket.Close()
		return nil, fmt.Errorf("tollfree: ListenOn: %w", err)
	}
	return l, nil
}

// ListenPassed takes over a socket that the service manager has passed to this process (LISTEN_FDS, as of systemd), by the name that its
// unit gives it (FileDescriptorName=); "" is the only one. So clients meet the server before it has started, and while it is started
// anew: they wait in the socket meanwhile.
func (s *Server) ListenPassed(name string) (*Listener, error) {
	socket, err := passed.take(name)
	if err != nil {
		return nil, fmt.Errorf("tollfree: ListenPassed(%q): %w", name, err)
	}
	return s.ListenOn(socket)
}

// passedFirst is the first descriptor that a service manager passes (sd_listen_fds).
const passedFirst = 3

// passedSockets are those that this process was given, until they are taken.
type passedSockets struct {
	mu    sync.Mutex
	taken map[int]bool
}

var passed passedSockets

func (p *passedSockets) take(name string) (*net.UnixListener, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return nil, errors.New("the service manager has passed no socket to this process: start it by its .socket unit")
	}
	count, err := strconv.Atoi(os.Getenv("LISTEN_FDS"))
	if err != nil || count < 1 {
		return nil, fmt.Errorf("LISTEN_FDS is %q, which is no number of sockets", os.Getenv("LISTEN_FDS"))
	}
	names := strings.Split(os.Getenv("LISTEN_FDNAMES"), ":")
	at := -1
	for i := range count {
		switch {
		case name == "" && count == 1, name != "" && i < len(names) && names[i] == name:
			at = i
		}
	}
	switch {
	case at < 0 && name == "":
		return nil, fmt.Errorf("%d sockets were passed: name one of %q", count, names)
	case at < 0:
		return nil, fmt.Errorf("no socket of this name was passed, but %q: say FileDescriptorName= in the .socket unit", names)
	case p.taken[at]:
		return nil, errors.New("it is taken already")
	}
	for i := range count {
		system.CloseOnExec(passedFirst + i)
	}
	file := os.NewFile(uintptr(passedFirst+at), name)
	if p.taken == nil {
		p.taken = map[int]bool{}
	}
	p.taken[at] = true
	// It has a copy of the descriptor.
	listener, err := net.FileListener(file)
	_ = file.Close()
	if err != nil {
		return nil, err
	}
	socket, ok := listener.(*net.UnixListener)
	if !ok {
		_ = listener.Close()
		return nil, errors.New("it is no Unix socket")
	}
	return socket, nil
}
