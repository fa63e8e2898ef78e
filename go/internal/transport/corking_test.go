package transport

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/tollfree/tollfree/go/internal/call"
)

// A sender that has sent several messages and does something else holds none of them back.
func TestMessagesGoThoughTheirSenderIsElsewhere(t *testing.T) {
	const each = 5
	goOn := make(chan struct{})
	client, _ := served(t, call.Service{Handler: func(c call.ServerCall) {
		// Nobody of the server's looks any more then.
		time.Sleep(20 * time.Millisecond)
		for range each {
			if err := c.Send(*message(20)); err != nil {
				t.Error(err)
			}
		}
		select {
		case <-goOn:
		case <-time.After(testTime):
		}
		_ = c.Finish(nil, nil, okStatus, nil)
	}}, Config{})
	c, err := client.Start(within(t), &call.Start{Method: "/a.B/C", Last: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range each {
		m, err := c.Recv()
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		m.Data.Free()
	}
	close(goOn)
	if got := c.Outcome().Status.Code(); got != codes.OK {
		t.Error(got)
	}
}

func TestMessagesOfAStreamShareRecords(t *testing.T) {
	const count = 2000
	done := make(chan struct{})
	client, bound := served(t, call.Service{Handler: func(c call.ServerCall) {
		defer close(done)
		for range count {
			if err := c.Send(*message(10)); err != nil {
				t.Error(err)
				return
			}
		}
		_ = c.Finish(nil, nil, okStatus, nil)
	}}, Config{})
	server := bound.(*listener).all()[0]
	lines := func() uint64 {
		server.mu.Lock()
		defer server.mu.Unlock()
		return server.rings.sender.Published()
	}
	before := lines()
	c, err := client.Start(within(t), &call.Start{Method: "/a.B/C", Last: true})
	if err != nil {
		t.Fatal(err)
	}
	received := 0
	for m, err := c.Recv(); err == nil; m, err = c.Recv() {
		m.Data.Free()
		received++
	}
	<-done
	// Each alone takes a line at least, many together a quarter of one each.
	if used := lines() - before; received != count || used > count/2 {
		t.Errorf("%d messages came, of %d, in %d lines", received, count, used)
	}
}
