package region

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const length = 36864

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestWhatOneWritesTheOtherReads(t *testing.T) {
	before := descriptors(t)
	own, err := Create("test", length)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.FcntlInt(uintptr(own.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	own.Sent()
	peer, err := Map(fd, length)
	if err != nil {
		t.Fatal(err)
	}
	own.Memory()[length-1] = 7
	if peer[length-1] != 7 {
		t.Error("nothing came")
	}
	own.Unmap()
	if peer[length-1] != 7 {
		t.Error("the mapping does not outlive its maker's")
	}
	Unmap(peer)
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

// TestWhatIsNoRegionIsRefused makes what a peer may send instead.
func TestWhatIsNoRegionIsRefused(t *testing.T) {
	memfd := func(size, reserved int64, seals int) int {
		fd, err := unix.MemfdCreate("bad", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Ftruncate(fd, size); err != nil {
			t.Fatal(err)
		}
		if reserved > 0 {
			if err := unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, reserved); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
			t.Fatal(err)
		}
		return fd
	}
	const all = seals
	for name, bad := range map[string]struct {
		fd   int
		want string
	}{
		"no seals":       {memfd(length, length, unix.F_SEAL_SHRINK), "seals"},
		"another length": {memfd(length*2, length*2, all), "announced"},
		"holes":          {memfd(length, 4096, all), "behind it"},
		"too much":       {memfd(length, 4<<20, all), "behind it"},
		"no length":      {memfd(0, 0, all), "announced"},
		"holes hidden by pages behind the end": {func() int {
			fd := memfd(length, 0, 0)
			if err := unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, length, length); err != nil {
				t.Fatal(err)
			}
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, all); err != nil {
				t.Fatal(err)
			}
			return fd
		}(), "behind it"},
		"a pipe": {func() int {
			var ends [2]int
			if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
				t.Fatal(err)
			}
			unix.Close(ends[0])
			return ends[1]
		}(), "not shared memory"},
	} {
		if _, err := Map(bad.fd, length); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
