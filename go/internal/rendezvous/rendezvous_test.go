package rendezvous

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tollfree/tollfree/go/internal/wire"
)

func path(t *testing.T) Address {
	t.Helper()
	address, err := ParseAddress("shm://" + filepath.Join(t.TempDir(), "s.sock"))
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func TestAddresses(t *testing.T) {
	for _, good := range []string{"shm:///a/b.sock", "shm-abstract:x"} {
		if address, err := ParseAddress(good); err != nil || address.String() != good {
			t.Errorf("%s: %v, %v", good, address, err)
		}
	}
	for _, bad := range []string{"", "/a", "shm://a/b", "shm:///a/", "shm-abstract:", "shm-abstract:a\x00", "unix:/a", "shm:///" + strings.Repeat("a", 107)} {
		if address, err := ParseAddress(bad); err == nil {
			t.Errorf("%q is taken for %v", bad, address)
		}
	}
}

func TestALiveServerStaysAndADeadOneIsReplaced(t *testing.T) {
	address := path(t)
	first, err := Bind(address)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Bind(address); err == nil || !strings.Contains(err.Error(), "a running server has it") {
		t.Errorf("a second server: %v", err)
	}
	_ = first.Close()
	if _, err := os.Lstat(address.path); !os.IsNotExist(err) {
		t.Errorf("a server that ends leaves its socket: %v", err)
	}
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: address.path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	_ = stale.Close()
	second, err := Bind(address)
	if err != nil {
		t.Fatalf("where a server was killed: %v", err)
	}
	// Somebody puts another file there: it is not this server's to remove.
	_ = os.Remove(address.path)
	if err := os.WriteFile(address.path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_ = second.Close()
	if _, err := Bind(address); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("where a file lies: %v", err)
	}
	if names, _ := os.ReadDir(filepath.Dir(address.path)); len(names) != 1 {
		t.Errorf("%v is left", names)
	}
}

func TestOneOfManyServersWins(t *testing.T) {
	address := path(t)
	for range 20 {
		var wait sync.WaitGroup
		won := make(chan *Listener, 8)
		for range 8 {
			wait.Add(1)
			go func() {
				defer wait.Done()
				if listener, err := Bind(address); err == nil {
					won <- listener
				}
			}()
		}
		wait.Wait()
		if len(won) != 1 {
			t.Fatalf("%d servers have it", len(won))
		}
		_ = (<-won).Close()
	}
}

func TestALockOfOthersIsRefused(t *testing.T) {
	address := path(t)
	name := filepath.Join(filepath.Dir(address.path), ".s.sock.lock")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Bind(address); err == nil || !strings.Contains(err.Error(), "could hold it") {
		t.Errorf("%v", err)
	}
}

// met is a connection's two ends.
func met(t *testing.T) (client, server *Conn) {
	t.Helper()
	listener, err := Bind(path(t))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	accepted := make(chan *Conn, 1)
	go func() {
		conn, err := listener.AcceptUnix()
		if err != nil {
			t.Error(err)
			return
		}
		server, err := NewConn(conn)
		if err != nil {
			t.Error(err)
		}
		accepted <- server
	}()
	client, err = Connect(context.Background(), Address{path: listener.path})
	if err != nil {
		t.Fatal(err)
	}
	server = <-accepted
	t.Cleanup(client.Close)
	t.Cleanup(server.Close)
	return client, server
}

func TestAMessageTravelsWithItsDescriptor(t *testing.T) {
	client, server := met(t)
	if client.PID() != int32(os.Getpid()) || server.UID() != uint32(os.Geteuid()) {
		t.Errorf("process %d, user %d", client.PID(), server.UID())
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	hello := wire.Hello{Kind: wire.KindHello, Text: "test"}
	if err := client.SendHello(&hello, int(null.Fd())); err != nil {
		t.Fatal(err)
	}
	got, fd, err := server.ReceiveHello()
	if err != nil || got != hello || fd < 0 {
		t.Fatalf("%+v, %d, %v", got, fd, err)
	}
	unix.Close(fd)
	server.SetDeadline(time.Now().Add(10 * time.Millisecond))
	if _, _, err := server.ReceiveHello(); err == nil || !strings.Contains(err.Error(), "took too long") {
		t.Errorf("a silent client: %v", err)
	}
}

func TestOtherProtocolsAreRecognized(t *testing.T) {
	for said, want := range map[string]string{"PRI * HTTP/2.0\r\n": "HTTP/2", "GET / HTTP": "does not speak"} {
		client, server := met(t)
		if _, err := client.conn.Write([]byte(said)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := server.ReceiveHello(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", said, err)
		}
	}
}

func TestDoorbellsAreHeardAndWaitingEnds(t *testing.T) {
	client, server := met(t)
	await := NewDoorbell(server, func(int) {}, func(drain func()) { drain() }).Await
	heard := make(chan error, 1)
	go func() { heard <- await() }()
	client.Ring()
	if err := <-heard; err != nil {
		t.Error(err)
	}
	go func() { heard <- await() }()
	server.Wake()
	if err := <-heard; err != nil {
		t.Error(err)
	}
	_, _ = client.conn.Write(make([]byte, doorbellsMax+1))
	if err := await(); !errors.Is(err, ErrTooMany) {
		t.Errorf("%v", err)
	}
	client.Shutdown()
	for {
		if err := await(); err != nil {
			if err.Error() != "EOF" {
				t.Error(err)
			}
			break
		}
	}
}

func TestAProcessLivesUntilItHasEnded(t *testing.T) {
	child := exec.Command("sleep", "100")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pidfd, dead := pidfdOf(-1, int32(child.Process.Pid))
	if dead || pidfd < 0 || HasEnded(pidfd) {
		t.Fatalf("pidfd %d, dead %v", pidfd, dead)
	}
	_ = unix.SetNonblock(pidfd, true)
	conn := &Conn{pidfd: os.NewFile(uintptr(pidfd), "pidfd")}
	ended := make(chan bool)
	go func() { ended <- conn.AwaitDeath() }()
	select {
	case <-ended:
		t.Fatal("it lives")
	case <-time.After(20 * time.Millisecond):
	}
	_ = child.Process.Kill()
	if !<-ended {
		t.Error("its death was not heard of")
	}
	_ = child.Wait()
	_ = conn.pidfd.Close()
	if _, dead := pidfdOf(-1, int32(child.Process.Pid)); !dead {
		t.Error("a process that is gone is not dead")
	}
}
