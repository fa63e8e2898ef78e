package transport

import (
	"bytes"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/session"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// stalled is a client's end of a session that nobody runs yet: it reads nothing.
func stalled(t *testing.T, address string) *link {
	t.Helper()
	config := Config{}.filled()
	met := met(t, address, &config)
	return newLink(wire.Client, met, met.peerAt(address), &config, host{})
}

// openTold opens a call whose deadline only the server is told: the client does not end it.
func openTold(t *testing.T, l *link, left time.Duration) *clientCall {
	t.Helper()
	c := newClientCall(l, &call.Start{Last: true}, false)
	l.mu.Lock()
	defer l.unlock()
	if !l.session.Open(l, &c.Stream, &session.Opening{Path: "/a.B/S", DeadlineNS: clockNow() + uint64(left)}, nil, true) {
		t.Fatal("there is no room for an opening")
	}
	return c
}

// TestWhatWasSentBeforeADeadlineIsRead has a server fill what a client lets it: the client's credit, where the client takes
// records off the ring, and the ring, where it does not. At the deadline the server's last word has no room in a ring that is
// full. Its handler ends all the same, and the client reads all that was sent, and then DEADLINE_EXCEEDED: spec/wire.md,
// section 14.
func TestWhatWasSentBeforeADeadlineIsRead(t *testing.T) {
	const length, left = 1000, time.Second
	for name, runs := range map[string]bool{"of the client's credit": true, "of the ring": false} {
		t.Run("no more "+name, func(t *testing.T) {
			var accepted atomic.Int64
			began, failed := make(chan *serverCall, 1), make(chan error, 1)
			_, listener := served(t, call.Service{Handler: func(c call.ServerCall) {
				began <- c.(*serverCall)
				for {
					if err := c.Send(*message(length)); err != nil {
						failed <- err
						return
					}
					accepted.Add(1)
				}
			}}, Config{})
			l := stalled(t, listener.Address())
			ended := make(chan struct{})
			run := func() {
				l.run()
				close(ended)
			}
			if runs {
				go run()
			}
			told := time.Now()
			c := openTold(t, l, left)
			server := <-began

			// At least so many messages are in the ring, or beyond it, before the deadline.
			sent := 0
			var err error
			for until := time.Now().Add(testTime); err == nil; {
				server.link.mu.Lock()
				if server.ending == nil {
					sent = int(accepted.Load()) - server.Unsent()/(length+wire.ChunkCharge)
				}
				server.link.mu.Unlock()
				select {
				case err = <-failed:
				case <-time.After(time.Millisecond):
					if time.Now().After(until) {
						t.Fatal("the handler still sends, long after its deadline")
					}
				}
			}
			if status.Code(err) != codes.DeadlineExceeded || time.Since(told) < left {
				t.Errorf("sending ended after %v: %v", time.Since(told), err)
			}
			if sent < wire.RingLenDefault/2/length {
				t.Errorf("%d messages were sent, which fill nothing", sent)
			}

			if !runs {
				go run()
			}
			received := 0
			for ; ; received++ {
				got, err := c.Recv()
				if err == io.EOF {
					break
				}
				if err != nil || !bytes.Equal(content(got), content(*message(length))) {
					t.Fatalf("message %d came damaged, or %v", received, err)
				}
			}
			if c.Outcome().Status.Code() != codes.DeadlineExceeded || received < sent {
				t.Errorf("%d of at least %d messages came, and %v", received, sent, c.Outcome().Status)
			}
			for until := time.Now().Add(testTime); ; time.Sleep(time.Millisecond) {
				server.link.mu.Lock()
				remembered := server.link.session.Remembered()
				server.link.mu.Unlock()
				if remembered == 0 {
					break
				}
				if time.Now().After(until) {
					t.Fatalf("the server remembers %d streams", remembered)
				}
			}
			l.close("the test is over")
			<-ended
		})
	}
}
