package transport

import (
	"sync/atomic"
	"unsafe"

	"google.golang.org/grpc/metadata"
)

// lastHeaders are the headers of a session's last call: those of the next are often the same.
type lastHeaders struct {
	decoded atomic.Pointer[decodedHeaders]
	encoded atomic.Pointer[encodedHeaders]
}

// decodedHeaders is a block that has come, and encodedHeaders one that goes. Nobody changes either.
type decodedHeaders struct {
	block  []byte
	header metadata.MD
}

type encodedHeaders struct {
	header metadata.MD
	block  []byte
}

// of decodes a block, which is the same slice where its bytes are those of the call before.
func (h *lastHeaders) of(block []byte, decode func([]byte) metadata.MD) metadata.MD {
	last := h.decoded.Load()
	if last == nil || len(last.block) != len(block) || unsafe.SliceData(last.block) != unsafe.SliceData(block) {
		last = &decodedHeaders{block, decode(block)}
		h.decoded.Store(last)
	}
	return last.header
}

// blockOf encodes headers.
func (h *lastHeaders) blockOf(header metadata.MD) ([]byte, error) {
	if len(header) == 0 {
		return nil, nil
	}
	// The map is kept, so no other has its place meanwhile.
	if last := h.encoded.Load(); last != nil && *(*unsafe.Pointer)(unsafe.Pointer(&last.header)) == *(*unsafe.Pointer)(unsafe.Pointer(&header)) {
		return last.block, nil
	}
	block, err := headersBlock(header)
	if err == nil {
		h.encoded.Store(&encodedHeaders{header, block})
	}
	return block, err
}
