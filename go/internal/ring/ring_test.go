package ring

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/tollfree/tollfree/go/internal/wire"
)

// TestRecordsCross sends records of all lengths from one goroutine to another through a ring in the heap, where the race
// detector sees both.
func TestRecordsCross(t *testing.T) {
	for _, ringLen := range []int{wire.RingLenMin, wire.RingLenMax} {
		one, two := make([]byte, wire.RingOff+ringLen), make([]byte, wire.RingOff+ringLen)
		const count = 5000
		go func() {
			random := rand.New(rand.NewPCG(1, uint64(ringLen)))
			sender := NewSender(one, two, ringLen)
			for i := range count {
				record := make([]byte, 4+random.IntN(min(sender.RecordLenMax()-3, 64<<random.IntN(8))))
				for at := range record {
					record[at] = byte(i + at)
				}
				binary.LittleEndian.PutUint32(record, uint32(i))
				place, ok := sender.Begin(len(record))
				for !ok {
					sender.Publish()
					runtime.Gosched()
					place, ok = sender.Begin(len(record))
				}
				place.Put(record[:len(record)/3])
				place.PutString(string(record[len(record)/3:]))
				if place.Left() != 0 {
					t.Errorf("%d bytes of record %d are left", place.Left(), i)
				}
				if i%3 == 0 {
					sender.Publish()
				}
			}
			sender.Publish()
			if sender.Err() != nil {
				t.Error(sender.Err())
			}
		}()
		receiver := NewReceiver(two, one, ringLen)
		for i := range count {
			for !receiver.HasNext() {
				runtime.Gosched()
			}
			record, ok, err := receiver.Next()
			if !ok || err != nil {
				t.Fatalf("record %d: %v, %v", i, ok, err)
			}
			bytes := make([]byte, record.Len())
			half := len(bytes) / 2
			record.Copy(bytes[:half], 0)
			record.Copy(bytes[half:], half)
			if binary.LittleEndian.Uint32(bytes) != uint32(i) {
				t.Fatalf("record %d came as %d", i, binary.LittleEndian.Uint32(bytes))
			}
			for at := 4; at < len(bytes); at++ {
				if bytes[at] != byte(i+at) {
					t.Fatalf("record %d is damaged at %d", i, at)
				}
			}
			if receiver.Advance() {
				receiver.Release()
			}
		}
	}
}

func TestASleeperIsRungOnceAnEpoch(t *testing.T) {
	page := make([]byte, wire.RingOff)
	waiter, ringer := NewWaiter(page), NewRinger(page)
	ask := func(published, released bool) {
		t.Helper()
		if got := ringer.Released(); got != released {
			t.Errorf("released: %v", got)
		}
		if got := ringer.Published(); got != published {
			t.Errorf("published: %v", got)
		}
	}
	ask(false, false)
	waiter.Park(false)
	ask(true, false)
	ask(false, false)
	waiter.Park(true)
	ask(false, true)
	waiter.Unpark()
	ask(false, false)
	waiter.Park(false)
	ask(true, false)
}
