package region

import (
	"fmt"

	"github.com/tollfree/tollfree/go/internal/system"
)

// CreatePrivate maps zeros that no other process has: a region whose peer is sent what is in it.
//
// Errors: what the kernel refuses.
func CreatePrivate(length int) (*Own, error) {
	memory, err := system.Mmap(-1, 0, length, system.PROT_READ|system.PROT_WRITE, system.MAP_PRIVATE|system.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("%d bytes of memory can't be had: mmap: %w", length, err)
	}
	return &Own{memory, -1}, nil
}
