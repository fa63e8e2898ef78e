// Package region makes and takes regions of shared memory: spec/wire.md, section 4. Memory of a peer's is only ever mapped
// for reading, after checks that make sure that no access fails and none costs this process memory.
package region

import (
	"errors"
	"fmt"

	"github.com/tollfree/tollfree/go/internal/system"
)

const seals = system.F_SEAL_SHRINK | system.F_SEAL_GROW | system.F_SEAL_FUTURE_WRITE | system.F_SEAL_SEAL

// Own is a region that this process has made, and alone may write.
type Own struct {
	memory []byte
	fd     int
}

// Create makes, reserves, maps and seals a region. The caller bounds length.
//
// Errors: what the kernel refuses; nothing is left behind then.
func Create(name string, length int) (own *Own, err error) {
	fail := func(step string, err error) error {
		return fmt.Errorf("a region of %d bytes can't be made: %s: %w", length, step, err)
	}
	var limit system.Rlimit
	// The kernel answers a length above this limit with a signal.
	if err := system.Getrlimit(system.RLIMIT_FSIZE, &limit); err == nil && limit.Cur < uint64(length) {
		return nil, fail("the limit on the size of files (ulimit -f)", system.EFBIG)
	}
	const flags = system.MFD_CLOEXEC | system.MFD_ALLOW_SEALING
	fd, err := system.MemfdCreate(name, flags|system.MFD_NOEXEC_SEAL)
	if errors.Is(err, system.EINVAL) {
		// Before Linux 6.3.
		fd, err = system.MemfdCreate(name, flags)
	}
	if errors.Is(err, system.EPERM) || errors.Is(err, system.ENOSYS) {
		return nil, fail("the system, or its filter of system calls, must allow memfd_create", err)
	}
	if err != nil {
		return nil, fail("memfd_create", err)
	}
	defer func() {
		if err != nil {
			system.Close(fd)
		}
	}()
	if err := system.Ftruncate(fd, int64(length)); err != nil {
		return nil, fail("ftruncate", err)
	}
	memory, err := system.Mmap(fd, 0, length, system.PROT_READ|system.PROT_WRITE, system.MAP_SHARED)
	if err != nil {
		return nil, fail("mmap", err)
	}
	if err = reserve(fd, length); err == nil {
		_, err = system.FcntlInt(uintptr(fd), system.F_ADD_SEALS, seals)
	}
	if err != nil {
		_ = system.Munmap(memory)
		return nil, fail("reserving or sealing it", err)
	}
	return &Own{memory, fd}, nil
}

// reserve has all pages made. A signal undoes the reservation that it interrupts, so each step is short.
func reserve(fd, length int) error {
	const step = 256 * 1024
	for at := 0; at < length; {
		n := min(step, length-at)
		switch err := system.Fallocate(fd, 0, int64(at), int64(n)); {
		case err == nil:
			at += n
		case !errors.Is(err, system.EINTR):
			return err
		}
	}
	return nil
}

// Memory is the region's bytes, until Unmap.
func (o *Own) Memory() []byte { return o.memory }

// FD is the descriptor to send, until Sent.
func (o *Own) FD() int { return o.fd }

// Sent closes the descriptor: the peer has its own.
func (o *Own) Sent() {
	if o.fd >= 0 {
		system.Close(o.fd)
		o.fd = -1
	}
}

// Unmap gives the memory back. Nobody may touch it any more.
func (o *Own) Unmap() {
	o.Sent()
	if o.memory != nil {
		_ = system.Munmap(o.memory)
		o.memory = nil
	}
}
