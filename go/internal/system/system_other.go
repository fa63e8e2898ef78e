//go:build !linux || tollfree_elsewhere

package system

import (
	"os"
	"syscall"
)

// Supported says whether sessions can be had on this system.
const Supported = false

// Errors of the system.
const (
	EACCES       = syscall.EACCES
	EADDRINUSE   = syscall.EADDRINUSE
	EAGAIN       = syscall.EAGAIN
	ECONNABORTED = syscall.ECONNABORTED
	ECONNREFUSED = syscall.ECONNREFUSED
	EFBIG        = syscall.EFBIG
	EINTR        = syscall.EINTR
	EINVAL       = syscall.EINVAL
	EMFILE       = syscall.EMFILE
	ENFILE       = syscall.ENFILE
	ENOBUFS      = syscall.ENOBUFS
	ENOENT       = syscall.ENOENT
	ENOMEM       = syscall.ENOMEM
	ENOSYS       = syscall.ENOSYS
	EPERM        = syscall.EPERM
	ESRCH        = syscall.ESRCH
	EWOULDBLOCK  = syscall.EWOULDBLOCK
)

// Constants of Linux, which mean nothing here.
const (
	AF_UNIX             = 0
	CLOCK_MONOTONIC     = 0
	F_ADD_SEALS         = 0
	F_DUPFD_CLOEXEC     = 0
	F_GET_SEALS         = 0
	F_SEAL_FUTURE_WRITE = 0
	F_SEAL_GROW         = 0
	F_SEAL_SEAL         = 0
	F_SEAL_SHRINK       = 0
	F_SEAL_WRITE        = 0
	LOCK_EX             = 0
	LOCK_NB             = 0
	MAP_ANONYMOUS       = 0
	MAP_PRIVATE         = 0
	MAP_SHARED          = 0
	MFD_ALLOW_SEALING   = 0
	MFD_CLOEXEC         = 0
	MFD_NOEXEC_SEAL     = 0
	MSG_CTRUNC          = 0
	MSG_DONTWAIT        = 0
	MSG_NOSIGNAL        = 0
	O_CLOEXEC           = 0
	O_DIRECTORY         = 0
	O_NOFOLLOW          = 0
	O_PATH              = 0
	POLLIN              = 0
	PROT_READ           = 0
	PROT_WRITE          = 0
	RESOLVE_BENEATH     = 0
	RESOLVE_NO_SYMLINKS = 0
	RLIMIT_FSIZE        = 0
	RLIMIT_NOFILE       = 0
	SHUT_RDWR           = 0
	SOCK_CLOEXEC        = 0
	SOCK_NONBLOCK       = 0
	SOCK_STREAM         = 0
	SOL_SOCKET          = 0
	SOMAXCONN           = 0
	SO_PEERCRED         = 0
	SO_TYPE             = 0
	S_IFMT              = 0
	S_IFREG             = 0
	S_IFSOCK            = 0
	TMPFS_MAGIC         = 0
)

// Types of Linux, with the fields that are used.
type (
	Errno        = syscall.Errno
	CPUSet       [1]uint64
	OpenHow      struct{ Flags, Mode, Resolve uint64 }
	SockaddrUnix struct{ Name string }
	Timespec     struct{ Sec, Nsec int64 }
	Rlimit       struct{ Cur, Max uint64 }
	Statfs_t     struct{ Type int64 }
	PollFd       struct {
		Fd              int32
		Events, Revents int16
	}
	Stat_t struct {
		Dev, Ino     uint64
		Mode, Uid    uint32
		Size, Blocks int64
	}
	Ucred struct {
		Pid      int32
		Uid, Gid uint32
	}
)

func (*CPUSet) Count() int     { return 0 }
func (*CPUSet) IsSet(int) bool { return false }
func (*Timespec) Nano() int64  { return 0 }

func ClockGettime(clock int32, now *Timespec) error                 { return ErrUnsupported }
func Close(fd int) error                                            { return ErrUnsupported }
func CloseOnExec(fd int)                                            {}
func Connect(fd int, to *SockaddrUnix) error                        { return ErrUnsupported }
func Fallocate(fd int, mode uint32, off, n int64) error             { return ErrUnsupported }
func FcntlInt(fd uintptr, command, argument int) (int, error)       { return -1, ErrUnsupported }
func Flock(fd, how int) error                                       { return ErrUnsupported }
func Fstat(fd int, stat *Stat_t) error                              { return ErrUnsupported }
func Fstatfs(fd int, stat *Statfs_t) error                          { return ErrUnsupported }
func Ftruncate(fd int, n int64) error                               { return ErrUnsupported }
func Getrlimit(which int, limit *Rlimit) error                      { return ErrUnsupported }
func GetsockoptInt(fd, level, option int) (int, error)              { return -1, ErrUnsupported }
func GetsockoptUcred(fd, level, option int) (*Ucred, error)         { return nil, ErrUnsupported }
func Listen(fd, backlog int) error                                  { return ErrUnsupported }
func Lstat(path string, stat *Stat_t) error                         { return ErrUnsupported }
func MemfdCreate(name string, flags int) (int, error)               { return -1, ErrUnsupported }
func Mmap(fd int, off int64, n, access, flags int) ([]byte, error)  { return nil, ErrUnsupported }
func Munmap(memory []byte) error                                    { return ErrUnsupported }
func Open(path string, flags int, mode uint32) (int, error)         { return -1, ErrUnsupported }
func Openat2(directory int, path string, how *OpenHow) (int, error) { return -1, ErrUnsupported }
func PidfdOpen(pid, flags int) (int, error)                         { return -1, ErrUnsupported }
func Poll(fds []PollFd, milliseconds int) (int, error)              { return -1, ErrUnsupported }
func SchedGetaffinity(pid int, set *CPUSet) error                   { return ErrUnsupported }
func SetNonblock(fd int, nonblocking bool) error                    { return ErrUnsupported }
func Shutdown(fd, how int) error                                    { return ErrUnsupported }
func Socket(domain, kind, protocol int) (int, error)                { return -1, ErrUnsupported }
func Getpagesize() int                                              { return os.Getpagesize() }

func Send(fd int, bytes []byte, flags int) error                           { return ErrUnsupported }
func SendDescriptors(fd int, bytes, rights []byte, flags int) (int, error) { return 0, ErrUnsupported }
func Rights(fds ...int) []byte                                             { return nil }
func ParseRights(messages []byte) (fds []int, err error)                   { return nil, ErrUnsupported }
