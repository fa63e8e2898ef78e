package tollfree

import (
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
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
// Fields that came otherwise, and strings, are the program's own copies, as without the option.
func RepliesInPlace(into *Payloads) grpc.CallOption { return repliesInPlaceOption{into: into} }

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
