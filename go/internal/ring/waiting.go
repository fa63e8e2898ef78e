package ring

import (
	"sync/atomic"

	"github.com/tollfree/tollfree/go/internal/wire"
)

const (
	waitParked = 1
	waitSpace  = 2
	waitEpoch  = 2
)

// A Waiter says in its own region whether its side sleeps. Its methods are for one goroutine at a time.
//
// All accesses to waiting words, head words and cursors are from sync/atomic, which orders them totally: spec/wire.md,
// section 6, needs no other fence then.
type Waiter struct {
	own  []byte
	word uint32
}

// NewWaiter is awake.
func NewWaiter(own []byte) *Waiter { return &Waiter{own: own} }

// Park says that this side sleeps from now on, for room too where space is set. The caller looks once more before it does.
func (w *Waiter) Park(space bool) {
	w.word = (w.word>>waitEpoch+1)<<waitEpoch | waitParked
	if space {
		w.word |= waitSpace
	}
	atomic.StoreUint32(word32(w.own, wire.WaitingOff), w.word)
}

// Unpark says that this side is awake.
func (w *Waiter) Unpark() {
	w.word &^= waitParked | waitSpace
	atomic.StoreUint32(word32(w.own, wire.WaitingOff), w.word)
}

// A Ringer looks whether the peer sleeps and has to be rung. Its methods are for one goroutine at a time.
type Ringer struct {
	peer []byte
	rung uint32
	any  bool
}

// NewRinger looks into the peer's region.
func NewRinger(peer []byte) *Ringer { return &Ringer{peer: peer} }

// Published says whether to ring after something was published, Released after room was given back: once an epoch.
func (r *Ringer) Published() bool { return r.due(waitParked) }
func (r *Ringer) Released() bool  { return r.due(waitParked | waitSpace) }

func (r *Ringer) due(bits uint32) bool {
	word := atomic.LoadUint32(word32(r.peer, wire.WaitingOff))
	if word&bits != bits {
		return false
	}
	epoch := word >> waitEpoch
	if r.any && r.rung == epoch {
		return false
	}
	r.any, r.rung = true, epoch
	return true
}

// InitControlPage stores what a control page holds beside zeros before its region is sent: the processor that this process is bound to,
// or wire.CPUUnknown. CPUOf is what a peer's region says.
func InitControlPage(own []byte, cpu uint32) { atomic.StoreUint32(word32(own, wire.CPUOff), cpu) }
func CPUOf(peer []byte) uint32               { return atomic.LoadUint32(word32(peer, wire.CPUOff)) }

// StoreLoad says how many calls this server has under way; LoadOf is what a server's region says.
func StoreLoad(own []byte, word uint32) { atomic.StoreUint32(word32(own, wire.LoadOff), word) }
func LoadOf(peer []byte) (uint32, bool) {
	return wire.LoadOfWord(atomic.LoadUint32(word32(peer, wire.LoadOff)))
}
