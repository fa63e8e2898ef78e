// Package buffers keeps buffers of short messages for the next ones: package mem pools none of at most 1024 bytes, for each of which it
// makes two objects.
package buffers

import (
	"sync"

	"google.golang.org/grpc/mem"
)

const (
	// SmallMax is the length of the longest message that is short.
	SmallMax = 1024
	// roomOf is the capacity of each buffer: package mem goes by that, and pools what is above SmallMax.
	roomOf = 2048
)

// smallPool is a mem.BufferPool of buffers that have roomOf bytes.
type smallPool struct{ pool sync.Pool }

var small = smallPool{sync.Pool{New: func() any {
	bytes := make([]byte, roomOf)
	return &bytes
}}}

func (p *smallPool) Get(n int) *[]byte {
	bytes := p.pool.Get().(*[]byte)
	*bytes = (*bytes)[:n]
	return bytes
}

func (p *smallPool) Put(bytes *[]byte) { p.pool.Put(bytes) }

// Small gives room for a message of n bytes, SmallMax at most. Each is wrapped, or given back.
func Small(n int) *[]byte { return small.Get(n) }

// Wrap makes a buffer of room that Small has given, and which has not been replaced by another.
func Wrap(bytes *[]byte) mem.Buffer { return mem.NewBuffer(bytes, &small) }

// GiveBack gives back room that was not wrapped.
func GiveBack(bytes *[]byte) { small.Put(bytes) }
