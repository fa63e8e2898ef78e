package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// paced is what a round of calls at a rate has measured.
type paced struct {
	Latencies   [][2]int64 `json:"latencies"`
	Missed      uint64     `json:"missed"`
	ClientCPUNS int64      `json:"client_cpu_ns"`
	ServerCPUNS int64      `json:"server_cpu_ns"`
	ThrottledNS *int64     `json:"throttled_ns"`
}

// pace makes a call whenever one is due, one at a time. One that is due while the one before goes on is missed.
func pace(o *order) (*paced, error) {
	conn, closer, pid, err := connect(o)
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	exchange, body := exchanger(o, conn), make([]byte, o.size)
	due, err := newTimer(o.rate)
	if err != nil {
		return nil, err
	}
	defer due.Close()
	took, missed := map[int64]int64{}, uint64(0)
	from := time.Now().Add(o.warmUp)
	var before used
	counting := false
	for {
		var count [8]byte
		if _, err := due.Read(count[:]); err != nil {
			return nil, err
		}
		began := time.Now()
		if _, err := exchange(context.Background(), body); err != nil {
			return nil, err
		}
		ended := time.Now()
		if !counting {
			if ended.After(from) {
				if before, err = usedBy(pid); err != nil {
					return nil, err
				}
				counting, from = true, time.Now()
			}
			continue
		}
		// The first may have become due while the clocks were read.
		if len(took) > 0 {
			missed += binary.NativeEndian.Uint64(count[:]) - 1
		}
		took[ended.Sub(began).Nanoseconds()]++
		if ended.Sub(from) >= o.measure {
			break
		}
	}
	after, err := usedBy(pid)
	if err != nil {
		return nil, err
	}
	return &paced{
		Latencies: pairs(took), Missed: missed,
		ClientCPUNS: (after.own - before.own).Nanoseconds(), ServerCPUNS: (after.other - before.other).Nanoseconds(),
	}, nil
}

// newTimer is a file that says how many calls have become due, as the bench's other clients have it.
func newTimer(rate int) (*os.File, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a timer: %w", err)
	}
	pause := unix.NsecToTimespec(int64(time.Second) / int64(rate))
	if err := unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: pause, Value: pause}, nil); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("set a timer: %w", err)
	}
	return os.NewFile(uintptr(fd), "timer"), nil
}
