package transport

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/rendezvous"
	"github.com/tollfree/tollfree/go/internal/system"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// listener takes sessions at one address.
type listener struct {
	address fmt.Stringer
	config  Config
	// socket is nil of a server that has attached.
	socket  *rendezvous.Listener
	workers workers
	load    loadReport
	door    door
	places  places
	tokens  Tokens

	mu    sync.Mutex
	links map[*link]bool
	// closing says that no session is taken any more, draining that those there are take no calls.
	closing, draining bool
	// parts are the goroutines that Serve has begun.
	parts sync.WaitGroup
}

// Listen binds an address.
//
// Errors: another server has it, or the system refuses; also shared memory, which each session needs.
func Listen(address string, config Config) (call.Listener, error) {
	where, err := rendezvous.ParseAddress(address)
	if err != nil {
		return nil, err
	}
	if err := tryMemory(); err != nil {
		return nil, fmt.Errorf("%s can't be served: %w", address, err)
	}
	socket, err := rendezvous.Bind(where)
	if err != nil {
		return nil, err
	}
	return newListener(socket, where, config), nil
}

// ListenOn takes sessions at a socket that listens already, which is the listener's from now on. Its file is left to the process that
// has bound it.
//
// Errors: it is no socket that can be served.
func ListenOn(socket *net.UnixListener, config Config) (call.Listener, error) {
	if err := tryMemory(); err != nil {
		_ = socket.Close()
		return nil, err
	}
	adopted, where, err := rendezvous.Adopt(socket)
	if err != nil {
		return nil, err
	}
	return newListener(adopted, where, config), nil
}

func newListener(socket *rendezvous.Listener, where fmt.Stringer, config Config) *listener {
	l := &listener{
		address: where, config: config.filled(), socket: socket, links: map[*link]bool{},
	}
	l.workers, l.door, l.load = newWorkers(l.work), newDoor(), newLoadReport(l.all)
	return l
}

func (l *listener) Address() string { return l.address.String() }

// An Offer is what clients that reach the server over TCP are told of a listener's socket.
type Offer struct {
	// Address is the socket's, File names its file.
	Address, File string
	Tokens        *Tokens
}

// Offer is what to tell; ok is false of an abstract name.
func (l *listener) Offer() (offer Offer, ok bool) {
	id, ok := l.socket.File()
	return Offer{l.address.String(), id.String(), &l.tokens}, ok
}

// Serve takes sessions, and serves their calls.
func (l *listener) Serve(service call.Service) error {
	l.mu.Lock()
	if l.closing {
		l.mu.Unlock()
		return nil
	}
	l.parts.Add(1)
	l.mu.Unlock()
	defer l.parts.Done()
	for {
		conn, err := l.socket.AcceptUnix()
		switch {
		case err == nil:
			l.parts.Add(1)
			go func() {
				defer l.parts.Done()
				l.meet(conn, &service)
			}()
		case errors.Is(err, net.ErrClosed):
			return nil
		case !l.acceptAgain(err):
			return fmt.Errorf("%s: accept: %w", l.address, err)
		}
	}
}

// acceptAgain says whether another accept may succeed after an error, and waits where that needs time.
func (l *listener) acceptAgain(err error) bool {
	switch {
	case errors.Is(err, system.EMFILE), errors.Is(err, system.ENFILE), errors.Is(err, system.ENOBUFS), errors.Is(err, system.ENOMEM):
		// Descriptors come back when sessions end; nothing tells when.
		time.Sleep(10 * time.Millisecond)
		return true
	}
	return errors.Is(err, system.ECONNABORTED)
}

// A via says by which way a session's client has come.
type via uint8

const (
	// byItself: it has connected to the server's socket.
	byItself via = iota
	// gateway: it is one that the server has attached to.
	gateway
	// neighbor: it is a process that the gateway has named, by a direct connection.
	neighbor
)

// serverCloses is what clients are told of a session that a server closes.
const serverCloses = "the server has closed the session"

// meet makes the handshake with a client, and serves its session.
func (l *listener) meet(conn *net.UnixConn, service *call.Service) {
	peer, err := rendezvous.NewConn(conn)
	if err != nil {
		return
	}
	if !l.config.Admits(peer.UID()) {
		peer.Refuse(&wire.Refusal{Reason: wire.ReasonUser, Text: (&usersError{peer.UID(), peer.PID()}).Error()})
		peer.Close()
		return
	}
	peer.SetDeadline(time.Now().Add(handshakeTime))
	entered := l.door.enter(peer)
	leave := func() {}
	defer func() { leave() }()
	met, err := welcome(peer, &l.config, &l.tokens, func() *wire.Refusal {
		left, busy := l.places.take(peer.PID(), sessionsMax())
		if busy == nil {
			leave = left
		}
		return busy
	})
	entered()
	if err != nil {
		return
	}
	peer.SetDeadline(time.Time{})
	l.host(met, service, byItself)
}

// host serves a session until it is over.
func (l *listener) host(met *meeting, service *call.Service, by via) {
	l.hostMoving(met, service, by, nil)
}

// hostMoving serves a session whose gateway may want the next one beside it: moves, if not nil, gets what it waits to be closed.
func (l *listener) hostMoving(met *meeting, service *call.Service, by via, moves chan<- chan<- struct{}) {
	from := met.peerAt(l.address.String())
	from.Gateway, from.Neighbor = by == gateway, by == neighbor
	host := host{
		parent: context.Background(), ended: l.forget, moves: moves,
		serve: func(calls []*serverCall, loop int) bool { return l.take(calls, loop, service) },
	}
	if service.Session != nil {
		parent, over := service.Session(context.Background(), from)
		host.parent = parent
		host.ended = func(link *link) {
			l.forget(link)
			over()
		}
	}
	link := newLink(wire.Server, met, from, &l.config, host)
	l.mu.Lock()
	l.links[link] = true
	closing, draining := l.closing, l.draining
	l.mu.Unlock()
	switch {
	case draining:
		link.drain()
	case closing:
		link.close(serverCloses)
	}
	l.load.join(link)
	link.run()
}

func (l *listener) forget(link *link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.links, link)
}

// take has calls served: here, where their methods' handlers answer at once, and by workers otherwise; it says whether a worker
// serves any.
func (l *listener) take(calls []*serverCall, loop int, service *call.Service) (elsewhere bool) {
	for _, c := range calls {
		if !c.begin() {
			c.release()
			continue
		}
		l.load.add(1)
		if loop != 0 && service.Inline != nil && service.Inline(c.Method()) {
			c.runOn(loop)
			l.serve(c, service)
			continue
		}
		elsewhere = true
		l.workers.do(job{c, service})
	}
	return elsewhere
}

func (l *listener) serve(c *serverCall, service *call.Service) {
	returned := false
	defer func() {
		if !returned {
			// The process ends, and its calls with it: nothing is answered. A handler that has called Goexit has not panicked.
			if wrong := recover(); wrong != nil {
				panic(wrong)
			}
		}
		c.release()
		l.load.add(-1)
	}()
	service.Handler(c)
	returned = true
}

func (l *listener) work(j job) { l.serve(j.call, j.service) }

// stop takes no new sessions. It gives those there are.
func (l *listener) stop(drain bool) []*link {
	l.mu.Lock()
	defer l.mu.Unlock()
	if drain {
		l.draining = true
	}
	if !l.closing {
		l.closing = true
		if l.socket != nil {
			_ = l.socket.Close()
		}
	}
	return slices.Collect(maps.Keys(l.links))
}

// all are the sessions there are.
func (l *listener) all() []*link {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.links))
}

// Drain takes no new sessions and calls, and waits for those there are.
func (l *listener) Drain(ctx context.Context) error {
	for _, link := range l.stop(true) {
		link.drain()
	}
	ended := make(chan struct{})
	go func() {
		l.parts.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		l.workers.close()
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// Close ends all sessions, and returns when nothing of them is left but handlers that have not returned yet.
func (l *listener) Close() error {
	l.door.clear()
	for _, link := range l.stop(false) {
		link.close(serverCloses)
	}
	l.parts.Wait()
	l.workers.close()
	return nil
}
