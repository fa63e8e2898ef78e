package transport

import (
	"github.com/tollfree/tollfree/go/internal/region"
	"github.com/tollfree/tollfree/go/internal/ring"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// rings are this side's ends of both rings, in the regions of this process and of its peer.
//
// Invariant: the memory is mapped until unmap is called, and nothing of it is touched afterwards. The link's lock guards all
// but HasNext, Moved and peerCPU.
type rings struct {
	own      *region.Own
	peer     []byte
	sender   *ring.Sender
	receiver *ring.Receiver
}

func newRings(m *meeting) rings {
	own := m.own.Memory()
	return rings{
		own: m.own, peer: m.peer,
		sender: ring.NewSender(own, m.peer, wire.RingLenDefault), receiver: ring.NewReceiver(own, m.peer, int(m.said.RingLen)),
	}
}

// mapped says whether the memory is there.
func (r *rings) mapped() bool { return r.peer != nil }

func (r *rings) unmap() {
	r.own.Unmap()
	region.Unmap(r.peer)
	r.peer = nil
}

// peerCPU is the processor that the peer says it waits on. The caller has the reading role, and maybe not the lock.
func (r *rings) peerCPU() uint32 { return ring.CPUOf(r.peer) }

// load reads the peer's load word, storeLoad writes this side's: how many calls a server has under way.
func (r *rings) load() (calls uint32, ok bool) { return ring.LoadOf(r.peer) }
func (r *rings) storeLoad(calls uint32)        { ring.StoreLoad(r.own.Memory(), wire.LoadWord(calls)) }
