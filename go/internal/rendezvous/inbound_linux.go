//go:build !tollfree_elsewhere

package rendezvous

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tollfree/tollfree/go/internal/system"
)

// inbound is room to receive into, which is used again and again.
type inbound struct {
	header unix.Msghdr
	vector unix.Iovec
	oob    [16 + 4*descriptorsMax]byte
	bytes  [512]byte
}

// receive receives what is there: n bytes, 0 at the end, with descriptors. It is the system call itself, since the wrapper
// makes an address that nobody needs.
func (in *inbound) receive(socket int, bytes []byte) (n int, fds []int, truncated bool, err error) {
	in.vector.Base = &bytes[0]
	in.vector.SetLen(len(bytes))
	in.header = unix.Msghdr{Iov: &in.vector, Iovlen: 1, Control: &in.oob[0]}
	in.header.SetControllen(len(in.oob))
	for {
		got, _, errno := unix.Syscall(unix.SYS_RECVMSG, uintptr(socket), uintptr(unsafe.Pointer(&in.header)), unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
		if errno == 0 {
			n = int(got)
			break
		}
		if errno != unix.EINTR {
			return 0, nil, false, errno
		}
	}
	if in.header.Controllen > 0 {
		if fds, err = system.ParseRights(in.oob[:in.header.Controllen]); err != nil {
			return n, nil, true, nil
		}
	}
	return n, fds, in.header.Flags&unix.MSG_CTRUNC != 0, nil
}
