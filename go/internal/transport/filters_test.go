package transport

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/tollfree/tollfree/go/internal/call"
)

func init() {
	forbidMemory := func() error { return forbid(unix.SYS_MEMFD_CREATE) }
	roles["server without shared memory"] = func(address string) error {
		if err := forbidMemory(); err != nil {
			return err
		}
		_, err := Listen(address, Config{})
		fmt.Println(err)
		return nil
	}
	roles["client without shared memory"] = func(address string) error {
		if err := forbidMemory(); err != nil {
			return err
		}
		_, err := Dial(context.Background(), address, Config{})
		fmt.Println(err)
		return nil
	}
	roles["client without what can be done without"] = func(address string) error {
		if err := forbid(unix.SYS_PIDFD_OPEN, unix.SYS_OPENAT2, unix.SYS_SCHED_GETAFFINITY, unix.SYS_EVENTFD2); err != nil {
			return err
		}
		return callOnce(address)
	}
}

// forbid has system calls fail in this process from now on, as a container's filter does.
func forbid(calls ...uint32) error {
	program := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}}
	for _, number := range calls {
		program = append(program,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: number},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)})
	}
	program = append(program, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	// For all threads.
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&filter)))
	if errno != 0 {
		return errno
	}
	return nil
}

func TestAFilterThatForbidsSharedMemoryIsNamedAtTheStart(t *testing.T) {
	_, listener := served(t, call.Service{Handler: echo}, Config{})
	for role, address := range map[string]string{
		"server without shared memory": newName(),
		"client without shared memory": listener.Address(),
	} {
		line := play(t, role, address, "").line()
		if !strings.Contains(line, "must allow memfd_create") || !strings.Contains(line, address) {
			t.Errorf("%s: %s", role, line)
		}
	}
}

func TestAFilterThatForbidsLessIsNoHindrance(t *testing.T) {
	_, listener := served(t, call.Service{Handler: echo}, Config{})
	if line := play(t, "client without what can be done without", listener.Address(), "").line(); line != codes.OK.String()+" 1000 <nil>" {
		t.Error(line)
	}
}
