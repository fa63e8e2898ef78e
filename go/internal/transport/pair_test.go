package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
)

// testTime bounds what a test waits for.
const testTime = 20 * time.Second

var names atomic.Int64

func newName() string {
	return fmt.Sprintf("shm-abstract:tollfree-go-test-%d-%d", os.Getpid(), names.Add(1))
}

// held is what a process has: goroutines, descriptors, and mappings of shared memory.
func held(t testing.TB) [3]int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	maps, err2 := os.ReadFile("/proc/self/maps")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return [3]int{runtime.NumGoroutine(), len(entries), strings.Count(string(maps), "/memfd:")}
}

// counted fails a test that leaves goroutines, descriptors or mappings behind.
func counted(t testing.TB) {
	t.Helper()
	before := held(t)
	t.Cleanup(func() {
		until := time.Now().Add(testTime)
		for {
			now := held(t)
			if now[0] <= before[0] && now[1] <= before[1] && now[2] <= before[2] {
				return
			}
			if time.Now().After(until) {
				stacks := make([]byte, 1<<20)
				t.Fatalf("%d goroutines, descriptors and mappings are left, %d before:\n%s", now, before, stacks[:runtime.Stack(stacks, true)])
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testTime)
	t.Cleanup(cancel)
	return ctx
}

// served listens, serves with a handler, and gives a client.
func served(t testing.TB, service call.Service, config Config) (call.Client, call.Listener) {
	t.Helper()
	counted(t)
	listener, err := Listen(newName(), config)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := listener.Serve(service); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { _ = listener.Close() })
	return dialed(t, listener.Address(), config), listener
}

func dialed(t testing.TB, address string, config Config) call.Client {
	t.Helper()
	client, err := Dial(within(t), address, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.Close()
		<-client.Done()
	})
	return client
}

func message(n int) *call.Message {
	bytes := make([]byte, n)
	for i := range bytes {
		bytes[i] = byte(i % 251)
	}
	return &call.Message{Data: mem.BufferSlice{mem.SliceBuffer(bytes)}}
}

func content(message call.Message) []byte {
	bytes := message.Data.Materialize()
	message.Data.Free()
	return bytes
}

// echo answers each message with itself.
func echo(c call.ServerCall) {
	var last *call.Message
	for {
		message, err := c.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			if last != nil {
				last.Data.Free()
			}
			_ = c.Finish(nil, nil, status.Convert(err), nil)
			return
		}
		if last != nil {
			if err := c.Send(*last); err != nil {
				message.Data.Free()
				_ = c.Finish(nil, nil, status.Convert(err), nil)
				return
			}
		}
		last = &message
	}
	_ = c.Finish(nil, last, status.New(codes.OK, ""), nil)
}

// unary makes a call with one message each way.
func unary(ctx context.Context, client call.Client, method string, n int) (call.Outcome, []byte, error) {
	c, err := client.Start(ctx, &call.Start{Method: method, Message: message(n), Last: true})
	if err != nil {
		return call.Outcome{}, nil, err
	}
	answer, err := c.Recv()
	if err != nil {
		return c.Outcome(), nil, nil
	}
	got := content(answer)
	if _, err := c.Recv(); err != io.EOF {
		return call.Outcome{}, nil, fmt.Errorf("a second answer: %v", err)
	}
	return c.Outcome(), got, nil
}

var services = map[string]call.Service{
	"pooled": {Handler: echo},
	"inline": {Handler: echo, Inline: func(string) bool { return true }},
}

func TestUnaryCallsOfAllLengths(t *testing.T) {
	for name, service := range services {
		t.Run(name, func(t *testing.T) {
			client, _ := served(t, service, Config{})
			for _, n := range []int{0, 1, 64, 4096, 16000, 40000, 70000, 1 << 20, 4 << 20} {
				outcome, got, err := unary(within(t), client, "/a.B/C", n)
				if err != nil || outcome.Status.Code() != codes.OK || !bytes.Equal(got, content(*message(n))) {
					t.Fatalf("%d bytes: %v, %v, %d bytes came", n, err, outcome.Status, len(got))
				}
			}
			for range 2000 {
				if outcome, got, err := unary(within(t), client, "/a.B/C", 64); err != nil || len(got) != 64 {
					t.Fatalf("%v, %v", err, outcome.Status)
				}
			}
		})
	}
}

func TestManyCallersShareASession(t *testing.T) {
	for name, service := range services {
		t.Run(name, func(t *testing.T) {
			client, _ := served(t, service, Config{StreamCount: 8})
			errs := make(chan error, 32)
			for caller := range 32 {
				go func() {
					for i := range 100 {
						n := (caller*1000 + i*37) % 50000
						outcome, got, err := unary(within(t), client, fmt.Sprintf("/a.B/%d", i), n)
						if err == nil && (outcome.Status.Code() != codes.OK || len(got) != n) {
							err = fmt.Errorf("%d bytes: %v, %d came", n, outcome.Status, len(got))
						}
						if err != nil {
							errs <- err
							return
						}
					}
					errs <- nil
				}()
			}
			for range 32 {
				if err := <-errs; err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestStreamsBothWays(t *testing.T) {
	for name, service := range services {
		t.Run(name, func(t *testing.T) {
			client, _ := served(t, service, Config{})
			c, err := client.Start(within(t), &call.Start{Method: "/a.B/S"})
			if err != nil {
				t.Fatal(err)
			}
			lengths := func(i int) int { return (i * 7919) % 3000 * (1 + i%50/49*20) }
			const count = 3000
			go func() {
				for i := range count {
					if err := c.Send(*message(lengths(i)), i == count-1); err != nil {
						t.Errorf("message %d: %v", i, err)
						return
					}
				}
			}()
			for i := range count {
				got, err := c.Recv()
				if err != nil {
					t.Fatalf("message %d: %v, %v", i, err, c.Outcome().Status)
				}
				if !bytes.Equal(content(got), content(*message(lengths(i)))) {
					t.Fatalf("message %d came damaged", i)
				}
			}
			if _, err := c.Recv(); err != io.EOF || c.Outcome().Status.Code() != codes.OK {
				t.Fatalf("%v, %v", err, c.Outcome().Status)
			}
		})
	}
}

func TestMetadataAndStatusTravel(t *testing.T) {
	details, err := status.New(codes.NotFound, "not here: 50 % ü").WithDetails()
	if err != nil {
		t.Fatal(err)
	}
	client, listener := served(t, call.Service{Handler: func(c call.ServerCall) {
		header := metadata.MD{"from-request": c.Header()["x-own"], "raw-bin": {"\x00\x01"}, "put-back": append(c.Header()["user-agent"], c.Header()["content-type"]...)}
		trailer := metadata.MD{"user": {fmt.Sprint(c.Peer().UID)}, "path": {c.Method()}, "agent": {c.Peer().Agent}}
		_ = c.Finish(header, message(3), details, trailer)
	}}, Config{Agent: "test/1"})
	c, err := client.Start(within(t), &call.Start{Method: "/a.B/M", Header: metadata.MD{"x-own": {"1", "2"}}, Last: true})
	if err != nil {
		t.Fatal(err)
	}
	header, ok := c.Header()
	if !ok || fmt.Sprint(header) != fmt.Sprint(metadata.MD{"from-request": {"1", "2"}, "raw-bin": {"\x00\x01"}, "put-back": {"test/1", "application/grpc"}}) {
		t.Errorf("headers %v", header)
	}
	if got, err := c.Recv(); err != nil || got.Data.Len() != 3 {
		t.Errorf("%v", err)
	}
	if _, err := c.Recv(); err != io.EOF {
		t.Errorf("%v", err)
	}
	outcome := c.Outcome()
	if outcome.Status.Code() != codes.NotFound || outcome.Status.Message() != "not here: 50 % ü" {
		t.Errorf("%v", outcome.Status)
	}
	want := metadata.MD{"user": {fmt.Sprint(os.Geteuid())}, "path": {"/a.B/M"}, "agent": {"test/1"}}
	if fmt.Sprint(outcome.Trailer) != fmt.Sprint(want) {
		t.Errorf("trailers %v", outcome.Trailer)
	}
	if peer := client.Peer(); peer.PID != int32(os.Getpid()) || peer.Address != listener.Address() || peer.Agent != "test/1" {
		t.Errorf("%+v", peer)
	}
}

func TestACallEndsWithItsContext(t *testing.T) {
	began, ended := make(chan context.Context, 1), make(chan error, 1)
	client, _ := served(t, call.Service{Handler: func(c call.ServerCall) {
		began <- c.Context()
		_, err := c.Recv()
		<-c.Context().Done()
		ended <- err
		_ = c.Finish(nil, nil, status.New(codes.OK, ""), nil)
	}}, Config{})
	ctx, cancel := context.WithCancel(within(t))
	c, err := client.Start(ctx, &call.Start{Method: "/a.B/C"})
	if err != nil {
		t.Fatal(err)
	}
	<-began
	cancel()
	if _, err := c.Recv(); err != io.EOF || c.Outcome().Status.Code() != codes.Canceled {
		t.Errorf("%v, %v", err, c.Outcome().Status)
	}
	if err := <-ended; status.Code(err) != codes.Canceled {
		t.Errorf("the handler got %v", err)
	}
	if outcome, got, err := unaryWait(within(t), client, began, ended); err != nil {
		t.Errorf("a call afterwards: %v, %v, %v", outcome, got, err)
	}
}

// unaryWait makes one more call of the waiting kind and cancels it by its method.
func unaryWait(ctx context.Context, client call.Client, began chan context.Context, ended chan error) (call.Outcome, []byte, error) {
	c, err := client.Start(ctx, &call.Start{Method: "/a.B/C"})
	if err != nil {
		return call.Outcome{}, nil, err
	}
	<-began
	c.Cancel(codes.Aborted)
	<-ended
	if got := c.Outcome().Status.Code(); got != codes.Aborted {
		return call.Outcome{}, nil, fmt.Errorf("it ended as %v", got)
	}
	return c.Outcome(), nil, nil
}

func TestADeadlineEndsBothSides(t *testing.T) {
	codesSeen := make(chan error, 1)
	client, _ := served(t, call.Service{Handler: func(c call.ServerCall) {
		<-c.Context().Done()
		codesSeen <- c.Context().Err()
	}}, Config{})
	for _, own := range []bool{true, false} {
		ctx := within(t)
		deadline := time.Now().Add(30 * time.Millisecond)
		if own {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, deadline)
			defer cancel()
		}
		c, err := client.Start(ctx, &call.Start{Method: "/a.B/C", Deadline: deadline, Last: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Recv(); err != io.EOF || c.Outcome().Status.Code() != codes.DeadlineExceeded {
			t.Errorf("%v, %v", err, c.Outcome().Status)
		}
		<-codesSeen
	}
	if _, err := client.Start(within(t), &call.Start{Method: "/a.B/C", Deadline: time.Now()}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a call without time: %v", err)
	}
}

func TestAMessageTooLongEndsItsCall(t *testing.T) {
	client, _ := served(t, call.Service{Handler: echo}, Config{MessageLenMax: 1000})
	outcome, _, err := unary(within(t), client, "/a.B/C", 5000)
	if err != nil || outcome.Status.Code() != codes.ResourceExhausted {
		t.Errorf("%v, %v", err, outcome.Status)
	}
	if outcome, got, err := unary(within(t), client, "/a.B/C", 1000); err != nil || len(got) != 1000 {
		t.Errorf("a call afterwards: %v, %v", err, outcome.Status)
	}
}

func TestWhatCannotBeSentIsAnError(t *testing.T) {
	client, _ := served(t, call.Service{Handler: func(c call.ServerCall) {
		_ = c.Finish(metadata.MD{"x": {strings.Repeat("v", 20000)}}, nil, status.New(codes.OK, ""), nil)
	}}, Config{})
	for name, start := range map[string]*call.Start{
		"a long header": {Method: "/a.B/C", Header: metadata.MD{"x": {strings.Repeat("v", 20000)}}},
		"a long path":   {Method: "/" + strings.Repeat("a", 2000)},
		"no path":       {},
	} {
		if _, err := client.Start(within(t), start); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%s: %v", name, err)
		}
	}
	if outcome, _, err := unary(within(t), client, "/a.B/C", 1); err != nil || outcome.Status.Code() != codes.ResourceExhausted {
		t.Errorf("an answer: %v, %v", err, outcome.Status)
	}
}

func TestNothingIsSentAfterTheLast(t *testing.T) {
	client, _ := served(t, call.Service{Handler: echo}, Config{})
	c, err := client.Start(within(t), &call.Start{Method: "/a.B/C", Message: message(1), Last: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Send(*message(1), false); err == nil {
		t.Error("a message was sent after the last")
	}
	if err := c.CloseSend(); err != nil {
		t.Error(err)
	}
	if got, err := c.Recv(); err != nil || got.Data.Len() != 1 {
		t.Error(err)
	}
}

// TestLongMessagesGoThroughAreas looks whether both sides have made an area, and give it up when it is not used.
func TestLongMessagesGoThroughAreas(t *testing.T) {
	session, serving := served(t, call.Service{Handler: echo}, Config{})
	for range 5 {
		if _, got, err := unary(within(t), session, "/a.B/C", 300000); err != nil || len(got) != 300000 {
			t.Fatal(err)
		}
	}
	areas := func(l *link) (own, mapped int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.areas.own != nil {
			own = 1
		}
		return own, len(l.areas.mapped)
	}
	here := session.(*client).link
	var there *link
	server := serving.(*listener)
	server.mu.Lock()
	for there = range server.links {
	}
	server.mu.Unlock()
	for name, l := range map[string]*link{"client": here, "server": there} {
		if own, mapped := areas(l); own != 1 || mapped != 1 {
			t.Errorf("the %s has %d areas of its own, and %d of its peer's", name, own, mapped)
		}
	}
	until := time.Now().Add(testTime)
	for {
		ownHere, mappedHere := areas(here)
		ownThere, mappedThere := areas(there)
		if ownHere+mappedHere+ownThere+mappedThere == 0 {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%d, %d, %d and %d areas are left", ownHere, mappedHere, ownThere, mappedThere)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestSessionsComeAndGo(t *testing.T) {
	_, serving := served(t, call.Service{Handler: echo}, Config{})
	errs := make(chan error, 8)
	for range cap(errs) {
		go func() {
			for range 25 {
				session, err := Dial(within(t), serving.Address(), Config{})
				if err == nil {
					_, _, err = unary(within(t), session, "/a.B/C", 20000)
					_ = session.Close()
					<-session.Done()
				}
				if err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}
