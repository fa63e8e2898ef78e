package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"golang.org/x/sys/unix"
)

// The sides of NotNets' table 1, and what the paper has in their place. Its figures (mean, 99 %, 99.9 %, in us): HTTP/2 209, 507, 1430; its
// own path 26.2, 138, 335; its own path without serialization 9.67, 44.1, 231.
var notnetsSides = []struct{ side, name string }{
	{"grpc-go-tcp", "grpc-go over TCP"},
	{"go", "Tollfree, the same stubs"},
	{"go-inline", "the same, handler on the reading goroutine"},
	{"go-direct", "stubs of protoc-gen-go-tollfree, likewise"},
}

// notnetsCalls is how many calls the paper makes.
const notnetsCalls = 200_000

// notnets makes so many calls by each side, one after the other, between two processes on processors of their own, and prints a table. All
// sides run once in each round; each figure is the median of its rounds.
func notnets(calls int64, rounds int, out io.Writer) error {
	rows := make([][]figures, len(notnetsSides))
	for range rounds {
		for i, s := range notnetsSides {
			f, err := callsOf(s.side, calls)
			if err != nil {
				return fmt.Errorf("%s: %w", s.side, err)
			}
			rows[i] = append(rows[i], f)
		}
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(out, "%d calls of 64 B, one after the other, %d rounds; us, and grpc-go's in terms of them\n", calls, rounds)
	fmt.Fprintln(table, "mean\t\tp99\t\tp99.9\t\t")
	first := medians(rows[0])
	for i, s := range notnetsSides {
		own := medians(rows[i])
		for j := range own {
			fmt.Fprintf(table, "%.2f\t%.1fx\t", own[j]/1000, first[j]/own[j])
		}
		fmt.Fprintf(table, "\t%s\n", s.name)
	}
	return table.Flush()
}

// figures are mean, p99 and p99.9 in nanoseconds.
type figures [3]float64

func medians(rounds []figures) (m figures) {
	for i := range m {
		slices.SortFunc(rounds, func(a, b figures) int { return cmp.Compare(a[i], b[i]) })
		m[i] = rounds[len(rounds)/2][i]
	}
	return m
}

// callsOf has two processes of this program make the calls.
func callsOf(side string, calls int64) (f figures, err error) {
	directory, err := os.MkdirTemp("", "notnets")
	if err != nil {
		return f, err
	}
	defer os.RemoveAll(directory)
	server, said, input, err := startOn(0, "serve", "-side", side, "-dir", directory)
	if err != nil {
		return f, err
	}
	defer func() {
		input.Close()
		_ = server.Wait()
	}()
	address, err := said.ReadString('\n')
	if err != nil {
		return f, fmt.Errorf("the server's address: %w", err)
	}
	client, answer, input2, err := startOn(runtime.NumCPU()-1, "call", "-side", side, "-address", strings.TrimSpace(address),
		"-calls", strconv.FormatInt(calls, 10), "-warm-up", "200ms")
	if err != nil {
		return f, err
	}
	defer input2.Close()
	var m measured
	if err := json.NewDecoder(answer).Decode(&m); err != nil {
		return f, fmt.Errorf("the client's answer: %w", err)
	}
	return figuresOf(m.Latencies), client.Wait()
}

func figuresOf(latencies [][2]int64) (f figures) {
	slices.SortFunc(latencies, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	count, sum := int64(0), 0.0
	for _, l := range latencies {
		count += l[1]
		sum += float64(l[0]) * float64(l[1])
	}
	f[0] = sum / float64(count)
	for i, part := range []float64{0.99, 0.999} {
		before := int64(0)
		for _, l := range latencies {
			if before += l[1]; float64(before) >= part*float64(count) {
				f[i+1] = float64(l[0])
				break
			}
		}
	}
	return f
}

// startOn starts this program on one processor, which it takes over from the thread that starts it.
func startOn(processor int, arguments ...string) (process *exec.Cmd, output *bufio.Reader, input io.WriteCloser, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, nil, nil, err
	}
	one.Set(processor)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return nil, nil, nil, err
	}
	defer func() { _ = unix.SchedSetaffinity(0, &before) }()
	self, err := os.Executable()
	if err != nil {
		return nil, nil, nil, err
	}
	process = exec.Command(self, arguments...)
	process.Stderr = os.Stderr
	if input, err = process.StdinPipe(); err != nil {
		return nil, nil, nil, err
	}
	pipe, err := process.StdoutPipe()
	if err != nil {
		return nil, nil, nil, err
	}
	return process, bufio.NewReader(pipe), input, process.Start()
}
