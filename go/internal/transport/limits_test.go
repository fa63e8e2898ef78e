package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
)

func init() {
	roles["server with 1024 descriptors"] = func(address string) error {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: usualDescriptors, Max: usualDescriptors}); err != nil {
			return err
		}
		return serveUntilInputEnds(address)
	}
	roles["client of many sessions"] = dialUntilRefused
	roles["server in a group"] = func(address string) error {
		if err := enterGroup(); err != nil {
			return err
		}
		return serveUntilInputEnds(address)
	}
	roles["client in a group"] = func(address string) error {
		if err := enterGroup(); err != nil {
			return err
		}
		return callSteadily(address)
	}
}

// usualDescriptors is how many descriptors systems let a process have unless somebody says otherwise (RLIMIT_NOFILE).
const usualDescriptors = 1024

// dialUntilRefused begins sessions until one is refused, prints how many there are and why there are no more, and has each make calls at each line of
// its input.
func dialUntilRefused(address string) error {
	var sessions []call.Client
	var refusal error
	for refusal == nil {
		client, err := Dial(context.Background(), address, Config{})
		if refusal = err; err == nil {
			sessions = append(sessions, client)
		}
	}
	fmt.Println(len(sessions), refusal)
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		for _, client := range sessions {
			if outcome, got, err := unary(context.Background(), client, "/pooled/echo", 300_000); err != nil || len(got) != 300_000 {
				return fmt.Errorf("%v, %v", err, outcome.Status)
			}
		}
		fmt.Println("called")
	}
	return nil
}

// A server with the usual number of descriptors keeps a quarter of them for others, lets no process have more than half of its sessions, and serves
// all that it has let in.
func TestAServerWithTheUsualDescriptors(t *testing.T) {
	const sessions = usualDescriptors / 4
	address := newName()
	server := play(t, "server with 1024 descriptors", address, "").awaitReady()
	var clients []*player
	for _, want := range []struct {
		count int
		words string
	}{{sessions / 2, fmt.Sprintf("has %d sessions", sessions/2)}, {sessions / 2, "which is the most"}, {0, fmt.Sprintf("%d sessions are under way", sessions)}} {
		client := play(t, "client of many sessions", address, "")
		count, why, _ := strings.Cut(client.line(), " ")
		if count != strconv.Itoa(want.count) || !strings.Contains(why, want.words) {
			t.Fatalf("%s sessions, and then %q", count, why)
		}
		clients = append(clients, client)
	}
	for _, client := range clients[:2] {
		client.say("call")
		if line := client.line(); line != "called" {
			t.Fatalf("%q instead of called", line)
		}
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", server.Process.Pid))
	if err != nil || len(open) > usualDescriptors*3/4 {
		t.Errorf("%d descriptors are open, and %v", len(open), err)
	}
	clients[0].kill()
	for until := time.Now().Add(testTime); ; time.Sleep(5 * time.Millisecond) {
		client, err := Dial(within(t), address, Config{})
		if err == nil {
			_ = client.Close()
			<-client.Done()
			return
		}
		if time.Now().After(until) {
			t.Fatalf("the sessions of a process that is gone still count: %v", err)
		}
	}
}

// say gives a player a line of input.
func (p *player) say(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.input.(io.Writer), line+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

// enterGroup has this process enter the control group that the detail names, if it names one.
func enterGroup() error {
	if group := os.Getenv(detailVariable); group != "" {
		return os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte("0"), 0)
	}
	return nil
}

// callSteadily makes calls of several lengths, with deadlines, until its input ends; it prints how many there were, and whether this process looks for
// wake-ups.
func callSteadily(address string) error {
	client, err := Dial(context.Background(), address, Config{})
	if err != nil {
		return err
	}
	ready()
	over := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(over)
	}()
	for calls := 0; ; calls++ {
		select {
		case <-over:
			fmt.Println(calls, quotaAllows())
			return nil
		default:
		}
		n := []int{0, 64, 5_000, 300_000}[calls%4]
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		outcome, got, err := unary(ctx, client, "/pooled/echo", n)
		cancel()
		if err != nil {
			outcome.Status = status.Convert(err)
		}
		if outcome.Status.Code() != codes.OK || len(got) != n {
			return fmt.Errorf("call %d: %v", calls, outcome.Status)
		}
	}
}

// halfACore makes a control group with half a processor; empty: this process may not.
func halfACore(t *testing.T) (group string) {
	const quota, period = "50000", "100000"
	name := fmt.Sprintf("tollfree-test-%d", os.Getpid())
	for _, kind := range []struct {
		root  string
		files map[string]string
	}{
		{"/sys/fs/cgroup/cpu", map[string]string{"cpu.cfs_period_us": period, "cpu.cfs_quota_us": quota}},
		{"/sys/fs/cgroup", map[string]string{"cpu.max": quota + " " + period}},
	} {
		group := filepath.Join(kind.root, name)
		if os.Mkdir(group, 0o700) != nil {
			continue
		}
		var errs []error
		for file, text := range kind.files {
			// It must be there: elsewhere a directory is only a directory.
			f, err := os.OpenFile(filepath.Join(group, file), os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteString(text)
				err = errors.Join(err, f.Close())
			}
			errs = append(errs, err)
		}
		if errors.Join(errs...) == nil {
			t.Cleanup(func() {
				for until := time.Now().Add(testTime); os.Remove(group) != nil; time.Sleep(5 * time.Millisecond) {
					if time.Now().After(until) {
						t.Errorf("%s is left", group)
						return
					}
				}
			})
			return group
		}
		_ = os.Remove(group)
	}
	return ""
}

// Both ends share half a processor, as in a container: calls are slower, and nothing else. Under such a quota nobody looks for wake-ups.
func TestHalfAProcessorIsEnough(t *testing.T) {
	group, address := halfACore(t), newName()
	server := play(t, "server in a group", address, group).awaitReady()
	client := play(t, "client in a group", address, group).awaitReady()
	const lasts = 2 * time.Second
	if group == "" {
		t.Log("this process may make no control group: both ends are stopped half of the time instead")
		for begun := time.Now(); time.Since(begun) < lasts; {
			for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
				server.signal(signal)
				client.signal(signal)
				time.Sleep(50 * time.Millisecond)
			}
		}
	} else {
		time.Sleep(lasts)
	}
	_ = client.input.Close()
	var calls int
	var looks bool
	if _, err := fmt.Sscan(client.line(), &calls, &looks); err != nil {
		t.Fatal(err)
	}
	if calls < 20 {
		t.Errorf("only %d calls", calls)
	}
	if looks && group != "" {
		t.Error("a process with half a processor looks for wake-ups")
	}
	if err := client.end(); err != nil {
		t.Error(err)
	}
	if err := server.end(); err != nil {
		t.Error(err)
	}
}
