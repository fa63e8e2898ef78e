//go:build interop

package transport

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/pool"
	"github.com/tollfree/tollfree/go/internal/rendezvous"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// lenderOf is a client that places what it sends in a pool of its own, as a gateway does, whether or not its server has joined it. With the method
// "/join" the server joins by an invitation of zeros.
func lenderOf(t *testing.T, own *pool.Pool, coordinator string, lends bool) (call.Client, *listener) {
	t.Helper()
	address := newName()
	where, err := rendezvous.ParseAddress(address)
	if err != nil {
		t.Fatal(err)
	}
	socket, err := rendezvous.Bind(where)
	if err != nil {
		t.Fatal(err)
	}
	server := newListener(socket, where, Config{}.filled())
	service := call.Service{Handler: func(c call.ServerCall) {
		if c.Method() == "/join" {
			_ = c.Finish(nil, nil, status.Convert(c.(*serverCall).Join(c.Context(), coordinator, [16]byte{})), nil)
			return
		}
		echo(c)
	}}
	served := make(chan struct{})
	go func() {
		defer close(served)
		accepted, err := socket.AcceptUnix()
		if err != nil {
			t.Error(err)
			return
		}
		conn, err := rendezvous.NewConn(accepted)
		if err != nil {
			t.Error(err)
			return
		}
		met, err := welcome(conn, &server.config, &server.tokens, func() *wire.Refusal { return nil })
		if err != nil {
			t.Error(err)
			return
		}
		if lends {
			met.said.Features |= wire.FeatureLending
		}
		server.host(met, &service, gateway)
	}()
	conn, err := rendezvous.Connect(within(t), where)
	if err != nil {
		t.Fatal(err)
	}
	config := Config{Pool: own}.filled()
	met, err := attach(conn, &config, &presentation{kind: wire.KindHello})
	if err != nil {
		t.Fatal(err)
	}
	met.said.Features |= wire.FeaturePool
	met.said.Pool = own.ID()
	client := beginClient(met, address, &config)
	t.Cleanup(func() {
		_ = client.Close()
		<-client.Done()
		_ = server.Close()
		<-served
	})
	return client, server
}

// lendTo makes a call with bytes of the pool.
func lendTo(t *testing.T, client call.Client, data mem.Buffer) (*status.Status, []byte) {
	t.Helper()
	data.Ref()
	c, err := client.Start(within(t), &call.Start{Method: "/a.B/C", Message: &call.Message{Data: mem.BufferSlice{data}}, Last: true})
	if err != nil {
		return status.Convert(err), nil
	}
	var got []byte
	for {
		message, err := c.Recv()
		if err != nil {
			break
		}
		got = content(message)
	}
	return c.Outcome().Status, got
}

// What a gateway lends is read in its pool by a server that has joined, is refused by one that has not, and ends the session of one that nobody lends
// anything.
func TestAServerReadsWhatAGatewayLends(t *testing.T) {
	counted(t)
	coordinator, _ := coordinated(t)
	own := memberAt(t, coordinator)
	data, _, kept := lent(t, own, 10_000)
	kept.Free()
	defer data.Free()
	want := content(*message(10_000))

	client, server := lenderOf(t, own, coordinator, true)
	if s, _ := lendTo(t, client, data); s.Code() != codes.PermissionDenied {
		t.Errorf("a server that has not joined: %v", s)
	}
	join := func() codes.Code {
		c, err := client.Start(within(t), &call.Start{Method: "/join", Last: true})
		if err != nil {
			t.Fatal(err)
		}
		return c.Outcome().Status.Code()
	}
	if code := join(); code != codes.OK {
		t.Fatalf("the server does not join: %v", code)
	}
	if code := join(); code != codes.AlreadyExists {
		t.Errorf("the server joins again: %v", code)
	}
	for range 20 {
		if s, got := lendTo(t, client, data); s.Code() != codes.OK || !bytes.Equal(got, want) {
			t.Fatalf("%v, and %d bytes", s, len(got))
		}
	}
	// It may ask for the bytes of the first ones, and lends nothing back.
	link := server.all()[0]
	link.mu.Lock()
	lent, taken := link.lending.joined.Counts()
	link.mu.Unlock()
	if lent != 0 || taken < 10 {
		t.Errorf("the server has lent %d times, and has taken hold of %d refs", lent, taken)
	}
	unlent, _ := lenderOf(t, own, coordinator, false)
	if s, _ := lendTo(t, unlent, data); s.Code() != codes.Unavailable {
		t.Errorf("a server that nobody lends anything: %v", s)
	}
	<-unlent.Done()
}

// A pool that is not there leaves the session as it is, and may be joined later.
func TestAPoolThatCanNotBeJoined(t *testing.T) {
	counted(t)
	one, _, _ := members(t)
	client, _ := lenderOf(t, one, newName(), true)
	c, err := client.Start(within(t), &call.Start{Method: "/join", Last: true})
	if err != nil {
		t.Fatal(err)
	}
	if s := c.Outcome().Status; s.Code() != codes.Unavailable {
		t.Errorf("a pool that is not there: %v", s)
	}
	if got := len(must(t, client)); got != 10 {
		t.Errorf("%d bytes", got)
	}
}

// must makes a call that succeeds.
func must(t *testing.T, client call.Client) []byte {
	t.Helper()
	outcome, got, err := unary(within(t), client, "/a.B/C", 10)
	if err != nil || outcome.Status.Code() != codes.OK {
		t.Fatal(err, outcome.Status)
	}
	return got
}
