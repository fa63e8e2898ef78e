package transport

import (
	"runtime"
	"sync"

	"github.com/tollfree/tollfree/go/internal/system"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// boundTo is the one processor that this process is bound to; wire.CPUUnknown where it has several, among which its threads move.
var boundTo = sync.OnceValue(func() uint32 {
	var set system.CPUSet
	if runtime.NumCPU() > 1 || system.SchedGetaffinity(0, &set) != nil || set.Count() != 1 {
		return wire.CPUUnknown
	}
	for cpu := range uint32(64 * len(set)) {
		if set.IsSet(int(cpu)) {
			return cpu
		}
	}
	return wire.CPUUnknown
})

// mayLook says whether this process may look for its peer instead of sleeping: not on the processor that the peer needs meanwhile, as
// far as the peer says which that is, nor under a quota that looking would use up.
func mayLook(peerCPU uint32) bool {
	return looksBeside(boundTo(), peerCPU, runtime.NumCPU()) && quotaAllows()
}

func looksBeside(own, peer uint32, processors int) bool {
	if own == wire.CPUUnknown {
		return processors > 1
	}
	return peer != wire.CPUUnknown && peer != own
}
