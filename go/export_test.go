package tollfree

import (
	"testing"
)

// What tests of generated code need of this package's tests: the code imports the package, so its tests are outside.

type Harness = harness

var (
	OverCarriers = overCarriers
	OverFake     = overFake
	TestContext  = testContext
	WantCode     = wantCode
	WantNoError  = wantNoError
	WantValues   = wantValues
	Eventually   = eventually
	Allocations  = allocations
)

// OverSharedMemory runs a test over the real carrier alone.
func OverSharedMemory(t *testing.T, test func(t *testing.T, h *Harness)) {
	withCarrier(t, shmCarrier, test)
}

// NewSharedMemory is OverSharedMemory's harness, for benchmarks.
func NewSharedMemory(t testing.TB) *Harness { return newHarness(t, shmCarrier) }

// Prepare makes a server that serves at Start; Connect makes a client of it.
func (h *harness) Prepare(options ...ServerOption) *Server {
	return NewServer(append(h.carrier.server(h), options...)...)
}

func (h *harness) Start(s *Server)                           { h.serve(s, 0) }
func (h *harness) Connect(options ...DialOption) *ClientConn { return h.newConn(options...) }
func (h *harness) RefuseCalls(count int)                     { h.fake(0).RefuseCalls(count) }
func (h *harness) IsFake() bool                              { return h.carrier.name == "fake" }

// Address is where Start serves.
func (h *harness) Address() string { return h.address(0) }

// ObjectsCame counts flat messages that have come.
func (cc *ClientConn) ObjectsCame() int64 { return cc.objects.Load() }
func (s *Server) ObjectsCame() int64      { return s.objects.Load() }
