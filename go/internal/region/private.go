package region

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// CreatePrivate maps zeros that no other process has: a region whose peer is sent what is in it.
//
// Errors: what the kernel refuses.
func CreatePrivate(length int) (*Own, error) {
	memory, err := unix.Mmap(-1, 0, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("%d bytes of memory can't be had: mmap: %w", length, err)
	}
	return &Own{memory, -1}, nil
}
