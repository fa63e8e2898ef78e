package tollfree

import (
	"context"
	"crypto/tls"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/transport"
)

// An answeredCall has an answer's header, or an outcome without one.
type answeredCall struct {
	call.ClientCall
	header  metadata.MD
	outcome *status.Status
}

func (c *answeredCall) Header() (metadata.MD, bool) { return c.header, c.header != nil }
func (c *answeredCall) Outcome() call.Outcome       { return call.Outcome{Status: c.outcome} }

// What names no process and no socket of its own is no offer.
func TestOffersOfDirectConnections(t *testing.T) {
	d := newDirectConnection(nil, transport.Config{})
	for _, c := range []struct{ address, process, words string }{
		{"shm:///run/another.sock", "pid=1,uid=2", "no process that can be met"},
		{"http://127.0.0.1:1", "pid=1,uid=2", "no process that can be met"},
		{"", "pid=1,uid=2", "no process that can be met"},
		{"shm-abstract:x", "pid=1", "no process that can be met"},
		{"shm-abstract:x", "", "no process that can be met"},
		{"shm-abstract:tollfree-test-nobody", "pid=1,uid=2", "has ended"},
		{"shm-abstract:" + strings.Repeat("x", 200), "pid=1,uid=2", "no address"},
	} {
		_, err := d.connect(context.Background(), &answeredCall{header: metadata.MD{headerOffer: {c.address}, headerProcess: {c.process}}})
		if err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%q, %q: %v", c.address, c.process, err)
		}
	}
	if _, err := d.connect(context.Background(), &answeredCall{header: metadata.MD{}}); err == nil {
		t.Error("an empty answer")
	}
	if _, err := d.connect(context.Background(), &answeredCall{outcome: status.New(codes.NotFound, "the group has several")}); err == nil || !strings.Contains(err.Error(), "several") {
		t.Errorf("a status: %v", err)
	}
}

// An admittingCall is a gateway's that names a process.
type admittingCall struct {
	call.ServerCall
	header metadata.MD
	peer   call.Peer
	ended  *status.Status
}

func (c *admittingCall) Header() metadata.MD { return c.header }
func (c *admittingCall) Peer() call.Peer     { return c.peer }
func (c *admittingCall) Finish(_ metadata.MD, _ *call.Message, outcome *status.Status, _ metadata.MD) error {
	c.ended = outcome
	return nil
}

func TestWhoIsNotAdmitted(t *testing.T) {
	s := NewServer()
	defer s.Stop()
	ask := func(process string, peer call.Peer) codes.Code {
		c := &admittingCall{header: metadata.MD{headerProcess: {process}}, peer: peer}
		s.admit(c)
		return c.ended.Code()
	}
	if code := ask("pid=0x1,uid=2", call.Peer{Gateway: true}); code != codes.InvalidArgument {
		t.Errorf("no process: %v", code)
	}
	if code := ask("pid=1,uid=2", call.Peer{Gateway: true, Secret: &tls.ConnectionState{}}); code != codes.FailedPrecondition {
		t.Errorf("a gateway of another host: %v", code)
	}
	s.admitted.Store(admittedMax)
	if code := ask("pid=1,uid=2", call.Peer{Gateway: true}); code != codes.ResourceExhausted {
		t.Errorf("one more than may come: %v", code)
	}
	s.admitted.Store(0)
	s.Stop()
	if code := ask("pid=1,uid=2", call.Peer{Gateway: true}); code != codes.Unavailable {
		t.Errorf("a server that has stopped: %v", code)
	}
	if left := s.admitted.Load(); left != 0 {
		t.Errorf("%d count as admitted", left)
	}
}

// A method of the protocol's own is nobody's in other sessions than a gateway's.
func TestOnlyGatewaysAskForTheProtocolsOwn(t *testing.T) {
	withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
		h.newServer(0, &testService{})
		client, err := transport.Dial(testContext(t), h.address(0), transport.Config{})
		wantNoError(t, err)
		defer client.Close()
		for _, method := range []string{admitMethod, describeMethod, directAskMethod} {
			c, err := client.Start(testContext(t), &call.Start{Method: method, Header: metadata.MD{headerProcess: {"pid=1,uid=0"}}, Last: true})
			wantNoError(t, err)
			if code := c.Outcome().Status.Code(); code != codes.Unimplemented {
				t.Errorf("%s: %v", method, code)
			}
		}
	})
}
