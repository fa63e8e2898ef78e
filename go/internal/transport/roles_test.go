package transport

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tollfree/tollfree/go/internal/call"
)

// roleVariable has this program play a role at an address, instead of running tests; detailVariable says more of it.
const (
	roleVariable    = "TOLLFREE_TEST_ROLE"
	addressVariable = "TOLLFREE_TEST_ADDRESS"
	detailVariable  = "TOLLFREE_TEST_DETAIL"
)

// roles are what processes that tests start do, by name.
var roles = map[string]func(address string) error{"server": serveUntilInputEnds}

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	play := roles[role]
	if play == nil {
		fmt.Fprintln(os.Stderr, "there is no role", role)
		os.Exit(2)
	}
	if err := play(os.Getenv(addressVariable)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// ready tells the test that the role is under way.
func ready() { fmt.Println("ready") }

// serveUntilInputEnds serves an echo: methods of "/inline/" where the ring is read, others by workers.
func serveUntilInputEnds(address string) error {
	listener, err := Listen(address, Config{})
	if err != nil {
		return err
	}
	closed := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = listener.Close()
		close(closed)
	}()
	ready()
	err = listener.Serve(call.Service{Handler: answer, Inline: func(method string) bool { return strings.HasPrefix(method, "/inline/") }})
	if err == nil {
		<-closed
	}
	return err
}

// A player is a process that plays a role.
type player struct {
	*exec.Cmd
	t     testing.TB
	input io.Closer
	lines *bufio.Reader
	ended bool
}

// player starts a process that plays a role, which further settings may change before.
func play(t testing.TB, role, address, detail string, change ...func(*exec.Cmd)) *player {
	t.Helper()
	p := &player{Cmd: exec.Command(os.Args[0]), t: t}
	p.Env = append(os.Environ(), roleVariable+"="+role, addressVariable+"="+address, detailVariable+"="+detail)
	p.Stderr = os.Stderr
	for _, change := range change {
		change(p.Cmd)
	}
	input, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	p.input, p.lines = input, bufio.NewReader(output)
	t.Cleanup(func() { _ = p.end() })
	return p
}

// line is the next that the player prints; empty at its end.
func (p *player) line() string {
	line, _ := p.lines.ReadString('\n')
	return strings.TrimSuffix(line, "\n")
}

// awaitReady fails the test unless the role says that it is under way.
func (p *player) awaitReady() *player {
	p.t.Helper()
	if line := p.line(); line != "ready" {
		p.t.Fatalf("%q instead of ready", line)
	}
	return p
}

// end ends the player's input, and waits until it has ended.
func (p *player) end() error {
	if p.ended {
		return nil
	}
	p.ended = true
	_ = p.input.Close()
	return p.Wait()
}

// signal sends the player a signal.
func (p *player) signal(signal syscall.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(signal); err != nil {
		p.t.Fatal(err)
	}
}

// stop stops the player, and waits until it stands still.
func (p *player) stop() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	for until := time.Now().Add(testTime); ; time.Sleep(time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid))
		if err != nil {
			p.t.Fatal(err)
		}
		if _, state, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(state, "T") {
			return
		}
		if time.Now().After(until) {
			p.t.Fatal("it does not stop")
		}
	}
}

// kill kills the player, and waits until it is gone.
func (p *player) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	_ = p.end()
}

// killed waits until the player is gone, and says whether SIGKILL was the reason.
func (p *player) killed() bool {
	_ = p.end()
	status, ok := p.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// process is a server in another process.
func process(t testing.TB) (address string, server *player) {
	t.Helper()
	address = newName()
	return address, play(t, "server", address, "").awaitReady()
}

// linkOf is a client's end of its session.
func linkOf(c call.Client) *link { return c.(*client).link }
