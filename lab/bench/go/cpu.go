package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// withProcess is what a server says of itself behind its address: the process whose time its clients count.
func withProcess(address string, pid int) string { return fmt.Sprintf("%s#%d", address, pid) }

// ofProcess takes apart what withProcess has made.
func ofProcess(said string) (address string, pid int, err error) {
	address, number, ok := strings.Cut(said, "#")
	if !ok {
		return "", 0, fmt.Errorf("%q names no process", said)
	}
	pid, err = strconv.Atoi(number)
	return address, pid, err
}

// used is the processor time of this process, and of another one.
type used struct{ own, other time.Duration }

func usedBy(pid int) (u used, err error) {
	if u.own, err = clock(unix.CLOCK_PROCESS_CPUTIME_ID); err != nil {
		return u, err
	}
	// The kernel's number of another process's clock (clock_getcpuclockid).
	u.other, err = clock(int32(^pid<<3 | 2))
	return u, err
}

func clock(id int32) (time.Duration, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(id, &now); err != nil {
		return 0, fmt.Errorf("a clock of processor time: %w", err)
	}
	return time.Duration(now.Nano()), nil
}
