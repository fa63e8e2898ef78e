package transport

import (
	"bytes"
	"context"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/rendezvous"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// waiting is a handler that tells of its beginning, and answers when it may.
func waiting(began chan call.ServerCall, goOn chan struct{}) call.Handler {
	return func(c call.ServerCall) {
		began <- c
		select {
		case <-goOn:
		case <-c.Context().Done():
		}
		_ = c.Finish(nil, message(1), ok, nil)
	}
}

func TestAKilledServerEndsItsCalls(t *testing.T) {
	counted(t)
	address, server := process(t)
	client := dialed(t, address, Config{})
	c, err := client.Start(within(t), &call.Start{Method: "/pooled/echo"})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Recv(); err != io.EOF || c.Outcome().Status.Code() != codes.Unavailable || c.Outcome().Unprocessed {
		t.Errorf("%v, %+v", err, c.Outcome())
	}
	<-client.Done()
	<-client.Draining()
	if client.Err() == nil {
		t.Error("the session does not say why it is over")
	}
	if _, err := client.Start(within(t), &call.Start{Method: "/a.B/C"}); status.Code(err) != codes.Unavailable {
		t.Errorf("a call afterwards: %v", err)
	}
	if _, err := Dial(within(t), address, Config{}); status.Code(err) != codes.Unavailable {
		t.Errorf("a session afterwards: %v", err)
	}
}

// TestAnHeirOfItsSocketsHidesNoDeath has a server killed whose sockets another process keeps open.
func TestAnHeirOfItsSocketsHidesNoDeath(t *testing.T) {
	counted(t)
	address, server := process(t)
	client := dialed(t, address, Config{})
	if outcome, _, err := unary(within(t), client, "/pooled/lend", 1); err != nil || outcome.Status.Code() != codes.OK {
		t.Fatal(err, outcome.Status)
	}
	if err := server.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-client.Done():
		if err := client.Err(); !strings.Contains(err.Error(), "process has ended") {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("the session goes on")
	}
}

func TestAClientThatLeavesEndsItsCalls(t *testing.T) {
	began := make(chan call.ServerCall, 1)
	received := make(chan error, 1)
	client, _ := served(t, call.Service{Handler: func(c call.ServerCall) {
		began <- c
		_, err := c.Recv()
		received <- err
		<-c.Context().Done()
	}}, Config{})
	c, err := client.Start(within(t), &call.Start{Method: "/a.B/C"})
	if err != nil {
		t.Fatal(err)
	}
	<-began
	_ = client.Close()
	if err := <-received; status.Code(err) != codes.Unavailable {
		t.Errorf("the handler got %v", err)
	}
	if _, err := c.Recv(); err != io.EOF || c.Outcome().Status.Code() != codes.Unavailable {
		t.Errorf("%v, %v", err, c.Outcome().Status)
	}
	if err := c.Send(*message(1), false); err != io.EOF {
		t.Errorf("sending afterwards: %v", err)
	}
}

func TestADrainLetsCallsEnd(t *testing.T) {
	began, goOn := make(chan call.ServerCall, 1), make(chan struct{})
	client, listener := served(t, call.Service{Handler: waiting(began, goOn)}, Config{})
	idle := dialed(t, listener.Address(), Config{})
	c, err := client.Start(within(t), &call.Start{Method: "/a.B/C", Last: true})
	if err != nil {
		t.Fatal(err)
	}
	<-began
	short, cancel := context.WithTimeout(within(t), 20*time.Millisecond)
	defer cancel()
	if err := listener.Drain(short); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a drain that can't end: %v", err)
	}
	<-client.Draining()
	<-idle.Done()
	if _, err := client.Start(within(t), &call.Start{Method: "/a.B/C"}); status.Code(err) != codes.Unavailable {
		t.Errorf("a call while it drains: %v", err)
	}
	drained := make(chan error, 1)
	go func() { drained <- listener.Drain(within(t)) }()
	close(goOn)
	if got, err := c.Recv(); err != nil || got.Data.Len() != 1 {
		t.Errorf("the call under way: %v", err)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
	<-client.Done()
}

// TestWhoDoesNotReadHoldsUpNobody has a client leave an answer without end unread, on the same session.
func TestWhoDoesNotReadHoldsUpNobody(t *testing.T) {
	for name, service := range services {
		t.Run(name, func(t *testing.T) {
			handler := service.Handler
			service.Handler = func(c call.ServerCall) {
				if c.Method() != "/a.B/Endless" {
					handler(c)
					return
				}
				for {
					if err := c.Send(*message(3000)); err != nil {
						_ = c.Finish(nil, nil, status.Convert(err), nil)
						return
					}
				}
			}
			client, _ := served(t, service, Config{})
			ctx, cancel := context.WithCancel(within(t))
			defer cancel()
			c, err := client.Start(ctx, &call.Start{Method: "/a.B/Endless", Last: true})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Recv(); err != nil {
				t.Fatal(err)
			}
			for i := range 300 {
				if outcome, got, err := unary(within(t), client, "/a.B/C", i*200); err != nil || len(got) != i*200 {
					t.Fatalf("call %d beside it: %v, %v", i, err, outcome.Status)
				}
			}
		})
	}
}

func TestCallsWaitForTheirTurn(t *testing.T) {
	began, goOn := make(chan call.ServerCall, 8), make(chan struct{})
	client, _ := served(t, call.Service{Handler: waiting(began, goOn)}, Config{StreamCount: 1})
	first, err := client.Start(within(t), &call.Start{Method: "/a.B/C", Last: true})
	if err != nil {
		t.Fatal(err)
	}
	<-began
	short, cancel := context.WithTimeout(within(t), 10*time.Millisecond)
	defer cancel()
	if _, err := client.Start(short, &call.Start{Method: "/a.B/C"}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a second call: %v", err)
	}
	done := make(chan error, 5)
	for range 5 {
		go func() {
			outcome, _, err := unary(within(t), client, "/a.B/C", 1)
			if err == nil {
				err = outcome.Status.Err()
			}
			done <- err
		}()
	}
	time.Sleep(10 * time.Millisecond)
	close(goOn)
	for range 5 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if _, err := first.Recv(); err != nil {
		t.Error(err)
	}
}

func TestUsersAreChecked(t *testing.T) {
	_, listener := served(t, call.Service{Handler: echo}, Config{})
	nobody := func(uint32) bool { return false }
	if _, err := Dial(within(t), listener.Address(), Config{Admits: nobody}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a server of another user: %v", err)
	}
	strict, err := Listen(newName(), Config{Admits: nobody})
	if err != nil {
		t.Fatal(err)
	}
	defer strict.Close()
	go func() { _ = strict.Serve(call.Service{Handler: echo}) }()
	if _, err := Dial(within(t), strict.Address(), Config{}); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "not allowed") {
		t.Errorf("a client of another user: %v", err)
	}
}

// TestSilentClientsHoldNoPlace has clients connect and say nothing.
func TestSilentClientsHoldNoPlace(t *testing.T) {
	_, listener := served(t, call.Service{Handler: echo}, Config{})
	name := "@" + strings.TrimPrefix(listener.Address(), "shm-abstract:")
	// Each is turned out, and told why, but for those that came last.
	busy := make(chan bool, 300)
	for range cap(busy) {
		conn, err := net.Dial("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go func() {
			var refusal [wire.HelloLen]byte
			_, err := io.ReadFull(conn, refusal[:])
			said := wire.DecodeHello(&refusal)
			busy <- err == nil && said.Kind == wire.KindRefusal && said.Reason == wire.ReasonBusy
		}()
	}
	client := dialed(t, listener.Address(), Config{})
	if _, got, err := unary(within(t), client, "/a.B/C", 7); err != nil || len(got) != 7 {
		t.Error(err)
	}
	for range cap(busy) - 64 {
		select {
		case told := <-busy:
			if !told {
				t.Fatal("a client was turned out, and not told that others want its place")
			}
		case <-time.After(testTime):
			t.Fatal("silent clients hold places")
		}
	}
}

// TestAClientThatHasSaidAllIsNotSilent has a client be turned out that the server had not listened to yet.
func TestAClientThatHasSaidAllIsNotSilent(t *testing.T) {
	here, there := rendezvousPair(t)
	hello := wire.Hello{Kind: wire.KindHello, Text: "in time"}
	if err := here.SendHello(&hello, -1); err != nil {
		t.Fatal(err)
	}
	there.TurnOut()
	if said, _, err := there.ReceiveHello(); err != nil || said.Text != "in time" {
		t.Errorf("%v, %+v", err, said)
	}
}

// rendezvousPair are the two ends of a connection.
func rendezvousPair(t *testing.T) (here, there *rendezvous.Conn) {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@" + strings.TrimPrefix(newName(), "shm-abstract:"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	connected, err := net.DialUnix("unix", nil, listener.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	if here, err = rendezvous.NewConn(connected); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(here.Close)
	if there, err = rendezvous.NewConn(accepted); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(there.Close)
	return here, there
}

func TestAPanicEndsTheServerAndItsCalls(t *testing.T) {
	for _, method := range []string{"/pooled/panic", "/inline/panic"} {
		counted(t)
		address := newName()
		server := play(t, "server", address, "", func(command *exec.Cmd) { command.Stderr = nil }).awaitReady()
		client := dialed(t, address, Config{})
		if outcome, _, err := unary(within(t), client, method, 1); err != nil || outcome.Status.Code() != codes.Unavailable {
			t.Errorf("%s: %v, %v", method, err, outcome.Status)
		}
		if err := server.end(); err == nil {
			t.Errorf("%s: the process lives", method)
		}
	}
}

// TestWhatADeadServerHadSentIsRead reads what lies in the memory of a process that is gone.
func TestWhatADeadServerHadSentIsRead(t *testing.T) {
	counted(t)
	address, server := process(t)
	client := dialed(t, address, Config{})
	c, err := client.Start(within(t), &call.Start{Method: "/pooled/five and die", Last: true})
	if err != nil {
		t.Fatal(err)
	}
	<-client.Done()
	if !server.killed() {
		t.Error("the server has ended otherwise")
	}
	for i := range 5 {
		if got, err := c.Recv(); err != nil || len(content(got)) != 1000 {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	if _, err := c.Recv(); err != io.EOF || c.Outcome().Status.Code() != codes.Unavailable {
		t.Errorf("%v, %v", err, c.Outcome().Status)
	}
}

// met is a client's end of a handshake that is over.
func met(t *testing.T, address string, config *Config) *meeting {
	t.Helper()
	where, err := rendezvous.ParseAddress(address)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := rendezvous.Connect(within(t), where)
	if err != nil {
		t.Fatal(err)
	}
	met, err := attach(conn, config, &presentation{kind: wire.KindHello})
	if err != nil {
		t.Fatal(err)
	}
	return met
}

// hostile is a client that has made its handshake, and does what it likes in the session.
func hostile(t *testing.T, listener call.Listener) *meeting {
	t.Helper()
	config := Config{}.filled()
	met := met(t, listener.Address(), &config)
	t.Cleanup(met.close)
	return met
}

// TestAViolationEndsItsSessionAlone has hostile clients break the protocol.
func TestAViolationEndsItsSessionAlone(t *testing.T) {
	client, listener := served(t, call.Service{Handler: echo}, Config{})
	for name, breaks := range map[string]func(m *meeting){
		"a head word of another position": func(m *meeting) { copy(m.own.Memory()[wire.RingOff:], bytes.Repeat([]byte{0x81}, 8)) },
		"a record longer than any": func(m *meeting) {
			copy(m.own.Memory()[wire.RingOff:], []byte{0, 0, 0, 0x80, 0xff, 0xff, 0xff, 0x7f})
		},
		"a frame that is none": func(m *meeting) { copy(m.own.Memory()[wire.RingOff:], []byte{0, 0, 0, 0x80, 24, 0, 0, 0, 0xff}) },
		"a cursor ahead": func(m *meeting) {
			m.own.Memory()[wire.ConsumedOff+2] = 1
			// A grant: something for the server to look at, and then a call of no method.
			copy(m.own.Memory()[wire.RingOff:], []byte{0, 0, 0, 0x80, 24, 0, 0, 0, 1})
		},
		"descriptors that nobody asked for": func(m *meeting) {
			null, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			defer null.Close()
			for range 5 {
				_ = m.conn.SendDescriptor(int(null.Fd()))
			}
		},
	} {
		met := hostile(t, listener)
		breaks(met)
		met.conn.Ring()
		until := time.Now().Add(testTime)
		for {
			met.conn.(*rendezvous.Conn).SetDeadline(until)
			if _, err := met.conn.Drain(func(int) {}); err != nil {
				break
			}
			if time.Now().After(until) {
				t.Fatalf("%s: the session goes on", name)
			}
			time.Sleep(time.Millisecond)
		}
	}
	if _, got, err := unary(within(t), client, "/a.B/C", 100); err != nil || len(got) != 100 {
		t.Errorf("another session: %v", err)
	}
}

// TestIdleSessionsCostNothing has a hundred sessions that were busy before, with both ends in this process.
func TestIdleSessionsCostNothing(t *testing.T) {
	const sessions = 100
	first, listener := served(t, call.Service{Handler: echo}, Config{})
	clients := []call.Client{first}
	for range sessions - 1 {
		clients = append(clients, dialed(t, listener.Address(), Config{}))
	}
	for _, client := range clients {
		for range 5 {
			if _, _, err := unary(within(t), client, "/a.B/C", 100000); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The payload areas are given up, and what the collector has to do is done.
	for until := time.Now().Add(testTime); held(t)[2] > 4*sessions+8; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d mappings are left", held(t)[2])
		}
	}
	runtime.GC()
	debug.FreeOSMemory()
	// Other tests' goroutines may end meanwhile, so the best of some counts.
	const lasts, most = time.Second, time.Millisecond // 0.1 % of a processor
	best := time.Hour
	for range 5 {
		before := used(t)
		time.Sleep(lasts)
		if best = min(best, used(t)-before); best < most {
			break
		}
	}
	if best >= most {
		t.Errorf("%d idle sessions take %v of processor time in %v", sessions, best, lasts)
	}
	for _, client := range clients {
		if _, got, err := unary(within(t), client, "/a.B/C", 100000); err != nil || len(got) != 100000 {
			t.Error(err)
		}
	}
}

func TestALoadIsToldToClients(t *testing.T) {
	began, goOn := make(chan call.ServerCall, 8), make(chan struct{})
	client, listener := served(t, call.Service{Handler: waiting(began, goOn)}, Config{})
	other := dialed(t, listener.Address(), Config{})
	await := func(want uint32) {
		t.Helper()
		until := time.Now().Add(testTime)
		for {
			if calls, ok := other.Load(); ok && calls == want {
				return
			}
			if time.Now().After(until) {
				calls, ok := other.Load()
				t.Fatalf("the load is %d (%v), not %d", calls, ok, want)
			}
			time.Sleep(time.Millisecond)
		}
	}
	await(0)
	for range 3 {
		if _, err := client.Start(within(t), &call.Start{Method: "/a.B/C", Last: true}); err != nil {
			t.Fatal(err)
		}
		<-began
	}
	await(3)
	close(goOn)
	await(0)
}

func TestDeadlinesOfOtherClocks(t *testing.T) {
	now := clockNow()
	far := int64(now / 2) // The machine may just have started.
	for name, test := range map[string]struct {
		deadline uint64
		shift    int64
		least    time.Duration
		most     time.Duration
	}{
		"the same clock":         {now + 1e9, 0, 900 * time.Millisecond, time.Second},
		"a clock behind":         {now + 1e9 - uint64(far), far, 900 * time.Millisecond, time.Second},
		"a clock ahead":          {now + 1e9 + uint64(far), -far, 900 * time.Millisecond, time.Second},
		"a time that has passed": {now - 1, 0, 0, 0},
		"one before all times":   {1, -far, 0, 0},
		"one behind all times":   {math.MaxUint64, far, math.MaxInt64 - time.Hour*24*365, math.MaxInt64},
	} {
		if got := localDeadline(test.deadline, test.shift); got < test.least || got > test.most {
			t.Errorf("%s: %v", name, got)
		}
	}
}
