package tollfree

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	pb "github.com/tollfree/tollfree/go/internal/testproto"
)

// passedName has this program serve the socket of a name that it was passed, until its input ends.
const passedName = "TOLLFREE_TEST_PASSED"

// TestServesPassed is the child of TestASocketIsPassed.
func TestServesPassed(t *testing.T) {
	name, is := os.LookupEnv(passedName)
	if !is {
		t.Skip("it is another test's child")
	}
	server := NewServer()
	pb.RegisterTestServer(server, &testService{})
	listener, err := server.ListenPassed(name)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if _, err := server.ListenPassed(name); err == nil {
		fmt.Println("a socket was taken twice")
		os.Exit(1)
	}
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		server.GracefulStop()
	}()
	wantNoError(t, server.ServeListener(listener))
}

// serveByChild passes sockets to a child, which serves the one of a name until stop is called.
func serveByChild(t *testing.T, name, names string, sockets ...*net.UnixListener) (pid int, stop func() error) {
	t.Helper()
	// The child's number has to be in its environment.
	child := exec.Command("/bin/sh", "-c", `LISTEN_PID=$$ exec "$0" "$@"`, os.Args[0], "-test.run=^TestServesPassed$")
	child.Env = append(os.Environ(), fmt.Sprintf("LISTEN_FDS=%d", len(sockets)), "LISTEN_FDNAMES="+names, passedName+"="+name)
	for _, socket := range sockets {
		file, err := socket.File()
		wantNoError(t, err)
		defer file.Close()
		child.ExtraFiles = append(child.ExtraFiles, file)
	}
	input, err := child.StdinPipe()
	wantNoError(t, err)
	wantNoError(t, child.Start())
	return child.Process.Pid, func() error {
		_ = input.Close()
		return child.Wait()
	}
}

func TestASocketIsPassed(t *testing.T) {
	withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
		directory := socketDirectory(t)
		listen := func(name string) *net.UnixListener {
			socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: directory + "/" + name, Net: "unix"})
			wantNoError(t, err)
			t.Cleanup(func() { socket.Close() })
			return socket
		}
		other, greeter := listen("other.sock"), listen("greeter.sock")
		conn, err := NewClient("shm://" + directory + "/greeter.sock")
		wantNoError(t, err)
		t.Cleanup(func() { conn.Close() })
		client := pb.NewTestClient(conn)
		// A call that comes before the server waits in the socket.
		called := make(chan error, 1)
		go func() {
			_, err := client.Unary(testContext(t), &pb.Request{})
			called <- err
		}()
		time.Sleep(20 * time.Millisecond)
		for round := range 2 {
			pid, stop := serveByChild(t, "greeter", "other:greeter", other, greeter)
			if round == 0 {
				wantNoError(t, <-called)
			}
			eventually(t, "a session with the process that listens", func() bool {
				again, err := NewClient("shm://" + directory + "/greeter.sock")
				wantNoError(t, err)
				defer again.Close()
				// Until the second server listens, the first one, which has ended, is the peer.
				var from peer.Peer
				if _, err = pb.NewTestClient(again).Unary(testContext(t), &pb.Request{}, grpc.Peer(&from)); status.Code(err) != codes.Unavailable {
					wantNoError(t, err)
				}
				return err == nil && from.AuthInfo.(AuthInfo).PID == int32(pid)
			})
			wantNoError(t, stop())
			if _, err := os.Lstat(directory + "/greeter.sock"); err != nil {
				t.Error(err)
			}
		}
		_, stop := serveByChild(t, "nobody", "other:greeter", other, greeter)
		if err := stop(); err == nil {
			t.Error("a socket that was not passed was taken")
		}
	})
}

func TestWhatIsNotPassedIsAnError(t *testing.T) {
	server := NewServer()
	defer server.Stop()
	if _, err := server.ListenPassed(""); err == nil {
		t.Error("a socket was found")
	}
	datagram, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: t.TempDir() + "/s", Net: "unixgram"})
	wantNoError(t, err)
	file, err := datagram.File()
	wantNoError(t, err)
	datagram.Close()
	defer file.Close()
	if listener, err := net.FileListener(file); err == nil {
		if _, err := server.ListenOn(listener.(*net.UnixListener)); err == nil {
			t.Error("a socket for datagrams is served")
		}
	}
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: t.TempDir() + "/s", Net: "unix"})
	wantNoError(t, err)
	socket.SetUnlinkOnClose(false)
	listener, err := server.ListenOn(socket)
	wantNoError(t, err)
	path := socket.Addr().String()
	wantNoError(t, listener.Close())
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("another's file was removed: %v", err)
	}
}
