package device

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/tollfree/tollfree/go/internal/ring"
	"github.com/tollfree/tollfree/go/internal/wire"
)

const ringLen = wire.RingLenMin

// An end is one of two hosts' ends of a session.
type end struct {
	own, mirror []byte
	window      *Window
	sender      *ring.Sender
	receiver    *ring.Receiver
}

func newEnd() *end {
	e := &end{own: make([]byte, wire.RingOff+ringLen), mirror: make([]byte, wire.RingOff+ringLen)}
	e.window = NewWindow(e.own, ringLen, e.mirror, ringLen)
	e.sender, e.receiver = ring.NewSender(e.own, e.mirror, ringLen), ring.NewReceiver(e.own, e.mirror, ringLen)
	return e
}

// Records of random lengths cross both ways, whatever pieces the bytes come in; beats change nothing.
func TestRecordsCrossInAnyPieces(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	ends, wires := [2]*end{newEnd(), newEnd()}, [2][]byte{}
	var sent, came [2]int
	for step := 0; came[0] < 3000 || came[1] < 3000; step++ {
		if step > 1_000_000 {
			t.Fatalf("%v have come of %v", came, sent)
		}
		i := random.IntN(2)
		e, other := ends[i], 1-i
		switch random.IntN(5) {
		case 0:
			payload := bytes.Repeat([]byte{byte(sent[i])}, random.IntN(400))
			if place, ok := e.sender.Begin(len(payload)); ok {
				place.Put(payload)
				sent[i]++
			}
			if random.IntN(2) == 0 {
				e.sender.Publish()
			}
		case 1:
			wires[other], _ = e.window.Say(wires[other])
		case 2:
			if random.IntN(20) == 0 {
				wires[other] = e.window.Beat(wires[other])
			}
			e.window.Counted()
		case 3:
			n := min(len(wires[i]), random.IntN(300))
			if err := e.window.Take(wires[i][:n]); err != nil {
				t.Fatal(err)
			}
			wires[i] = wires[i][n:]
		case 4:
			record, ok, err := e.receiver.Next()
			if err != nil || e.sender.Err() != nil {
				t.Fatal(err, e.sender.Err())
			}
			if !ok {
				continue
			}
			got := make([]byte, record.Len())
			record.Copy(got, 0)
			if !bytes.Equal(got, bytes.Repeat([]byte{byte(came[i])}, len(got))) {
				t.Fatalf("record %d holds others' bytes", came[i])
			}
			came[i]++
			if e.receiver.Advance() || random.IntN(3) == 0 {
				e.receiver.Release()
			}
		}
	}
}

// A message that is wrong changes nothing, whole or in pieces.
func TestAWrongMessageChangesNothing(t *testing.T) {
	one := newEnd()
	place, _ := one.sender.Begin(5)
	place.Put([]byte("hello"))
	one.sender.Publish()
	good, _ := one.window.Say(nil)
	for at := range headLen {
		bad := bytes.Clone(good)
		bad[at] ^= 0x81
		other := newEnd()
		var violation *Violation
		err := other.window.Take(bad)
		if at >= 4 && at < 8 { // The load is any number.
			if err != nil {
				t.Errorf("byte %d: %v", at, err)
			}
			continue
		}
		if !errors.As(err, &violation) {
			t.Errorf("byte %d: %v", at, err)
		}
		if other.window.Written() != 0 || other.receiver.HasNext() {
			t.Errorf("byte %d: lines were taken", at)
		}
	}
	other := newEnd()
	for range beatsMax {
		if err := other.window.Take(newEnd().window.Beat(nil)); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.window.Take(newEnd().window.Beat(nil)); err == nil {
		t.Error("beats without end are taken")
	}
	other.window.Counted()
}
