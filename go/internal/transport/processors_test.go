package transport

import (
	"testing"

	"github.com/tollfree/tollfree/go/internal/wire"
)

func TestNobodyLooksOnThePeersProcessor(t *testing.T) {
	for name, c := range map[string]struct {
		own, peer  uint32
		processors int
		looks      bool
	}{
		"several processors":                         {wire.CPUUnknown, wire.CPUUnknown, 2, true},
		"several, and a peer that says which it has": {wire.CPUUnknown, 1, 2, true},
		"one, and the peer's":                        {1, 1, 1, false},
		"one, and another peer's":                    {1, 0, 1, true},
		"one, and a peer that does not say":          {1, wire.CPUUnknown, 1, false},
		"one that can't be told":                     {wire.CPUUnknown, 0, 1, false},
	} {
		if got := looksBeside(c.own, c.peer, c.processors); got != c.looks {
			t.Errorf("%s: %v", name, got)
		}
	}
}
