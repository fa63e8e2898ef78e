//go:build !tollfree_elsewhere

package system

import "golang.org/x/sys/unix"

// Supported says whether sessions can be had on this system.
const Supported = true

// Errors of the system.
const (
	EACCES       = unix.EACCES
	EADDRINUSE   = unix.EADDRINUSE
	EAGAIN       = unix.EAGAIN
	ECONNABORTED = unix.ECONNABORTED
	ECONNREFUSED = unix.ECONNREFUSED
	EFBIG        = unix.EFBIG
	EINTR        = unix.EINTR
	EINVAL       = unix.EINVAL
	EMFILE       = unix.EMFILE
	ENFILE       = unix.ENFILE
	ENOBUFS      = unix.ENOBUFS
	ENOENT       = unix.ENOENT
	ENOMEM       = unix.ENOMEM
	ENOSYS       = unix.ENOSYS
	EPERM        = unix.EPERM
	ESRCH        = unix.ESRCH
	EWOULDBLOCK  = unix.EWOULDBLOCK
)

// Constants of Linux.
const (
	AF_UNIX             = unix.AF_UNIX
	CLOCK_MONOTONIC     = unix.CLOCK_MONOTONIC
	F_ADD_SEALS         = unix.F_ADD_SEALS
	F_DUPFD_CLOEXEC     = unix.F_DUPFD_CLOEXEC
	F_GET_SEALS         = unix.F_GET_SEALS
	F_SEAL_FUTURE_WRITE = unix.F_SEAL_FUTURE_WRITE
	F_SEAL_GROW         = unix.F_SEAL_GROW
	F_SEAL_SEAL         = unix.F_SEAL_SEAL
	F_SEAL_SHRINK       = unix.F_SEAL_SHRINK
	F_SEAL_WRITE        = unix.F_SEAL_WRITE
	LOCK_EX             = unix.LOCK_EX
	LOCK_NB             = unix.LOCK_NB
	MAP_ANONYMOUS       = unix.MAP_ANONYMOUS
	MAP_PRIVATE         = unix.MAP_PRIVATE
	MAP_SHARED          = unix.MAP_SHARED
	MFD_ALLOW_SEALING   = unix.MFD_ALLOW_SEALING
	MFD_CLOEXEC         = unix.MFD_CLOEXEC
	MFD_NOEXEC_SEAL     = unix.MFD_NOEXEC_SEAL
	MSG_CTRUNC          = unix.MSG_CTRUNC
	MSG_DONTWAIT        = unix.MSG_DONTWAIT
	MSG_NOSIGNAL        = unix.MSG_NOSIGNAL
	O_CLOEXEC           = unix.O_CLOEXEC
	O_DIRECTORY         = unix.O_DIRECTORY
	O_NOFOLLOW          = unix.O_NOFOLLOW
	O_PATH              = unix.O_PATH
	POLLIN              = unix.POLLIN
	PROT_READ           = unix.PROT_READ
	PROT_WRITE          = unix.PROT_WRITE
	RESOLVE_BENEATH     = unix.RESOLVE_BENEATH
	RESOLVE_NO_SYMLINKS = unix.RESOLVE_NO_SYMLINKS
	RLIMIT_FSIZE        = unix.RLIMIT_FSIZE
	RLIMIT_NOFILE       = unix.RLIMIT_NOFILE
	SHUT_RDWR           = unix.SHUT_RDWR
	SOCK_CLOEXEC        = unix.SOCK_CLOEXEC
	SOCK_NONBLOCK       = unix.SOCK_NONBLOCK
	SOCK_STREAM         = unix.SOCK_STREAM
	SOL_SOCKET          = unix.SOL_SOCKET
	SOMAXCONN           = unix.SOMAXCONN
	SO_PEERCRED         = unix.SO_PEERCRED
	SO_TYPE             = unix.SO_TYPE
	S_IFMT              = unix.S_IFMT
	S_IFREG             = unix.S_IFREG
	S_IFSOCK            = unix.S_IFSOCK
	TMPFS_MAGIC         = unix.TMPFS_MAGIC
)

// Types of Linux.
type (
	CPUSet       = unix.CPUSet
	Errno        = unix.Errno
	OpenHow      = unix.OpenHow
	PollFd       = unix.PollFd
	Rlimit       = unix.Rlimit
	SockaddrUnix = unix.SockaddrUnix
	Stat_t       = unix.Stat_t
	Statfs_t     = unix.Statfs_t
	Timespec     = unix.Timespec
	Ucred        = unix.Ucred
)

func ClockGettime(clock int32, now *Timespec) error     { return unix.ClockGettime(clock, now) }
func Close(fd int) error                                { return unix.Close(fd) }
func CloseOnExec(fd int)                                { unix.CloseOnExec(fd) }
func Connect(fd int, to *SockaddrUnix) error            { return unix.Connect(fd, to) }
func Fallocate(fd int, mode uint32, off, n int64) error { return unix.Fallocate(fd, mode, off, n) }
func FcntlInt(fd uintptr, command, argument int) (int, error) {
	return unix.FcntlInt(fd, command, argument)
}
func Flock(fd, how int) error                          { return unix.Flock(fd, how) }
func Fstat(fd int, stat *Stat_t) error                 { return unix.Fstat(fd, stat) }
func Fstatfs(fd int, stat *Statfs_t) error             { return unix.Fstatfs(fd, stat) }
func Ftruncate(fd int, n int64) error                  { return unix.Ftruncate(fd, n) }
func Getrlimit(which int, limit *Rlimit) error         { return unix.Getrlimit(which, limit) }
func GetsockoptInt(fd, level, option int) (int, error) { return unix.GetsockoptInt(fd, level, option) }
func GetsockoptUcred(fd, level, option int) (*Ucred, error) {
	return unix.GetsockoptUcred(fd, level, option)
}
func Listen(fd, backlog int) error                    { return unix.Listen(fd, backlog) }
func Lstat(path string, stat *Stat_t) error           { return unix.Lstat(path, stat) }
func MemfdCreate(name string, flags int) (int, error) { return unix.MemfdCreate(name, flags) }
func Mmap(fd int, off int64, n, access, flags int) ([]byte, error) {
	return unix.Mmap(fd, off, n, access, flags)
}
func Munmap(memory []byte) error                            { return unix.Munmap(memory) }
func Open(path string, flags int, mode uint32) (int, error) { return unix.Open(path, flags, mode) }
func Openat2(directory int, path string, how *OpenHow) (int, error) {
	return unix.Openat2(directory, path, how)
}
func PidfdOpen(pid, flags int) (int, error)            { return unix.PidfdOpen(pid, flags) }
func Poll(fds []PollFd, milliseconds int) (int, error) { return unix.Poll(fds, milliseconds) }
func SchedGetaffinity(pid int, set *CPUSet) error      { return unix.SchedGetaffinity(pid, set) }
func SetNonblock(fd int, nonblocking bool) error       { return unix.SetNonblock(fd, nonblocking) }
func Shutdown(fd, how int) error                       { return unix.Shutdown(fd, how) }
func Socket(domain, kind, protocol int) (int, error)   { return unix.Socket(domain, kind, protocol) }
func Getpagesize() int                                 { return unix.Getpagesize() }

// Send sends bytes, without waiting if flags say so.
func Send(fd int, bytes []byte, flags int) error { return unix.Sendto(fd, bytes, flags, nil) }

// SendDescriptors sends bytes, and descriptors as Rights has them.
func SendDescriptors(fd int, bytes, rights []byte, flags int) (int, error) {
	return unix.SendmsgN(fd, bytes, rights, nil, flags)
}

// Rights is a message that passes descriptors.
func Rights(fds ...int) []byte { return unix.UnixRights(fds...) }

// ParseRights gives the descriptors that messages have passed.
//
// Errors: the messages are cut off.
func ParseRights(messages []byte) (fds []int, err error) {
	parsed, err := unix.ParseSocketControlMessage(messages)
	if err != nil {
		return nil, err
	}
	for i := range parsed {
		if came, err := unix.ParseUnixRights(&parsed[i]); err == nil {
			fds = append(fds, came...)
		}
	}
	return fds, nil
}
