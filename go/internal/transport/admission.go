package transport

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/rendezvous"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// admission is a socket for one process that a gateway has named: spec/wire.md, direct connections. It takes one session.
type admission struct {
	*listener
	process Process
}

// Admit binds a new socket for one process.
//
// Errors: what the kernel refuses.
func Admit(process Process, config Config) (call.Listener, error) {
	var random [16]byte
	// It never fails.
	_, _ = rand.Read(random[:])
	where, err := rendezvous.ParseAddress(fmt.Sprintf("shm-abstract:tollfree-direct-%x", random))
	if err != nil {
		return nil, err
	}
	socket, err := rendezvous.Bind(where)
	if err != nil {
		return nil, err
	}
	config.Admits = func(uid uint32) bool { return uid == process.UID }
	return &admission{newListener(socket, where, config), process}, nil
}

// Serve waits for the process, and serves its session until that is over.
func (a *admission) Serve(service call.Service) error {
	a.mu.Lock()
	if a.closing {
		a.mu.Unlock()
		return nil
	}
	a.parts.Add(1)
	a.mu.Unlock()
	defer a.parts.Done()
	for {
		conn, err := a.socket.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			if !a.acceptAgain(err) {
				return fmt.Errorf("%s: accept: %w", a.address, err)
			}
			continue
		}
		peer, err := rendezvous.NewConn(conn)
		if err != nil {
			continue
		}
		if !a.process.is(peer) {
			peer.Refuse(&wire.Refusal{Reason: wire.ReasonUser, Text: "this socket is there for another process"})
			peer.Close()
			continue
		}
		// Others would find nobody who lets them in.
		_ = a.socket.Close()
		peer.SetDeadline(time.Now().Add(handshakeTime))
		met, err := welcome(peer, &a.config, &a.tokens, func() *wire.Refusal { return nil })
		if err != nil {
			return nil
		}
		peer.SetDeadline(time.Time{})
		a.host(met, &service, neighbor)
		return nil
	}
}

// Offer: the gateway says where the socket is.
func (a *admission) Offer() (offer Offer, ok bool) { return offer, false }
