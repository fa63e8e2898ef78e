package tollfree

import (
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// An answer is what a service says of a call beside messages: header and trailer. All methods are safe for use by several
// goroutines.
//
// Invariant: the header does not change once it is sent.
type answer struct {
	mu      sync.Mutex
	header  metadata.MD
	trailer metadata.MD
	wrong   error // of a trailer that can't be sent
	headed  bool  // the header is sent, or about to be
	// sent says that it is sent, to those who do not have the lock.
	sent atomic.Bool
}

var errHeaderSent = status.Error(codes.Internal, "tollfree: the header was sent before: set it before the first message and before SendHeader")

// setHeader adds to the header. An error is a status.
func (a *answer) setHeader(md metadata.MD) error {
	if err := checkMetadata(md); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.headed {
		return errHeaderSent
	}
	if len(md) > 0 {
		a.header = joinMetadata(a.header, md)
	}
	return nil
}

// sendHeader sends the header, unless that was done.
func (a *answer) sendHeader(send func(header metadata.MD) error) error {
	if a.sent.Load() {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.headed {
		return nil
	}
	a.headed = true
	err := send(a.header)
	a.sent.Store(true)
	return err
}

// hasHeader says whether the service has set a header, shownHeader gives a copy of it and says whether it is sent.
func (a *answer) hasHeader() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.header) > 0
}

func (a *answer) shownHeader() (header metadata.MD, headed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.header.Copy(), a.headed
}

// addTrailer adds to the trailer. An error is a status.
func (a *answer) addTrailer(md metadata.MD) error {
	if err := checkMetadata(md); err != nil {
		return err
	}
	if len(md) > 0 {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.trailer = joinMetadata(a.trailer, md)
	}
	return nil
}

// fail has the call end with err, a status, where it would be OK.
func (a *answer) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wrong = err
}

// end gives what goes out with the call's end: no header where that is sent. Nothing can be sent afterwards.
func (a *answer) end() (header, trailer metadata.MD, headed bool, wrong error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	headed = a.headed
	a.headed = true
	if !headed {
		header = a.header
	}
	return header, a.trailer, headed, a.wrong
}
