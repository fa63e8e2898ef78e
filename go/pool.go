package tollfree

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"google.golang.org/grpc/mem"

	"github.com/tollfree/tollfree/go/internal/pool"
	"github.com/tollfree/tollfree/go/internal/system"
)

// A Pool is this process's membership in a pool of memory (docs/guide/pools.md). Clients and servers that are given one send
// large messages by reference to peers that are members of the same pool, and to all others as before. All methods are safe for
// use by several goroutines.
type Pool struct{ member *pool.Pool }

// JoinPool joins the pool that is coordinated at "shm:///run/app/pool.sock" or "shm-abstract:name", by `tollfree pool serve` or
// a Rust program. Members trust each other with what lies in the pool. An error says why the coordinator can't be reached, or
// refuses.
func JoinPool(ctx context.Context, address string) (*Pool, error) {
	return joined(address, func() (*pool.Pool, error) { return pool.Join(ctx, address) })
}

// JoinPoolByInvitation joins a pool that only invited processes join (docs/guide/pools.md). An invitation is the 32 hexadecimal digits that the pool's
// program has given this process, in a way that nobody else can read; it is good once, and for 30 seconds. An error is as JoinPool's, and never shows the
// invitation.
func JoinPoolByInvitation(ctx context.Context, address, invitation string) (*Pool, error) {
	secret, ok := parseInvitation(invitation)
	if !ok {
		return nil, errors.New("tollfree: an invitation to a pool has 32 hexadecimal digits")
	}
	return joined(address, func() (*pool.Pool, error) { return pool.JoinInvited(ctx, address, secret) })
}

func joined(address string, join func() (*pool.Pool, error)) (*Pool, error) {
	if err := checkAddress(address); err != nil {
		return nil, err
	}
	if err := system.Check(); err != nil {
		return nil, fmt.Errorf("tollfree: %w", err)
	}
	member, err := join()
	if err != nil {
		return nil, fmt.Errorf("tollfree: %w", err)
	}
	return &Pool{member}, nil
}

// parseInvitation takes an invitation out of its text.
func parseInvitation(text string) (invitation [16]byte, ok bool) {
	bytes, err := hex.DecodeString(text)
	if err != nil || len(bytes) != len(invitation) {
		return invitation, false
	}
	return [16]byte(bytes), true
}

// Buffer gives memory of the pool, of n bytes: more than 1024, and at most 1 GiB. It waits up to a second for it. A codec that
// returns the buffer among a message's data sends it by reference, without a copy.
func (p *Pool) Buffer(n int) (*PoolBuffer, error) {
	data, buffer, err := p.member.Buffer(n)
	if err != nil {
		return nil, fmt.Errorf("tollfree: a buffer of %d bytes in the pool: %w", n, err)
	}
	return &PoolBuffer{buffer, data}, nil
}

// Leave leaves the pool as soon as nothing of its memory is in use here, and takes hold of nothing more. Close clients and stop
// servers that have the pool first. It does not wait; the channel is closed when this process is out.
func (p *Pool) Leave() (out <-chan struct{}) { return p.member.Leave() }

// A PoolBuffer is memory of a pool.
type PoolBuffer struct {
	mem.Buffer
	data []byte
}

// Bytes are to be written before the buffer is sent first, and not changed any more from then on.
func (b *PoolBuffer) Bytes() []byte { return b.data }

// WithPool has large messages go by reference to servers that are members of the same pool.
func WithPool(p *Pool) DialOption {
	return func(o *dialOptions) error {
		o.pool = p.member
		return nil
	}
}

// UsePool has large messages go by reference to clients that are members of the same pool.
func UsePool(p *Pool) ServerOption {
	return func(o *serverOptions) { o.pool = p.member }
}
