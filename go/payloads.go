package tollfree

import (
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/tollfree/tollfree/go/flat"
	"github.com/tollfree/tollfree/go/internal/call"
)

// Payloads keep what messages have in a pool: see RepliesInPlace. The zero value keeps nothing. All methods are safe for use by several
// goroutines.
type Payloads struct {
	mu   sync.Mutex
	held []mem.Buffer
}

// Free lets go of all that is kept. Fields that lie there may not be used any more: the memory may get other content.
func (p *Payloads) Free() {
	if p == nil {
		return
	}
	p.mu.Lock()
	held := p.held
	p.held = nil
	p.mu.Unlock()
	for _, buffer := range held {
		buffer.Free()
	}
}

// mayKeep says whether a message that has come is an object to be read in the pool. p may be nil.
func (p *Payloads) mayKeep(message *call.Message) bool {
	return p != nil && message.Object && message.InPool
}

// object verifies an object where it lies in a pool, and keeps what it lies in. An error is a status; nothing is kept then.
func (p *Payloads) object(y flat.Type, in mem.Buffer, limit int) (flat.Object, error) {
	o, err := y.VerifyShared(in.ReadOnlyData())
	if o, err = withinLimit(o, err, limit); err != nil {
		in.Free()
		return flat.Object{}, err
	}
	p.keep([]mem.Buffer{in})
	return o, nil
}

func (p *Payloads) keep(held []mem.Buffer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = append(p.held, held...)
}

type repliesInPlaceOption struct {
	grpc.EmptyCallOption
	into *Payloads
}

// RepliesInPlace has values of type bytes in a call's replies not be copied where a member of the client's pool (WithPool) has sent them by
// reference: from 4096 bytes on, each is a slice of the pool's memory, which into keeps until Free. Such a slice can be read, sliced, and sent on, which is by
// reference again; an append copies. A write to it ends the program: the memory is mapped for reading. All members of a pool trust each other not to change
// what they have sent.
//
// Flat messages that came by reference are read in the pool, too: all but their strings.
//
// Fields that came otherwise, and strings, are the program's own copies, as without the option.
func RepliesInPlace(into *Payloads) grpc.CallOption { return repliesInPlaceOption{into: into} }

// onlyInPlace says whether a call has no option but RepliesInPlace, and what keeps its replies: nil without the option.
func onlyInPlace(options []grpc.CallOption) (into *Payloads, alone bool) {
	for _, option := range options {
		inPlace, is := option.(repliesInPlaceOption)
		if !is {
			return nil, false
		}
		into = inPlace.into
	}
	return into, true
}

// RequestsInPlace does for the requests of these methods, "/package.Service/Method", what RepliesInPlace does for replies. The handler has the memory until
// it returns and its reply is sent; that of a stream, until it receives the next message. To keep bytes for longer, it calls Pool.Hold, or copies
// them.
func RequestsInPlace(methods ...string) ServerOption {
	return func(o *serverOptions) {
		for _, method := range methods {
			o.inPlace[method] = true
		}
	}
}

// Hold keeps bytes that lie in the pool, and are kept already: by a PoolBuffer, Payloads, or as RequestsInPlace says. They are kept until the
// buffer that it returns is freed, too.
func (p *Pool) Hold(data []byte) (*PoolBuffer, error) {
	buffer, ok := p.member.Hold(data)
	if !ok {
		return nil, fmt.Errorf("tollfree: these %d bytes don't lie in memory of the pool that this process holds: copy them instead", len(data))
	}
	return &PoolBuffer{buffer, data}, nil
}
