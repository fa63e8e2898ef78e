// Package device keeps two rings alike on two hosts, without input and output: what this side's messages say, and what the peer's may
// do; spec/device.md, section 11. This side's region is read, and the mirror of the peer's written, by whoever carries the bytes.
package device

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/tollfree/tollfree/go/internal/ring"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// Protocol is the name by which TLS agrees on this protocol.
const Protocol = "tollfree-device/1"

const (
	headLen = 24
	// beatsMax is how many beats a peer sends at most between two times for one of this side's: some may have been held up.
	beatsMax = 64

	kindWrite    = 1
	kindComplete = 2
	kindBeat     = 3
)

// A Violation is what no correct peer does.
type Violation struct{ What string }

func (v *Violation) Error() string { return v.What }

func wrong(format string, args ...any) error { return &Violation{fmt.Sprintf(format, args...)} }

// A Window is one side's ring as the peer has it, and the peer's as this side has it. One goroutine may call Take while another calls
// the other methods.
type Window struct {
	own, mirror     []byte
	ownLen, ringLen int
	partial         []byte
	rearming        *ring.Waiter

	mu sync.Mutex
	// sent is the end of what was written to the peer, completed how far it has passed that, as it said last.
	sent, completed uint64
	// written is the end of what the peer has written here, told how far it knows that this side has passed that.
	written, told uint64
	beats         int
}

// NewWindow is for a region with a ring of ownLen bytes, and a mirror, all zeros, of the peer's with one of ringLen.
func NewWindow(own []byte, ownLen int, mirror []byte, ringLen int) *Window {
	w := &Window{own: own, ownLen: ownLen, mirror: mirror, ringLen: ringLen, rearming: ring.NewWaiter(mirror)}
	// A processor of another host means nothing here.
	ring.InitControlPage(mirror, wire.CPUUnknown)
	w.Rearm()
	return w
}

// After has the window be one that has sent, and passed, so many lines, whose peer knows that.
func (w *Window) After(sent, passed uint64) {
	w.sent, w.told, w.written = sent, passed, passed
}

// Written is the end of the lines that have come.
func (w *Window) Written() uint64 { return w.written }

// Rearm has the session ring again, for what it publishes and for what it passes. Say comes after it, or it is missed.
func (w *Window) Rearm() { w.rearming.Park(true) }

// Say appends the next message, if there is anything to say: all lines that are published.
func (w *Window) Say(to []byte) ([]byte, bool) {
	published, consumed := ring.PublishedFrom(w.own, w.ownLen, w.sent), ring.Consumed(w.own)
	w.mu.Lock()
	defer w.mu.Unlock()
	count := published - w.sent
	switch {
	case count > 0:
		to = w.put(to, kindWrite, count, consumed)
		to = ring.AppendLines(to, w.own, w.ownLen, w.sent, count)
	case consumed != w.told:
		to = w.put(to, kindComplete, 0, consumed)
	default:
		return to, false
	}
	// Before it is on its way: the peer may answer at once.
	w.sent, w.told = published, consumed
	return to, true
}

// Beat appends a message that says nothing new.
func (w *Window) Beat(to []byte) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.put(to, kindBeat, 0, w.told)
}

// Counted says that it is time for a beat of this side, sent or not: the peer may send as many again.
func (w *Window) Counted() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.beats = 0
}

func (w *Window) put(to []byte, kind byte, count, consumed uint64) []byte {
	to = append(to, kind, 0)
	to = binary.LittleEndian.AppendUint16(to, uint16(count))
	to = binary.LittleEndian.AppendUint32(to, ring.LoadWord(w.own))
	to = binary.LittleEndian.AppendUint64(to, consumed)
	return binary.LittleEndian.AppendUint64(to, w.sent)
}

// Take takes bytes that have come, in any pieces.
//
// Errors: a *Violation. Nothing may be taken afterwards.
func (w *Window) Take(bytes []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		missing, err := w.missing()
		if err != nil {
			return err
		}
		n := min(missing, len(bytes))
		w.partial = append(w.partial, bytes[:n]...)
		if bytes = bytes[n:]; n < missing {
			return nil
		}
		if missing, err = w.missing(); err != nil {
			return err
		} else if missing == 0 {
			w.apply()
			w.partial = w.partial[:0]
		}
	}
}

// missing is how many bytes the next step needs: a whole head, or a whole message. No more lines than were granted are waited for.
func (w *Window) missing() (int, error) {
	if have := len(w.partial); have < headLen {
		return headLen - have, nil
	}
	h := headOf(w.partial)
	if err := w.check(&h); err != nil {
		return 0, err
	}
	return headLen + int(h.count)*wire.LineLen - len(w.partial), nil
}

type head struct {
	kind, zero   byte
	count        uint64
	load         uint32
	consumed, at uint64
}

func headOf(b []byte) head {
	le := binary.LittleEndian
	return head{b[0], b[1], uint64(le.Uint16(b[2:])), le.Uint32(b[4:]), le.Uint64(b[8:]), le.Uint64(b[16:])}
}

func (w *Window) check(h *head) error {
	switch {
	case h.kind < kindWrite || h.kind > kindBeat || (h.kind == kindWrite) != (h.count > 0):
		return wrong("a message of kind %d with %d lines", h.kind, h.count)
	case h.zero != 0:
		return wrong("a message with bits that mean nothing")
	case h.at != w.written:
		return wrong("lines at %d where %d is their turn", h.at, w.written)
	case h.count > 0 && h.at+h.count-w.told >= uint64(w.ringLen/wire.LineLen):
		return wrong("%d lines, which are more than were granted", h.count)
	case h.consumed < w.completed || h.consumed > w.sent:
		return wrong("a completion up to line %d, where %d was said before and %d sent", h.consumed, w.completed, w.sent)
	case h.kind == kindComplete && h.consumed == w.completed:
		return wrong("a message that completes what was completed")
	case h.kind == kindBeat && h.consumed != w.completed:
		return wrong("a beat that completes")
	case h.kind == kindBeat && w.beats >= beatsMax:
		return wrong("more beats than any peer has reason to send")
	}
	return nil
}

// apply does what a whole message says that was checked.
func (w *Window) apply() {
	h := headOf(w.partial)
	if h.kind == kindBeat {
		w.beats++
	}
	if h.count > 0 {
		ring.PutLines(w.mirror, w.ringLen, w.written, w.partial[headLen:])
		w.written += h.count
	}
	w.completed = h.consumed
	ring.StoreConsumed(w.mirror, h.consumed)
	ring.StoreLoad(w.mirror, h.load)
}
