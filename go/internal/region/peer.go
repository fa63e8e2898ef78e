package region

import (
	"errors"
	"fmt"
	"sync"

	"github.com/tollfree/tollfree/go/internal/system"
)

// largePage is what the kernel may round a file's memory up to.
const largePage = 2 << 20

// ErrShort says that this process lacks what it takes to map a region that may well be sound.
var ErrShort = errors.New("this process is out of memory or mappings")

// Map checks the region behind a descriptor that has come from a peer, and maps it for reading. The descriptor is closed.
//
// Errors: what is wrong with it; ErrShort where nothing is.
func Map(fd, length int) ([]byte, error) {
	if err := check(fd, length); err != nil {
		CloseGiven(fd)
		return nil, err
	}
	defer system.Close(fd)
	memory, err := system.Mmap(fd, 0, length, system.PROT_READ, system.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%w: mmap: %w", ErrShort, err)
	}
	return memory, nil
}

// Unmap gives up what Map has mapped.
func Unmap(memory []byte) { _ = system.Munmap(memory) }

// check makes the checks of section 4. Seals come first: only memory has any, so no file system is asked for them, and size
// and blocks say nothing while the peer can still change them.
func check(fd, length int) error {
	found, err := system.FcntlInt(uintptr(fd), system.F_GET_SEALS, 0)
	if err != nil {
		return errors.New("a descriptor came that is not shared memory")
	}
	wanted := seals
	if found&system.F_SEAL_WRITE != 0 {
		wanted &^= system.F_SEAL_FUTURE_WRITE
	}
	if found&wanted != wanted {
		return fmt.Errorf("a region without the seals %#x", wanted&^found)
	}
	size, blocks, err := stat(fd)
	if err != nil {
		return err
	}
	if size != int64(length) || size == 0 {
		return fmt.Errorf("a region of %d bytes where %d were announced", size, length)
	}
	var files system.Statfs_t
	if err := system.Fstatfs(fd, &files); err != nil || files.Type != system.TMPFS_MAGIC {
		return errors.New("a region that is not of plain memory")
	}
	if blocks < size || blocks > roundUp(size, largePage) {
		return fmt.Errorf("a region of %d bytes with %d behind it", size, blocks)
	}
	// Blocks behind the end would stand for pages that are missing within.
	if err := system.Ftruncate(fd, size); err != nil {
		return fmt.Errorf("a region whose descriptor is not open for writing: ftruncate: %w", err)
	}
	if _, blocks, err = stat(fd); err != nil || blocks < size || blocks > roundUp(size, int64(system.Getpagesize())) {
		return fmt.Errorf("a region of %d bytes with %d behind it", size, blocks)
	}
	return nil
}

func stat(fd int) (size, blocks int64, err error) {
	var stat system.Stat_t
	if err := system.Fstat(fd, &stat); err != nil {
		return 0, 0, fmt.Errorf("a region: fstat: %w", err)
	}
	if stat.Mode&system.S_IFMT != system.S_IFREG {
		return 0, 0, errors.New("a region that is no regular file")
	}
	return stat.Size, stat.Blocks * 512, nil
}

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

// closing are descriptors that peers have given, and whose closing may take as long as a peer likes.
var closing struct {
	sync.Mutex
	queue   []int
	closers int
}

// closersMax bounds what peers can hold up: each closer may wait in the kernel, and takes a thread.
const closersMax = 4

// CloseGiven closes a descriptor that came from a peer, where nobody waits for that.
func CloseGiven(fd int) {
	if _, err := system.FcntlInt(uintptr(fd), system.F_GET_SEALS, 0); err == nil {
		system.Close(fd)
		return
	}
	closing.Lock()
	defer closing.Unlock()
	closing.queue = append(closing.queue, fd)
	if closing.closers < closersMax {
		closing.closers++
		go closeAll()
	}
}

func closeAll() {
	closing.Lock()
	defer closing.Unlock()
	for len(closing.queue) > 0 {
		fd := closing.queue[0]
		closing.queue = closing.queue[1:]
		closing.Unlock()
		system.Close(fd)
		closing.Lock()
	}
	closing.closers--
}
