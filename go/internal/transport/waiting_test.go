package transport

import (
	"context"
	"testing"

	"github.com/tollfree/tollfree/go/internal/call"
)

// TestAReaderThatLeavesDeliversCalls has a call come while a handler, which has read for itself, gives the reading role up.
func TestAReaderThatLeavesDeliversCalls(t *testing.T) {
	served := 0
	client, server := linked(t, func(c call.ServerCall) {
		served++
		answer(c)
	})
	server.mu.Lock()
	if !server.tryRead() {
		t.Fatal("somebody reads")
	}
	server.unlock()
	if _, err := client.Start(context.Background(), &call.Start{Method: "/a.B/C", Message: message(1), Last: true}); err != nil {
		t.Fatal(err)
	}
	server.mu.Lock()
	server.leave()
	server.unlock()
	if served != 1 {
		t.Errorf("%d calls were served, want 1", served)
	}
}
