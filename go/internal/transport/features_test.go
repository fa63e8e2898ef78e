package transport

import (
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/rendezvous"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// everyFeature are the features that the specification has.
const everyFeature = wire.FeatureLoad | wire.FeaturePool | wire.FeatureUpgrade | wire.FeatureDoorbell | wire.FeatureLending

// echoes makes a call in a session.
func echoes(t *testing.T, client call.Client) {
	t.Helper()
	outcome, got, err := unary(within(t), client, "/a.B/C", 300_000)
	if err != nil || outcome.Status.Code() != codes.OK || len(got) != 300_000 {
		t.Errorf("%d bytes, %v, %v", len(got), err, outcome.Status)
	}
}

// A server leaves features out that it does not have: the doorbells of their own, which a client offers. Neither end gives one then, and both ring by
// the socket.
func TestAServerLeavesFeaturesOut(t *testing.T) {
	_, listener := served(t, call.Service{Handler: echo}, Config{})
	where, err := rendezvous.ParseAddress(listener.Address())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := rendezvous.Connect(within(t), where)
	if err != nil {
		t.Fatal(err)
	}
	config := Config{}.filled()
	met := &meeting{conn: conn}
	if met.own, err = makeRegion(); err != nil {
		t.Fatal(err)
	}
	hello := config.hello(wire.KindHello)
	hello.Features = everyFeature &^ wire.FeatureUpgrade
	if err := conn.SendHello(&hello, met.own.FD()); err != nil {
		t.Fatal(err)
	}
	met.own.Sent()
	said, fd, err := conn.ReceiveHello()
	if err != nil {
		t.Fatal(err)
	}
	if said.Kind != wire.KindWelcome || said.Features != wire.FeatureLoad {
		t.Errorf("kind %d with features %#x", said.Kind, said.Features)
	}
	if err := met.take(&said, fd); err != nil {
		t.Fatal(err)
	}
	client := beginClient(met, listener.Address(), &config)
	echoes(t, client)
	_ = client.Close()
	<-client.Done()
}

// A client takes no feature as agreed that it has not offered, whatever a server says.
func TestAClientHasOnlyFeaturesThatItOffered(t *testing.T) {
	counted(t)
	where, err := rendezvous.ParseAddress(newName())
	if err != nil {
		t.Fatal(err)
	}
	socket, err := rendezvous.Bind(where)
	if err != nil {
		t.Fatal(err)
	}
	server := newListener(socket, where, Config{}.filled())
	service := call.Service{Handler: echo}
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
		said, fd, err := conn.ReceiveHello()
		if err != nil {
			t.Error(err)
			return
		}
		if said.Features&(wire.FeatureDoorbell|wire.FeatureLending) != 0 {
			t.Errorf("a client offers features %#x", said.Features)
		}
		met := &meeting{conn: conn}
		if met.own, err = makeRegion(); err == nil {
			err = met.take(&said, fd)
		}
		if err == nil {
			hello := server.config.hello(wire.KindWelcome)
			hello.Features = everyFeature
			err = conn.SendHello(&hello, met.own.FD())
		}
		if err != nil {
			t.Error(err)
			return
		}
		met.own.Sent()
		server.host(met, &service, byItself)
	}()
	client, err := Dial(within(t), where.String(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	echoes(t, client)
	_ = client.Close()
	<-client.Done()
	_ = server.Close()
	<-served
}
