package transport

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
)

func init() {
	roles["client"] = func(address string) error { return callAndCount(address, 0) }
	roles["server short of descriptors"] = func(address string) error {
		if err := limitDescriptors(); err != nil {
			return err
		}
		return serveUntilInputEnds(address)
	}
	roles["client short of descriptors"] = callWithoutDescriptors
	roles["client that calls once"] = callOnce
	roles["client with a deadline"] = callInVain
}

// callAndCount makes calls until its input ends, and prints how many there were at each line of input.
func callAndCount(address string, n int) error {
	client, err := Dial(context.Background(), address, Config{})
	if err != nil {
		return err
	}
	var calls atomic.Int64
	failed := make(chan error, 1)
	go func() {
		for {
			if outcome, got, err := unary(context.Background(), client, "/pooled/echo", n); err != nil || len(got) != n {
				failed <- fmt.Errorf("%v, %v", err, outcome.Status)
				return
			}
			calls.Add(1)
		}
	}()
	ready()
	for one := make([]byte, 1); ; {
		if _, err := os.Stdin.Read(one); err != nil {
			return nil
		}
		select {
		case err := <-failed:
			return err
		default:
			fmt.Println(calls.Load())
		}
	}
}

// used is the processor time of this process.
func used(t testing.TB) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// TestAStoppedServerCostsNothingAndGoesOn stops a server while calls wait for it, some with a deadline.
func TestAStoppedServerCostsNothingAndGoesOn(t *testing.T) {
	counted(t)
	address, server := process(t)
	client := dialed(t, address, Config{})
	for range 3 {
		server.stop()
		var calls sync.WaitGroup
		for i := range 8 {
			calls.Go(func() {
				// More than ring and payload area hold: senders wait for room.
				if outcome, got, err := unary(within(t), client, "/pooled/echo", 300_000); err != nil || len(got) != 300_000 {
					t.Errorf("call %d: %v, %v", i, err, outcome.Status)
				}
			})
		}
		short, cancel := context.WithTimeout(within(t), 50*time.Millisecond)
		outcome, _, err := unary(short, client, "/pooled/echo", 10)
		cancel()
		if err != nil {
			outcome.Status = status.Convert(err)
		}
		if outcome.Status.Code() != codes.DeadlineExceeded {
			t.Errorf("a call with a deadline: %v", outcome.Status)
		}
		time.Sleep(100 * time.Millisecond)
		before := used(t)
		time.Sleep(500 * time.Millisecond)
		if cost := used(t) - before; cost > 100*time.Millisecond {
			t.Errorf("half a second without the peer took %v", cost)
		}
		server.signal(syscall.SIGCONT)
		calls.Wait()
	}
}

// TestAStoppedClientHoldsUpNobody stops a client in mid-call.
func TestAStoppedClientHoldsUpNobody(t *testing.T) {
	honest, listener := served(t, call.Service{Handler: echo}, Config{})
	for _, n := range []string{"0", "100000"} {
		other := play(t, "client", listener.Address(), n).awaitReady()
		other.stop()
		for range 50 {
			if outcome, got, err := unary(within(t), honest, "/a.B/C", 30_000); err != nil || len(got) != 30_000 {
				t.Fatalf("%v, %v", err, outcome.Status)
			}
		}
		before := used(t)
		time.Sleep(300 * time.Millisecond)
		if cost := used(t) - before; cost > 60*time.Millisecond {
			t.Errorf("a stopped client takes %v of 300 ms", cost)
		}
		other.signal(syscall.SIGCONT)
		if err := other.end(); err != nil {
			t.Errorf("it did not go on: %v", err)
		}
	}
}

// TestSignalsMakeCallsSlowerAndNothingElse sends both ends signals without end, and stops the server again and again.
func TestSignalsMakeCallsSlowerAndNothingElse(t *testing.T) {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGUSR1)
	defer signal.Stop(caught)
	counted(t)
	address, server := process(t)
	client := dialed(t, address, Config{})
	stop := make(chan struct{})
	var storm sync.WaitGroup
	storm.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			_ = syscall.Kill(os.Getpid(), syscall.SIGUSR1)
			// The runtime's own, for which it has a handler.
			_ = server.Process.Signal(syscall.SIGURG)
			if i%50 == 0 {
				_ = server.Process.Signal(syscall.SIGSTOP)
				_ = server.Process.Signal(syscall.SIGCONT)
			}
			time.Sleep(50 * time.Microsecond)
		}
	})
	for i := range 1000 {
		n := 64
		if i%20 == 0 {
			n = 200_000
		}
		if outcome, got, err := unary(within(t), client, "/pooled/echo", n); err != nil || len(got) != n {
			t.Errorf("call %d: %v, %v", i, err, outcome.Status)
			break
		}
	}
	close(stop)
	storm.Wait()
}

// TestADeadPeerSendsNoSIGPIPE rings a peer that has gone.
func TestADeadPeerSendsNoSIGPIPE(t *testing.T) {
	pipes := make(chan os.Signal, 1)
	signal.Notify(pipes, syscall.SIGPIPE)
	defer signal.Stop(pipes)
	counted(t)
	address, server := process(t)
	client := dialed(t, address, Config{})
	server.kill()
	conn := linkOf(client).conn
	for range 100 {
		conn.Ring()
	}
	<-client.Done()
	select {
	case <-pipes:
		t.Error("SIGPIPE came")
	case <-time.After(20 * time.Millisecond):
	}
}

// TestBusyGoroutinesDelayCallsAndNothingElse has goroutines that never yield on all processors.
func TestBusyGoroutinesDelayCallsAndNothingElse(t *testing.T) {
	for _, processors := range []int{1, 2} {
		t.Run(fmt.Sprint(processors), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
			client, _ := served(t, call.Service{Handler: echo}, Config{})
			var stop atomic.Bool
			var busy sync.WaitGroup
			for range 2 * processors {
				busy.Go(func() {
					for !stop.Load() {
					}
				})
			}
			for i := range 10 {
				if outcome, got, err := unary(within(t), client, "/a.B/C", i*5000); err != nil || len(got) != i*5000 {
					t.Errorf("call %d: %v, %v", i, err, outcome.Status)
					break
				}
			}
			stop.Store(true)
			busy.Wait()
		})
	}
}

// limitDescriptors leaves this process room for a few descriptors more than it has.
func limitDescriptors() error {
	const most = 64
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: most})
}

// TestAServerOutOfDescriptorsShedsAndLives has more clients than a server has descriptors for, most of them silent.
func TestAServerOutOfDescriptorsShedsAndLives(t *testing.T) {
	counted(t)
	address := newName()
	play(t, "server short of descriptors", address, "").awaitReady()
	first := dialed(t, address, Config{})
	var sessions []call.Client
	var refusal error
	for range 64 {
		client, err := Dial(within(t), address, Config{})
		if err != nil {
			refusal = err
			break
		}
		sessions = append(sessions, client)
	}
	if status.Code(refusal) != codes.Unavailable || !strings.Contains(refusal.Error(), "which is the most") || len(sessions) < 4 {
		t.Errorf("after %d sessions: %v", len(sessions), refusal)
	}
	var silent []net.Conn
	for range 100 {
		conn, err := net.Dial("unix", "@"+strings.TrimPrefix(address, "shm-abstract:"))
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, conn)
	}
	// Large messages ask for a descriptor more, and go through the ring where there is none.
	for range 20 {
		if outcome, got, err := unary(within(t), first, "/pooled/echo", 300_000); err != nil || len(got) != 300_000 {
			t.Fatalf("a session that there was: %v, %v", err, outcome.Status)
		}
	}
	for _, conn := range silent {
		_ = conn.Close()
	}
	for _, client := range sessions {
		_ = client.Close()
		<-client.Done()
	}
	for until := time.Now().Add(testTime); ; time.Sleep(10 * time.Millisecond) {
		client, err := Dial(within(t), address, Config{})
		if err == nil {
			_, got, err := unary(within(t), client, "/pooled/echo", 10)
			if err != nil || len(got) != 10 {
				t.Error(err)
			}
			_ = client.Close()
			<-client.Done()
			return
		}
		if time.Now().After(until) {
			t.Fatalf("the listener is dead: %v", err)
		}
	}
}

// callWithoutDescriptors calls on while this process has no descriptor left, can't have another session, and can have one later.
func callWithoutDescriptors(address string) error {
	client, err := Dial(context.Background(), address, Config{})
	if err != nil {
		return err
	}
	if err := limitDescriptors(); err != nil {
		return err
	}
	var files []int
	for {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		files = append(files, fd)
	}
	for range 20 {
		if outcome, got, err := unary(context.Background(), client, "/pooled/echo", 300_000); err != nil || len(got) != 300_000 {
			return fmt.Errorf("%v, %v", err, outcome.Status)
		}
	}
	// One for the socket, none for what follows it.
	for _, left := range []int{0, 1, 2, 3} {
		for len(files) > 0 && left > 0 {
			_ = unix.Close(files[0])
			files, left = files[1:], left-1
		}
		if _, err := Dial(context.Background(), address, Config{}); status.Code(err) != codes.Unavailable && err != nil {
			return fmt.Errorf("a session without descriptors: %w", err)
		}
	}
	for _, fd := range files {
		_ = unix.Close(fd)
	}
	_, err = Dial(context.Background(), address, Config{})
	if err == nil {
		ready()
	}
	return err
}

func TestAClientOutOfDescriptorsGoesOn(t *testing.T) {
	_, listener := served(t, call.Service{Handler: echo}, Config{})
	client := play(t, "client short of descriptors", listener.Address(), "").awaitReady()
	if err := client.end(); err != nil {
		t.Error(err)
	}
}

// callOnce makes a call, and prints how it ended, or why there is no session.
func callOnce(address string) error {
	client, err := Dial(context.Background(), address, Config{})
	if err != nil {
		fmt.Println(err)
		return nil
	}
	outcome, got, err := unary(context.Background(), client, "/pooled/echo", 1000)
	fmt.Println(outcome.Status.Code(), len(got), err)
	_ = client.Close()
	<-client.Done()
	return nil
}

// elsewhere runs a role in a namespace of its own, or skips the test where the system does not allow that.
func elsewhere(flags uintptr) func(*exec.Cmd) {
	return func(command *exec.Cmd) {
		command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	}
}

func skipUnless(t *testing.T, flags uintptr) {
	t.Helper()
	probe := exec.Command("/bin/true")
	elsewhere(flags)(probe)
	if err := probe.Run(); err != nil {
		t.Skipf("not run: this system gives no such namespace: %v", err)
	}
}

func TestPeersInOtherProcessNamespacesAreServed(t *testing.T) {
	skipUnless(t, syscall.CLONE_NEWPID)
	_, listener := served(t, call.Service{Handler: echo}, Config{})
	if line := play(t, "client that calls once", listener.Address(), "", elsewhere(syscall.CLONE_NEWPID)).line(); line != "OK 1000 <nil>" {
		t.Errorf("a client there: %s", line)
	}
	address := newName()
	server := play(t, "server", address, "", elsewhere(syscall.CLONE_NEWPID)).awaitReady()
	// A client that can't see its server's process.
	if line := play(t, "client that calls once", address, "", elsewhere(syscall.CLONE_NEWPID)).line(); line != "OK 1000 <nil>" {
		t.Errorf("a client beside it: %s", line)
	}
	client := dialed(t, address, Config{})
	server.kill()
	select {
	case <-client.Done():
	case <-time.After(testTime):
		t.Error("its death goes unnoticed")
	}
}

func TestAUserNamespaceMakesNobodyTheSameUser(t *testing.T) {
	skipUnless(t, syscall.CLONE_NEWUSER)
	_, listener := served(t, call.Service{Handler: echo}, Config{})
	line := play(t, "client that calls once", listener.Address(), "", elsewhere(syscall.CLONE_NEWUSER)).line()
	if !strings.Contains(line, "not allowed") {
		t.Errorf("a client there: %s", line)
	}
}

func TestAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not run: only root can be another user")
	}
	_, listener := served(t, call.Service{Handler: echo}, Config{})
	// The other user may not look into the directory in which tests are built.
	directory, err := os.MkdirTemp("", "tollfree")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(directory)
	program, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = os.WriteFile(directory+"/program", program, 0o755)
	}
	if err == nil {
		err = os.Chmod(directory, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	line := play(t, "client that calls once", listener.Address(), "", func(command *exec.Cmd) {
		command.Path = directory + "/program"
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
	}).line()
	if !strings.Contains(line, "not allowed") {
		t.Errorf("another user's client: %s", line)
	}
}

// callInVain makes a call that ends with its deadline.
func callInVain(address string) error {
	client, err := Dial(context.Background(), address, Config{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	deadline, _ := ctx.Deadline()
	c, err := client.Start(context.Background(), &call.Start{Method: "/a.B/C", Deadline: deadline, Last: true})
	if err != nil {
		return err
	}
	if _, err := c.Recv(); err != io.EOF {
		return fmt.Errorf("an answer, or %v", err)
	}
	fmt.Println(c.Outcome().Status.Code())
	return nil
}

// TestDeadlinesHoldInAnotherTimeNamespace has a client whose monotonic clock is far ahead, and behind.
func TestDeadlinesHoldInAnotherTimeNamespace(t *testing.T) {
	for _, ahead := range []string{"100000", "-1000"} {
		if err := exec.Command("unshare", "--time", "--monotonic", ahead, "/bin/true").Run(); err != nil {
			t.Skipf("not run: this system gives no namespace for time: %v", err)
		}
		ended := make(chan time.Duration, 1)
		_, listener := served(t, call.Service{Handler: func(c call.ServerCall) {
			began := time.Now()
			<-c.Context().Done()
			ended <- time.Since(began)
		}}, Config{})
		client := play(t, "client with a deadline", listener.Address(), "", func(command *exec.Cmd) {
			unshare, err := exec.LookPath("unshare")
			if err != nil {
				t.Fatal(err)
			}
			command.Path, command.Args = unshare, []string{"unshare", "--time", "--monotonic", ahead, os.Args[0]}
		})
		if line := client.line(); line != codes.DeadlineExceeded.String() {
			t.Errorf("%s s ahead: %s", ahead, line)
		}
		select {
		case lasted := <-ended:
			if lasted < 20*time.Millisecond {
				t.Errorf("%s s ahead: the handler ended after %v", ahead, lasted)
			}
		case <-time.After(testTime):
			t.Errorf("%s s ahead: the handler goes on", ahead)
		}
	}
}

// TestNobodyOnACallsWayAsksTheWallClock reads this module's sources.
func TestNobodyOnACallsWayAsksTheWallClock(t *testing.T) {
	wall := regexp.MustCompile(`\.Round\(0\)|CLOCK_REALTIME|\.Unix(Nano|Milli|Micro)?\(\)|Gettimeofday`)
	read := 0
	err := filepath.WalkDir("../..", func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/cmd/") {
			return err
		}
		text, err := os.ReadFile(path)
		for i, line := range strings.Split(string(text), "\n") {
			if wall.MatchString(line) {
				t.Errorf("%s:%d: %s", path, i+1, strings.TrimSpace(line))
			}
		}
		read++
		return err
	})
	if err != nil || read < 50 {
		t.Errorf("%v, %d files", err, read)
	}
}

// TestAProgramThatIsExecutedInheritsNothing executes a program in mid-call.
func TestAProgramThatIsExecutedInheritsNothing(t *testing.T) {
	began, goOn := make(chan call.ServerCall, 1), make(chan struct{})
	client, _ := served(t, call.Service{Handler: waiting(began, goOn)}, Config{})
	c, err := client.Start(within(t), &call.Start{Method: "/a.B/C", Message: message(200_000), Last: true})
	if err != nil {
		t.Fatal(err)
	}
	<-began
	// Not by package exec, which closes what it knows of.
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	process, err := os.StartProcess("/bin/ls", []string{"ls", "-l", "/proc/self/fd"}, &os.ProcAttr{Files: []*os.File{nil, write, os.Stderr}})
	if err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	listed, _ := io.ReadAll(read)
	_ = read.Close()
	_, _ = process.Wait()
	if strings.Contains(string(listed), "socket:") || strings.Contains(string(listed), "memfd") || strings.Contains(string(listed), "pidfd") || !strings.Contains(string(listed), "-> pipe:") {
		t.Errorf("%s", listed)
	}
	close(goOn)
	if _, err := c.Recv(); err != nil {
		t.Error(err)
	}
}

// TestAStormOfDeadlinesEndsEachCallOnce has deadlines pass while answers are on their way.
func TestAStormOfDeadlinesEndsEachCallOnce(t *testing.T) {
	client, _ := served(t, call.Service{Handler: echo}, Config{})
	// How long a call takes depends on the machine: a storm has both kinds of ends.
	const enough = 100
	for unit, until := 10*time.Microsecond, time.Now().Add(testTime); ; {
		well, late := stormOf(t, client, unit)
		if well >= enough && late >= enough {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("no storm: %d ended well, %d with their deadline", well, late)
		}
		if well < late {
			unit *= 2
		} else {
			unit /= 2
		}
	}
	if outcome, got, err := unary(within(t), client, "/a.B/C", 100); err != nil || len(got) != 100 {
		t.Errorf("%v, %v", err, outcome.Status)
	}
}

// stormOf makes calls with deadlines of up to 40 times unit, and counts how they end.
func stormOf(t *testing.T, client call.Client, unit time.Duration) (well, late int64) {
	var ended [17]atomic.Int64
	var callers sync.WaitGroup
	for caller := range 16 {
		callers.Go(func() {
			for i := range 100 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i*caller%40)*unit)
				outcome, _, err := unary(ctx, client, "/a.B/C", i*100)
				cancel()
				if err != nil {
					outcome.Status = status.Convert(err)
				}
				ended[outcome.Status.Code()].Add(1)
			}
		})
	}
	callers.Wait()
	well, late = ended[codes.OK].Load(), ended[codes.DeadlineExceeded].Load()
	if well+late != 16*100 {
		t.Errorf("%d calls have ended otherwise", 16*100-well-late)
	}
	return well, late
}

func TestFiveHundredClientsAtOnceAreServed(t *testing.T) {
	_, listener := served(t, call.Service{Handler: echo}, Config{})
	// Each of this process's sessions takes descriptors at both ends.
	if sessionsMax() < 1100 {
		t.Skip("not run: this process may have too few descriptors")
	}
	errs := make(chan error, 500)
	for range cap(errs) {
		go func() {
			// Who has not said a word yet may be told to come back, where so many are at the door.
			client, err := Dial(within(t), listener.Address(), Config{})
			for until := time.Now().Add(testTime); err != nil && strings.Contains(err.Error(), "reason 5") && time.Now().Before(until); {
				time.Sleep(time.Millisecond)
				client, err = Dial(within(t), listener.Address(), Config{})
			}
			if err == nil {
				_, _, err = unary(within(t), client, "/a.B/C", 10)
				_ = client.Close()
				<-client.Done()
			}
			errs <- err
		}()
	}
	var failed []error
	for range cap(errs) {
		if err := <-errs; err != nil {
			failed = append(failed, err)
		}
	}
	if len(failed) > 0 {
		t.Errorf("%d failed, with %v", len(failed), slices.Clone(failed[:1]))
	}
}
