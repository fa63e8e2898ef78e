package transport

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
)

func TestAProcessIsNamedInOneForm(t *testing.T) {
	if p, ok := ParseProcess("pid=7,uid=8"); !ok || p != (Process{PID: 7, UID: 8}) {
		t.Errorf("%v, %v", p, ok)
	}
	for _, text := range []string{"", "pid=7", "pid=7,uid=", "pid=x,uid=8", "uid=8,pid=7", "pid=7,uid=-1", "pid=7,uid=8,", "pid=7,uid=8 x", " pid=7,uid=8", "pid=07,uid=8", "pid=99999999999,uid=8"} {
		if p, ok := ParseProcess(text); ok {
			t.Errorf("%q is %v", text, p)
		}
	}
}

// ownProcess is this one, and others are not: processes that a gateway does not name, and the number of those that the kernel can't show.
func ownProcess() Process { return Process{PID: int32(os.Getpid()), UID: uint32(os.Geteuid())} }

func others() []Process {
	own := ownProcess()
	return []Process{{own.PID + 1, own.UID}, {own.PID, own.UID + 1}, {0, own.UID}}
}

// admit serves at a socket for one process.
func admit(t *testing.T, process Process) (address string, served chan error) {
	t.Helper()
	l, err := Admit(process, Config{})
	if err != nil {
		t.Fatal(err)
	}
	served = make(chan error, 1)
	go func() {
		served <- l.Serve(call.Service{Handler: func(c call.ServerCall) {
			if !c.Peer().Neighbor {
				t.Error("the handler does not learn that it is a direct connection")
			}
			_ = c.Finish(nil, nil, status.New(codes.OK, ""), nil)
		}})
	}()
	t.Cleanup(func() { _ = l.Close() })
	return l.Address(), served
}

func TestASocketForOneProcessLetsInNobodyElse(t *testing.T) {
	for _, other := range others() {
		address, served := admit(t, other)
		_, err := DialDirect(context.Background(), address, ownProcess(), Config{})
		if status.Code(err) != codes.Unavailable {
			t.Errorf("%v: %v", other, err)
		}
		select {
		case err := <-served:
			t.Errorf("%v: nobody was let in, and Serve returned %v", other, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	// Nor does a caller talk to another process than the one that was named.
	for _, other := range others() {
		address, _ := admit(t, ownProcess())
		if _, err := DialDirect(context.Background(), address, other, Config{}); err == nil {
			t.Errorf("%v: a session with another process", other)
		}
	}
	if _, err := DialDirect(context.Background(), "shm:///run/another.sock", ownProcess(), Config{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a path: %v", err)
	}
}

// intruderOf says to a process that a test has started at which address it tries to be let in.
const intruderOf = "TOLLFREE_TEST_INTRUDER"

// TestAnIntruder is another process in TestASocketForOneProcessTakesOneSession.
func TestAnIntruder(t *testing.T) {
	address := os.Getenv(intruderOf)
	if address == "" {
		return
	}
	if _, err := Dial(context.Background(), address, Config{}); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "another process") {
		t.Errorf("%v", err)
	}
}

func TestASocketForOneProcessTakesOneSession(t *testing.T) {
	address, served := admit(t, ownProcess())
	// Another process that knows the name comes first. It takes nobody's place.
	intruder := exec.Command(os.Args[0], "-test.run=^TestAnIntruder$")
	intruder.Env = append(os.Environ(), intruderOf+"="+address)
	if out, err := intruder.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c, err := DialDirect(context.Background(), address, ownProcess(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	started, err := c.Start(context.Background(), &call.Start{Method: "/a.B/C", Last: true})
	if err != nil {
		t.Fatal(err)
	}
	if outcome := started.Outcome(); outcome.Status.Code() != codes.OK {
		t.Errorf("%v", outcome.Status)
	}
	if _, err := DialDirect(context.Background(), address, ownProcess(), Config{}); status.Code(err) != codes.Unavailable {
		t.Errorf("a second session: %v", err)
	}
	_ = c.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
