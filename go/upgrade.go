package tollfree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/system"
	"github.com/tollfree/tollfree/go/internal/transport"
)

// The service by which a server offers a session, and its headers: spec/wire.md, section 23.
const (
	upgradeService = "tollfree.Upgrade"
	upgradePrefix  = "/" + upgradeService + "/"
	askMethod      = upgradePrefix + "Ask"
	confirmMethod  = upgradePrefix + "Confirm"

	headerOffer  = "tollfree-offer"
	headerFile   = "tollfree-file"
	headerToken  = "tollfree-token"
	headerAnswer = "tollfree-answer"
)

const (
	// upgradeTime bounds one attempt to move over.
	upgradeTime = 10 * time.Second
	// upgradePauseMin and upgradePauseMax are the pauses between attempts, which begin with calls.
	upgradePauseMin, upgradePauseMax = 50 * time.Millisecond, time.Minute
)

// An Upgrade has the calls of a *grpc.ClientConn move over to shared memory by themselves, where the server is on the same host and
// offers that, as Server.OfferUpgrade and Rust servers do:
//
//	upgrade, err := tollfree.NewUpgrade("/run/app")
//	conn, err := grpc.NewClient("localhost:50051", grpc.WithTransportCredentials(insecure.NewCredentials()),
//		grpc.WithChainUnaryInterceptor(upgrade.Unary), grpc.WithChainStreamInterceptor(upgrade.Stream))
//
// Its interceptors are the connection's last. It is for one connection, to one server: calls that have moved are not balanced. A call
// that is under way stays where it is. When the session ends, new calls go over the connection, and move over again as soon as
// that is possible. Servers offer nothing under TLS.
type Upgrade struct {
	directory string
	options   []DialOption
	config    transport.Config
	context   context.Context
	cancel    context.CancelFunc
	moving    sync.WaitGroup
	// current makes calls in the session; nil: there is none.
	current atomic.Pointer[ClientConn]

	mu     sync.Mutex
	conn   *grpc.ClientConn
	busy   bool
	closed bool
	next   time.Time
	pause  time.Duration
	why    error
}

// NewUpgrade makes one for servers whose sockets lie in a directory, at any depth: a server can lead the client to no others.
// The session has the options; those of the *grpc.ClientConn (credentials, stats handlers, service config, balancers) have no
// effect on calls that have moved, but its default call options and its other interceptors have.
func NewUpgrade(directory string, options ...DialOption) (*Upgrade, error) {
	if !path.IsAbs(directory) {
		return nil, fmt.Errorf("tollfree: NewUpgrade got the directory %q: name an absolute path", directory)
	}
	o, err := newDialOptions(schemePath+"://"+path.Join(directory, "socket"), options)
	if err != nil {
		return nil, err
	}
	if len(o.targets) > 1 {
		return nil, errors.New("tollfree: NewUpgrade got WithEndpoint: the server says where its socket is")
	}
	u := &Upgrade{
		directory: path.Clean(directory), options: options, config: transportConfig(o), pause: upgradePauseMin,
		why: errors.New("no call has been made"),
	}
	u.context, u.cancel = context.WithCancel(context.Background())
	return u, nil
}

// Moved says whether calls go through shared memory now, and why not otherwise.
func (u *Upgrade) Moved() (bool, error) {
	if u.ready() != nil {
		return true, nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return false, u.why
}

// Close ends the session and its calls, and waits until nothing of it is left. The *grpc.ClientConn goes on.
func (u *Upgrade) Close() error {
	u.mu.Lock()
	u.closed = true
	u.mu.Unlock()
	u.cancel()
	u.moving.Wait()
	return nil
}

// unservedKey is of the context of a call that has moved: a *bool, which is set where no server has looked at the call.
type unservedKey struct{}

// noteUnserved says of a call that no session was found for it.
func noteUnserved(ctx context.Context) {
	if unserved, ok := ctx.Value(unservedKey{}).(*bool); ok {
		*unserved = true
	}
}

// Unary is the interceptor of unary calls.
func (u *Upgrade) Unary(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoker grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if shared := u.ready(); shared != nil && moves(options) {
		unserved := false
		err := shared.Invoke(context.WithValue(ctx, unservedKey{}, &unserved), method, request, reply, options...)
		if err == nil || !unserved || ctx.Err() != nil {
			return err
		}
	}
	u.consider(conn)
	return invoker(ctx, method, request, reply, conn, options...)
}

// Stream is the interceptor of calls with streams.
func (u *Upgrade) Stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, streamer grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	if strings.HasPrefix(method, upgradePrefix) {
		return streamer(ctx, desc, conn, method, options...)
	}
	if shared := u.ready(); shared != nil && moves(options) {
		unserved := false
		stream, err := shared.NewStream(context.WithValue(ctx, unservedKey{}, &unserved), desc, method, options...)
		if err == nil || !unserved || ctx.Err() != nil {
			return stream, err
		}
	}
	u.consider(conn)
	return streamer(ctx, desc, conn, method, options...)
}

// moves is false of a call with an option that can't be served over shared memory.
func moves(options []grpc.CallOption) bool {
	for _, option := range options {
		if _, is := option.(grpc.AuthorityOverrideCallOption); is {
			return false
		}
	}
	return true
}

func (u *Upgrade) ready() *ClientConn {
	shared := u.current.Load()
	if shared == nil || shared.balancer.ready() == nil {
		return nil
	}
	return shared
}

// consider has an attempt begin, unless one is under way or has failed just before.
func (u *Upgrade) consider(conn *grpc.ClientConn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.busy || u.closed || time.Now().Before(u.next) || u.conn != nil && u.conn != conn {
		return
	}
	u.conn, u.busy = conn, true
	u.moving.Go(func() {
		shared, err := u.move(conn)
		u.mu.Lock()
		defer u.mu.Unlock()
		u.busy = false
		if err != nil {
			u.why = fmt.Errorf("tollfree: calls to %s stay on TCP: %w", conn.Target(), err)
			u.next = time.Now().Add(u.pause + rand.N(u.pause))
			u.pause = min(2*u.pause, upgradePauseMax)
			return
		}
		u.pause, u.why = upgradePauseMin, errors.New("tollfree: the session is over")
		u.current.Store(shared.conn)
		u.moving.Go(func() { u.watch(shared) })
	})
}

// A moved session, and what makes calls in it.
type moved struct {
	session *session
	conn    *ClientConn
}

const (
	// readPauseMin and readPauseMax are the pauses between looks whether a program has read all calls of a session that is over.
	readPauseMin, readPauseMax = time.Millisecond, time.Second
)

// watch waits until the session takes no more calls, then until it is over and its calls have been read.
func (u *Upgrade) watch(shared moved) {
	select {
	case <-shared.session.client.Draining():
	case <-u.context.Done():
	}
	u.current.CompareAndSwap(shared.conn, nil)
	select {
	case <-shared.session.client.Done():
	case <-u.context.Done():
	}
	for pause := readPauseMin; shared.session.outstanding.Load() > 0 && u.context.Err() == nil; pause = min(2*pause, readPauseMax) {
		select {
		case <-time.After(pause):
		case <-u.context.Done():
		}
	}
	_ = shared.conn.Close()
}

// move asks the server for an offer, and makes the session.
func (u *Upgrade) move(conn *grpc.ClientConn) (shared moved, err error) {
	if err := system.Check(); err != nil {
		return shared, err
	}
	ctx, cancel := context.WithTimeout(u.context, upgradeTime)
	defer cancel()
	said, from, err := ask(ctx, conn, askMethod)
	if err != nil {
		return shared, fmt.Errorf("the server offers nothing: %w", err)
	}
	offered := transport.Offered{Address: first(said, headerOffer), File: first(said, headerFile)}
	if offered.Token, err = transport.ParseToken(first(said, headerToken)); err != nil {
		return shared, fmt.Errorf("the server's offer has %w", err)
	}
	if offered.Ends, err = endsOf(from.LocalAddr, from.Addr); err != nil {
		return shared, err
	}
	client, answer, err := transport.DialOffered(ctx, u.directory, &offered, u.config)
	if err != nil {
		return shared, err
	}
	said, _, err = ask(metadata.AppendToOutgoingContext(ctx, headerAnswer, answer.String()), conn, confirmMethod)
	if err == nil && first(said, headerToken) != offered.Token.String() {
		err = errors.New("it knows another token")
	}
	if err != nil {
		_ = client.Close()
		return shared, fmt.Errorf("the server does not confirm the session's answer: %w", err)
	}
	return u.adopt(ctx, offered.Address, client)
}

// adopt makes what makes calls in a session.
func (u *Upgrade) adopt(ctx context.Context, address string, client call.Client) (shared moved, err error) {
	var used atomic.Bool
	once := withDialer(func(context.Context, string) (call.Client, error) {
		if used.Swap(true) {
			return nil, status.Error(codes.Unavailable, "the session is over")
		}
		return client, nil
	})
	conn, err := NewClient(address, append(u.options[:len(u.options):len(u.options)], once)...)
	if err != nil {
		_ = client.Close()
		return shared, err
	}
	conn.Connect()
	for {
		changed := conn.state.changes()
		if session := conn.balancer.ready(); session != nil {
			return moved{session, conn}, nil
		}
		select {
		case <-changed:
			continue
		case <-client.Draining():
			err = errors.New("the session is over already")
		case <-ctx.Done():
			err = ctx.Err()
		}
		_ = conn.Close()
		_ = client.Close()
		return shared, err
	}
}

// ask makes a call without messages, and gives the answer's headers.
func ask(ctx context.Context, conn *grpc.ClientConn, method string) (said metadata.MD, from peer.Peer, err error) {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, grpc.Peer(&from))
	if err != nil {
		return nil, from, err
	}
	if err := stream.CloseSend(); err != nil {
		return nil, from, err
	}
	if err = stream.RecvMsg(new(emptypb.Empty)); err == nil {
		return nil, from, errors.New("an answer with a message, where none was to come")
	}
	if err != io.EOF {
		return nil, from, err
	}
	header, err := stream.Header()
	if err != nil {
		return nil, from, err
	}
	// An answer without messages may have all in its trailers.
	return metadata.Join(header, stream.Trailer()), from, nil
}

// endsOf are the addresses of a TCP connection.
func endsOf(client, server net.Addr) (ends transport.Ends, err error) {
	from, ok := client.(*net.TCPAddr)
	to, ok2 := server.(*net.TCPAddr)
	if !ok || !ok2 {
		return ends, fmt.Errorf("the connection between %v and %v is not known by its addresses", client, server)
	}
	return transport.Ends{Client: from.AddrPort(), Server: to.AddrPort()}, nil
}
