package transport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/rendezvous"
	"github.com/tollfree/tollfree/go/internal/session"
	"github.com/tollfree/tollfree/go/internal/system"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// client is a session as its client sees it.
type client struct {
	link *link
}

// Dial connects to the server at an address and makes a session.
//
// Errors are statuses: Unavailable where there is no server, or it refuses; PermissionDenied where the socket, or this side,
// does not allow it; DeadlineExceeded and Canceled by ctx.
func Dial(ctx context.Context, address string, config Config) (call.Client, error) {
	where, err := rendezvous.ParseAddress(address)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	c, err := dial(ctx, where, config.filled(), connectTo(where), &presentation{kind: wire.KindHello})
	if err != nil {
		return nil, err
	}
	return c, nil
}

func connectTo(where rendezvous.Address) func(context.Context) (*rendezvous.Conn, error) {
	return func(ctx context.Context) (*rendezvous.Conn, error) { return rendezvous.Connect(ctx, where) }
}

// An Offered is a session that a server has offered over TCP, whose ends the client knows.
type Offered struct {
	// Address is the socket's, File names its file.
	Address, File string
	Token         Token
	Ends          Ends
}

// DialOffered makes the session of an offer whose socket lies in a directory, and gives the server's answer. No call is to be made
// before that has been confirmed.
//
// Errors are statuses.
func DialOffered(ctx context.Context, directory string, offered *Offered, config Config) (client call.Client, answer Token, err error) {
	where, err := rendezvous.ParseAddress(offered.Address)
	if err != nil {
		return nil, answer, status.Error(codes.InvalidArgument, err.Error())
	}
	file, err := rendezvous.ParseFileID(offered.File)
	if err != nil {
		return nil, answer, status.Error(codes.InvalidArgument, err.Error())
	}
	connect := func(ctx context.Context) (*rendezvous.Conn, error) {
		return rendezvous.ConnectOffered(ctx, directory, where, file)
	}
	c, err := dial(ctx, where, config.filled(), connect, &presentation{kind: wire.KindHello, upgrade: &upgrade{offered.Token, offered.Ends}})
	if err != nil {
		return nil, answer, err
	}
	return c, c.link.said.Token, nil
}

// dial makes a session at an address to which connect connects.
func dial(ctx context.Context, where rendezvous.Address, config Config, connect func(context.Context) (*rendezvous.Conn, error), as *presentation) (*client, error) {
	fail := func(code codes.Code, err error) error { return status.Errorf(code, "%s: %s", where, err) }
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	conn, err := connect(ctx)
	switch {
	case errors.Is(err, system.EACCES):
		return nil, fail(codes.PermissionDenied, err)
	case errors.Is(err, system.ENOENT):
		return nil, absent(fail(codes.Unavailable, errors.New("there is no server")), system.ENOENT)
	case errors.Is(err, system.ECONNREFUSED):
		return nil, absent(fail(codes.Unavailable, errors.New("the server has ended")), system.ECONNREFUSED)
	case err != nil:
		return nil, fail(contextOr(ctx, codes.Unavailable), err)
	}
	deadline, _ := ctx.Deadline()
	conn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	met, err := attach(conn, &config, as)
	stopped := stop()
	var users *usersError
	switch {
	case errors.As(err, &users):
		return nil, fail(codes.PermissionDenied, fmt.Errorf("the server: %w", err))
	case err != nil:
		return nil, fail(contextOr(ctx, codes.Unavailable), err)
	case !stopped:
		met.close()
		return nil, fail(contextOr(ctx, codes.Unavailable), ctx.Err())
	}
	conn.SetDeadline(time.Time{})
	return beginClient(met, where.String(), &config), nil
}

func beginClient(met *meeting, address string, config *Config) *client {
	c := &client{newLink(wire.Client, met, met.peerAt(address), config, host{})}
	go c.link.run()
	return c
}

// absent is a status that is the kernel's error too: where nobody listens, another attempt soon costs next to nothing.
func absent(status error, kernel system.Errno) error { return fmt.Errorf("%w (%w)", status, kernel) }

// contextOr is the code of a context that is done.
func contextOr(ctx context.Context, code codes.Code) codes.Code {
	if deadline, has := ctx.Deadline(); has && !time.Now().Before(deadline) {
		// Connections have the context's deadline, and may notice first.
		<-ctx.Done()
	}
	switch ctx.Err() {
	case context.DeadlineExceeded:
		return codes.DeadlineExceeded
	case context.Canceled:
		return codes.Canceled
	}
	return code
}

func (c *client) Peer() call.Peer           { return c.link.peer }
func (c *client) Load() (uint32, bool)      { return c.link.load() }
func (c *client) Draining() <-chan struct{} { return c.link.life.draining }
func (c *client) Done() <-chan struct{}     { return c.link.life.done }

func (c *client) Err() error { return c.link.reason() }

func (c *client) Close() error {
	c.link.close("the client has closed the session")
	return nil
}

// Start begins a call.
func (c *client) Start(ctx context.Context, start *call.Start) (call.ClientCall, error) {
	cc, err := c.begin(ctx, start, start.Message, nil, start.Last)
	if err != nil {
		return nil, err
	}
	c.link.unlock()
	cc.watch(ctx, start.Deadline)
	return cc, nil
}

// begin opens a call with a first message, which is nil or data or short, and returns with the lock held, unless there is an error.
func (c *client) begin(ctx context.Context, start *call.Start, data *call.Message, short []byte, last bool) (*clientCall, error) {
	free := func() {
		if data != nil {
			data.Data.Free()
		}
	}
	block, err := c.link.headers.blockOf(start.Header)
	if err != nil {
		free()
		return nil, err
	}
	opening := session.Opening{Path: start.Method, Headers: block}
	if !start.Deadline.IsZero() {
		left := time.Until(start.Deadline)
		if left <= 0 {
			free()
			return nil, statusOfContext(true).Err()
		}
		opening.DeadlineNS = clockNow() + uint64(left)
	}
	l := c.link
	if data != nil && uint64(data.Data.Len()) > wire.MessageLenMax {
		free()
		return nil, tooLongToSend(data.Data.Len())
	}
	cc := newClientCall(l, start, last)
	composed := session.Message{Lent: short, Object: start.Object}
	message := &composed
	if data != nil {
		composed = l.compose(*data)
	} else if short == nil {
		message = nil
	}
	l.mu.Lock()
	err = l.session.CheckOpening(&opening, l.RecordLenMax())
	if err == nil {
		err = l.start(ctx, cc, &opening, message, last)
	} else {
		err = status.Error(codes.ResourceExhausted, err.Error())
	}
	if err != nil {
		l.unlock()
		composed.Free()
		return nil, err
	}
	return cc, nil
}

// start opens a call, when the server takes one more. The caller holds the lock.
func (l *link) start(ctx context.Context, cc *clientCall, opening *session.Opening, message *session.Message, last bool) error {
	var refused error
	tryOpen := func() bool {
		switch {
		case l.life.over():
			refused = status.Error(codes.Unavailable, overText(l.life.reason()))
			return true
		case l.session.Draining():
			refused = status.Error(codes.Unavailable, "the server drains, and takes no more calls")
			return true
		}
		return l.session.Open(l, &cc.Stream, opening, message, last)
	}
	// A later call waits behind earlier ones.
	if l.starters.none() && tryOpen() {
		return refused
	}
	self, opened := &cc.receiving, false
	l.starters.join(self)
	l.await(ctx, self, func() bool {
		if l.starters.isFirst(self) || l.life.over() || l.session.Draining() {
			opened = tryOpen()
			l.starters.tried(!opened && l.session.MayOpen())
		}
		return opened
	})
	l.starters.leave(self)
	if !opened {
		return status.FromContextError(ctx.Err()).Err()
	}
	return refused
}
