// Package call is the seam between gRPC's API (package tollfree) and what carries calls (internal/transport): calls by bytes,
// with metadata, without codecs, stubs or options.
package call

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// A Message is one gRPC message. Who receives one owns Data and frees it. Data that is sent belongs to the callee, which
// frees it, whether or not it returns an error.
type Message struct {
	Data       mem.BufferSlice
	Compressed bool
	// Object says that the message is a flat message, which only a call that takes objects gets.
	Object bool
	// InPool says of a message that has come that Data is one buffer, in memory of a pool: its owner can write there. A sender leaves it false.
	InPool bool
}

// Start describes a call that begins.
type Start struct {
	// Method is the path, "/package.Service/Method".
	Method string
	// Header holds lower-case names; values of names that end in "-bin" are raw bytes. Nobody changes it from then on.
	Header metadata.MD
	// Deadline is zero for a call without one. The context's is not looked at.
	Deadline time.Time
	// MessageLenMax is the length of the longest message that is taken; 0: the session's limit. A longer one ends the call with
	// RESOURCE_EXHAUSTED.
	MessageLenMax uint32
	// Message, if not nil, goes out with the headers; Last says that no other message follows, and may be set without one.
	Message *Message
	Last    bool
	// Object says that the message is a flat message, where it is not Message but given otherwise.
	Object bool
	// TakesObjects says that messages may come as flat messages.
	TakesObjects bool
}

// An Outcome is how a call has ended.
type Outcome struct {
	// Status is never nil; details are in it.
	Status  *status.Status
	Trailer metadata.MD
	// Unprocessed says that the server has not looked at the call: it may be made again anywhere.
	Unprocessed bool
}

// A Peer is the process at the other end, by the kernel's word.
type Peer struct {
	Address  string
	PID      int32
	UID, GID uint32
	Agent    string
	// Gateway says that the process hands in calls of others: it has been attached to.
	Gateway bool
	// Neighbor says that a gateway has led the process here: a direct connection.
	Neighbor bool
	// Secret and Remote are those of a peer of another host, of which the kernel says nothing; nil: it is of this one.
	Secret *tls.ConnectionState
	Remote net.Addr
}

// A Client is one session as its client sees it. All methods are safe for use by several goroutines.
type Client interface {
	// Start begins a call; it waits while the server takes no more calls at once. The call is cancelled when ctx is done, and
	// ends at its deadline.
	// An error is a status; the call has not begun then.
	Start(ctx context.Context, start *Start) (ClientCall, error)
	Peer() Peer
	// Load is how many calls the server says that it has under way; ok is false where it does not say.
	Load() (calls uint32, ok bool)
	// Draining is closed when no call begins any more: the server drains, or the session is over.
	Draining() <-chan struct{}
	// Done is closed when the session is over; Err says why from then on.
	Done() <-chan struct{}
	Err() error
	// Close ends the session and all its calls.
	Close() error
}

// A ClientCall is one call. One goroutine may send while another receives.
type ClientCall interface {
	// Send waits for credit and room. It returns io.EOF where the call has ended: Recv has the outcome.
	Send(message Message, last bool) error
	CloseSend() error
	// Header waits for the answer's headers. ok is false where the call ended without any.
	Header() (header metadata.MD, ok bool)
	// Recv waits for the next message. It returns io.EOF at the end, whatever the status: Outcome has it from then on. What had
	// come before the end is received first, also where this side has ended the call, unless a message could not be taken.
	Recv() (Message, error)
	Outcome() Outcome
	// Cancel ends the call at once, if it has not ended. Harmless afterwards.
	Cancel(code codes.Code)
}

// A ServerCall is one call as its handler sees it. One goroutine may send while another receives.
type ServerCall interface {
	// Context has the call's deadline, and is cancelled when the client cancels, the session ends or the call is over.
	Context() context.Context
	Method() string
	// Header gives a map that nobody changes; calls with the same headers may get the same one.
	Header() metadata.MD
	Peer() Peer
	// Recv waits for the next message; io.EOF where the client sends no more, else a status.
	Recv() (Message, error)
	SendHeader(header metadata.MD) error
	// Send sends headers first, empty ones, where SendHeader has not been called.
	Send(message Message) error
	// Finish ends the call. message, if not nil, is the last; header is used where none has been sent. All of it goes out in
	// one record where it fits.
	Finish(header metadata.MD, message *Message, outcome *status.Status, trailer metadata.MD) error
}

// A Handler serves one call, and must have called Finish when it returns.
type Handler func(ServerCall)

// A Service says what is to be done with calls.
type Service struct {
	Handler Handler
	// Inline says of a method that its handler answers at once and may run on the goroutine that reads; nil: none.
	Inline func(method string) bool
	// Session, if not nil, is called when a session begins, before its first call; ended once, when it is over. The contexts
	// of the session's calls descend from the one that it returns.
	Session func(ctx context.Context, peer Peer) (sessionContext context.Context, ended func())
}

// A Listener takes sessions at one address.
type Listener interface {
	Address() string
	// Serve takes sessions until Close or Drain is called, and serves their calls. It returns nil then.
	Serve(service Service) error
	// Drain takes no new sessions, tells all peers, and waits until their calls have ended or ctx is done.
	Drain(ctx context.Context) error
	// Close ends all sessions and their calls.
	Close() error
}
