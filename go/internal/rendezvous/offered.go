package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tollfree/tollfree/go/internal/system"
)

// A FileID names a file of this host.
type FileID struct{ Device, Inode uint64 }

func (id FileID) String() string { return fmt.Sprintf("%d:%d", id.Device, id.Inode) }

// ParseFileID takes it out of a header: two decimal numbers with a colon between.
func ParseFileID(text string) (id FileID, err error) {
	device, inode, _ := strings.Cut(text, ":")
	if id.Device, err = strconv.ParseUint(device, 10, 64); err == nil {
		id.Inode, err = strconv.ParseUint(inode, 10, 64)
	}
	if err != nil {
		return id, errors.New("a file that is not named by device and inode")
	}
	return id, nil
}

// Path is the address's path, or empty.
func (a Address) Path() string { return a.path }

// File names the socket's file; ok is false of an abstract name.
func (l *Listener) File() (id FileID, ok bool) {
	return FileID{l.device, l.inode}, l.path != ""
}

// ConnectOffered connects to a socket that somebody has offered, if it lies in a directory, at any depth and without symbolic links on
// the way from there, and is the file that was meant.
func ConnectOffered(ctx context.Context, directory string, address Address, id FileID) (*Conn, error) {
	fail := func(err error) (*Conn, error) { return nil, fmt.Errorf("%s, which was offered: %w", address, err) }
	below, err := filepath.Rel(directory, address.path)
	if err != nil || address.path == "" || below == ".." || strings.HasPrefix(below, "../") {
		return fail(fmt.Errorf("it does not lie in %s", directory))
	}
	top, err := system.Open(directory, system.O_PATH|system.O_DIRECTORY|system.O_CLOEXEC, 0)
	if err != nil {
		return fail(fmt.Errorf("%s: %w", directory, err))
	}
	defer system.Close(top)
	fd, err := system.Openat2(top, below, &system.OpenHow{Flags: system.O_PATH | system.O_CLOEXEC, Resolve: system.RESOLVE_BENEATH | system.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return fail(err)
	}
	file := os.NewFile(uintptr(fd), address.path)
	defer file.Close()
	var stat system.Stat_t
	switch err := system.Fstat(fd, &stat); {
	case err != nil:
		return fail(err)
	case stat.Mode&system.S_IFMT != system.S_IFSOCK:
		return fail(errors.New("it is no socket"))
	case id != FileID{stat.Dev, stat.Ino}:
		return fail(errors.New("another file lies there"))
	}
	var dialer net.Dialer
	// The file that was checked, whatever lies at the path by now.
	conn, err := dialer.DialContext(ctx, "unix", "/proc/self/fd/"+strconv.Itoa(fd))
	if err != nil {
		return fail(err)
	}
	return NewConn(conn.(*net.UnixConn))
}
