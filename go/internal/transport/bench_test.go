package transport

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/rendezvous"
	"github.com/tollfree/tollfree/go/internal/wire"
)

var ok = status.New(codes.OK, "")

// lend gives copies of all of this process's sockets to a process that outlives it for a while.
func lend() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	heir := exec.Command("sleep", "10")
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		name, err2 := os.Readlink("/proc/self/fd/" + entry.Name())
		if err == nil && err2 == nil && strings.HasPrefix(name, "socket:") {
			heir.ExtraFiles = append(heir.ExtraFiles, os.NewFile(uintptr(fd), name))
		}
	}
	return heir.Start()
}

// answer answers one message with itself. Some methods do something before.
func answer(c call.ServerCall) {
	switch c.Method() {
	case "/pooled/lend":
		if err := lend(); err != nil {
			_ = c.Finish(nil, nil, status.Convert(err), nil)
			return
		}
	case "/pooled/panic", "/inline/panic":
		panic("a handler's")
	case "/pooled/five and die":
		for range 5 {
			if err := c.Send(*message(1000)); err != nil {
				return
			}
		}
		// They go out by the time that the handler waits.
		time.Sleep(50 * time.Millisecond)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	message, err := c.Recv()
	if err != nil {
		_ = c.Finish(nil, nil, status.Convert(err), nil)
		return
	}
	_ = c.Finish(nil, &message, ok, nil)
}

// BenchmarkUnary makes calls to another process, one after the other, or by many goroutines.
func BenchmarkUnary(b *testing.B) {
	address, _ := process(b)
	client, err := Dial(context.Background(), address, Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	echoed := func(method string, body []byte) error {
		c, err := client.Start(context.Background(), &call.Start{
			Method: method, Message: &call.Message{Data: mem.BufferSlice{mem.SliceBuffer(body)}}, Last: true,
		})
		if err != nil {
			return err
		}
		got, err := c.Recv()
		if err != nil {
			return c.Outcome().Status.Err()
		}
		if got.Data.Len() != len(body) {
			return fmt.Errorf("%d bytes came", got.Data.Len())
		}
		got.Data.Free()
		_, _ = c.Recv()
		return c.Outcome().Status.Err()
	}
	for _, n := range []int{64, 4096, 65536, 1 << 20} {
		body := make([]byte, n)
		for _, method := range []string{"/inline/echo", "/pooled/echo"} {
			b.Run(fmt.Sprintf("%d%s/1", n, method[:7]), func(b *testing.B) {
				b.SetBytes(int64(2 * n))
				b.ReportAllocs()
				var times []time.Duration
				for b.Loop() {
					began := time.Now()
					if err := echoed(method, body); err != nil {
						b.Fatal(err)
					}
					times = append(times, time.Since(began))
				}
				// On a machine that does other work, too, the mean says little.
				slices.Sort(times)
				b.ReportMetric(float64(times[len(times)/10]), "p10-ns")
				b.ReportMetric(float64(times[len(times)/2]), "p50-ns")
			})
		}
	}
	body := make([]byte, 64)
	for _, method := range []string{"/inline/echo", "/pooled/echo"} {
		b.Run(fmt.Sprintf("64%s/16", method[:7]), func(b *testing.B) {
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := echoed(method, body); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkStream sends short messages and has each echoed.
func BenchmarkStream(b *testing.B) {
	client, _ := served(b, call.Service{Handler: echo}, Config{})
	c, err := client.Start(context.Background(), &call.Start{Method: "/a.B/S"})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	began := time.Now()
	go func() {
		for i := range b.N {
			if err := c.Send(*message(64), i == b.N-1); err != nil {
				b.Error(err)
				return
			}
		}
	}()
	for range b.N {
		got, err := c.Recv()
		if err != nil {
			b.Fatal(err)
		}
		got.Data.Free()
	}
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "messages/s")
}

// linked are both ends of a session that nobody runs.
func linked(b testing.TB, handler call.Handler) (c *client, server *link) {
	address := newName()
	where, err := rendezvous.ParseAddress(address)
	if err != nil {
		b.Fatal(err)
	}
	listener, err := rendezvous.Bind(where)
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	config := Config{}.filled()
	welcomed := make(chan *meeting)
	go func() {
		accepted, err := listener.AcceptUnix()
		if err != nil {
			b.Error(err)
		}
		conn, err := rendezvous.NewConn(accepted)
		if err != nil {
			b.Error(err)
		}
		met, err := welcome(conn, &config, new(Tokens), func() *wire.Refusal { return nil })
		if err != nil {
			b.Error(err)
		}
		welcomed <- met
	}()
	conn, err := rendezvous.Connect(context.Background(), where)
	if err != nil {
		b.Fatal(err)
	}
	met, err := attach(conn, &config, &presentation{kind: wire.KindHello})
	if err != nil {
		b.Fatal(err)
	}
	serve := func(calls []*serverCall, _ int) bool {
		for _, c := range calls {
			handler(c)
			c.release()
		}
		return false
	}
	accepted := <-welcomed
	server = newLink(wire.Server, accepted, accepted.peerAt(address), &config, host{parent: context.Background(), serve: serve})
	c = &client{newLink(wire.Client, met, met.peerAt(address), &config, host{})}
	b.Cleanup(func() {
		for _, l := range []*link{c.link, server} {
			(&meeting{conn: l.conn, own: l.rings.own, peer: l.rings.peer}).close()
		}
	})
	return c, server
}

// BenchmarkWork is what both ends of an unary call have to do, on one goroutine: nobody waits for anybody.
func BenchmarkWork(b *testing.B) {
	client, server := linked(b, answer)
	body := make([]byte, 64)
	b.ReportAllocs()
	for b.Loop() {
		c, err := client.Start(context.Background(), &call.Start{
			Method: "/a.B/C", Message: &call.Message{Data: mem.BufferSlice{mem.SliceBuffer(body)}}, Last: true,
		})
		if err != nil {
			b.Fatal(err)
		}
		server.mu.Lock()
		server.pass()
		server.deliver(1)
		server.unlock()
		got, err := c.Recv()
		if err != nil {
			b.Fatal(err)
		}
		got.Data.Free()
		_, _ = c.Recv()
		if err := c.Outcome().Status.Err(); err != nil {
			b.Fatal(err)
		}
	}
}
