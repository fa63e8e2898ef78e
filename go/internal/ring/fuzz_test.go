package ring

import (
	"testing"

	"github.com/tollfree/tollfree/go/internal/spec"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// FuzzReceiver reads records from a region of any bytes: each lies within the ring, and a ring holds so many at most.
func FuzzReceiver(f *testing.F) {
	heads, err := spec.Vectors("ring.json", "head_word")
	if err != nil {
		f.Fatal(err)
	}
	for _, head := range heads {
		f.Add(head, uint64(0))
		// Two records, of which the first is right.
		f.Add(append(append([]byte{0, 0, 0, 0x80, 10, 0, 0, 0}, make([]byte, wire.LineLen-8)...), head...), uint64(0))
	}
	f.Fuzz(func(t *testing.T, bytes []byte, from uint64) {
		const ringLen = wire.RingLenMin
		own, peer := make([]byte, wire.RingOff+ringLen), make([]byte, wire.RingOff+ringLen)
		copy(peer[wire.RingOff:], bytes)
		receiver := NewReceiver(own, peer, ringLen)
		receiver.pos = from % (1 << 40)
		receiver.released = receiver.pos
		for count := 0; ; count++ {
			record, ok, err := receiver.Next()
			if err != nil || !ok {
				return
			}
			if count > ringLen/wire.LineLen {
				t.Fatal("one lap of the ring has no end")
			}
			if record.Len() > RecordLenMax(ringLen) {
				t.Fatalf("a record of %d bytes", record.Len())
			}
			record.Copy(make([]byte, record.Len()), 0)
			receiver.Advance()
		}
	})
}

// FuzzCursor has a peer say how far it has read, in any order.
func FuzzCursor(f *testing.F) {
	cursors, err := spec.Vectors("ring.json", "consumed")
	if err != nil {
		f.Fatal(err)
	}
	for _, cursor := range cursors {
		f.Add(cursor, uint16(40))
	}
	f.Fuzz(func(t *testing.T, words []byte, records uint16) {
		const ringLen = wire.RingLenMin
		own, peer := make([]byte, wire.RingOff+ringLen), make([]byte, wire.RingOff+ringLen)
		sender := NewSender(own, peer, ringLen)
		last := uint64(0)
		for ; len(words) >= 8 && sender.Err() == nil; words = words[8:] {
			for range records % 64 {
				if _, ok := sender.Begin(8); !ok {
					break
				}
			}
			sender.Publish()
			copy(peer[wire.ConsumedOff:], words[:8])
			at := sender.Consumed()
			if at < last || at > sender.Published() {
				t.Fatalf("read to %d, after %d, where %d are published", at, last, sender.Published())
			}
			last = at
		}
	})
}
