package transport

import (
	"testing"
	"time"

	"github.com/tollfree/tollfree/go/internal/call"
)

// A goroutine that reads delivers the calls that have come: the client, which finds the server awake, does not ring.
func TestACallThatAGlanceFindsIsServed(t *testing.T) {
	client, listening := served(t, call.Service{Handler: echo}, Config{})
	if _, _, err := unary(within(t), client, "/a.B/C", 10); err != nil {
		t.Fatal(err)
	}
	var server *link
	listening.(*listener).mu.Lock()
	for link := range listening.(*listener).links {
		server = link
	}
	listening.(*listener).mu.Unlock()
	// Its own goroutine sleeps in the poller from then on.
	for until := time.Now().Add(testTime); ; time.Sleep(time.Millisecond) {
		server.mu.Lock()
		if server.bell.parked {
			break
		}
		server.mu.Unlock()
		if time.Now().After(until) {
			t.Fatal("the server never sleeps")
		}
	}
	server.bell.unpark()
	c, err := client.Start(within(t), &call.Start{Method: "/a.B/C", Message: message(10), Last: true})
	if err != nil {
		t.Fatal(err)
	}
	server.glance()
	server.unlock()
	got, err := c.Recv()
	if err != nil {
		t.Fatal(c.Outcome().Status)
	}
	got.Data.Free()
	c.Outcome()
}
