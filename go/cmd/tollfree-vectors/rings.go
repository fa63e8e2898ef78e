package main

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/tollfree/tollfree/go/internal/ring"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// A pair is a ring and both ends of it, in private memory.
type pair struct {
	ringLen          int
	sending, reading []byte
	sender           *ring.Sender
	receiver         *ring.Receiver
}

func newPair(q question) (*pair, error) {
	n, err := q.number("ring_len")
	if err != nil {
		return nil, err
	}
	p := &pair{ringLen: int(n), sending: make([]byte, wire.RingOff+n), reading: make([]byte, wire.RingOff+n)}
	p.sender = ring.NewSender(p.sending, p.reading, p.ringLen)
	p.receiver = ring.NewReceiver(p.reading, p.sending, p.ringLen)
	return p, nil
}

func (p *pair) offset(pos uint64) int { return wire.RingOff + int(pos*wire.LineLen)%p.ringLen }

func (p *pair) part(offset, n int) fields {
	return fields{"offset": offset, "hex": hex.EncodeToString(p.sending[offset : offset+n])}
}

func (p *pair) publish(payloads []string) (fields, error) {
	type placed struct {
		pos uint64
		n   int
	}
	var records []placed
	for _, text := range payloads {
		payload, err := hex.DecodeString(text)
		if err != nil {
			return nil, err
		}
		records = append(records, placed{p.sender.Staged(), 8 + len(payload)})
		place, ok := p.sender.Begin(len(payload))
		if !ok {
			return nil, fmt.Errorf("no room for %d bytes", len(payload))
		}
		place.Put(payload)
	}
	p.sender.Publish()
	told := []fields{}
	for _, record := range records {
		at := p.offset(record.pos)
		before := min(record.n, wire.RingOff+p.ringLen-at)
		parts := []fields{p.part(at, before)}
		if before < record.n {
			parts = append(parts, p.part(wire.RingOff, record.n-before))
		}
		told = append(told, fields{"position": record.pos, "parts": parts})
	}
	empty := p.offset(p.sender.Staged())
	if binary.LittleEndian.Uint64(p.sending[empty:]) != 0 {
		return nil, fmt.Errorf("no empty head is behind the last record")
	}
	return fields{"records": told, "empty_head_offset": empty}, nil
}

func (p *pair) receive(count uint64) (fields, error) {
	for ; count > 0; count-- {
		if _, ok, err := p.receiver.Next(); err != nil || !ok {
			return nil, fmt.Errorf("no record is there: %w", err)
		}
		p.receiver.Advance()
	}
	p.receiver.Release()
	return fields{"consumed": hex.EncodeToString(p.reading[wire.ConsumedOff : wire.ConsumedOff+8])}, nil
}

func ringSteps(q question) (reply fields, err error) {
	p, err := newPair(q)
	if err != nil {
		return nil, err
	}
	var steps []struct {
		Publish *[]string
		Receive *uint64
	}
	if err := q.get("steps", &steps); err != nil {
		return nil, err
	}
	for _, step := range steps {
		switch {
		case step.Publish != nil:
			reply, err = p.publish(*step.Publish)
		case step.Receive != nil:
			reply, err = p.receive(*step.Receive)
		default:
			err = fmt.Errorf("a step that is none")
		}
		if err != nil {
			return nil, err
		}
	}
	return reply, nil
}

func ringHead(q question) (fields, error) {
	p, err := newPair(q)
	if err != nil {
		return nil, err
	}
	word, err := q.bytes("head_word")
	if err != nil {
		return nil, err
	}
	position, err := q.number("position")
	if err != nil {
		return nil, err
	}
	for range position {
		if _, err := p.publish([]string{""}); err != nil {
			return nil, err
		}
		if _, err := p.receive(1); err != nil {
			return nil, err
		}
	}
	copy(p.sending[p.offset(position):], word)
	record, ok, err := p.receiver.Next()
	switch {
	case err != nil:
		return fields{"found": "violation", "len": nil}, nil
	case !ok:
		return fields{"found": "empty", "len": nil}, nil
	}
	return fields{"found": "record", "len": record.Len()}, nil
}

func ringCursor(q question) (fields, error) {
	p, err := newPair(q)
	if err != nil {
		return nil, err
	}
	published, err := q.number("published")
	if err != nil {
		return nil, err
	}
	seen, err := q.number("seen")
	if err != nil {
		return nil, err
	}
	consumed, err := q.bytes("consumed")
	if err != nil {
		return nil, err
	}
	for line := range published {
		binary.LittleEndian.PutUint64(p.reading[wire.ConsumedOff:], min(seen, line))
		if _, err := p.publish([]string{""}); err != nil {
			return nil, err
		}
	}
	binary.LittleEndian.PutUint64(p.reading[wire.ConsumedOff:], seen)
	p.sender.Consumed()
	copy(p.reading[wire.ConsumedOff:], consumed)
	if p.sender.Consumed(); p.sender.Err() != nil {
		return fields{"found": "violation", "room": nil}, nil
	}
	room := 0
	for {
		if _, ok := p.sender.Begin(0); !ok {
			return fields{"found": "taken", "room": room}, nil
		}
		room++
	}
}

func waitingSteps(q question) (fields, error) {
	var steps []string
	if err := q.get("steps", &steps); err != nil {
		return nil, err
	}
	page := make([]byte, wire.RingOff)
	waiter := ring.NewWaiter(page)
	for _, step := range steps {
		switch step {
		case "park":
			waiter.Park(false)
		case "park for space":
			waiter.Park(true)
		case "unpark":
			waiter.Unpark()
		default:
			return nil, fmt.Errorf("a step %q, which is none", step)
		}
	}
	return fields{"waiting": hex.EncodeToString(page[wire.WaitingOff : wire.WaitingOff+4])}, nil
}

func load(q question) (fields, error) {
	var calls *uint32
	if err := json.Unmarshal(q["calls"], &calls); err != nil {
		return nil, err
	}
	page := make([]byte, wire.RingOff)
	if calls != nil {
		ring.StoreLoad(page, wire.LoadWord(*calls))
	}
	return fields{"load": hex.EncodeToString(page[wire.LoadOff : wire.LoadOff+4])}, nil
}
