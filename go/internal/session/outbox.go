package session

import (
	"bytes"
	"encoding/binary"

	"google.golang.org/grpc/mem"

	"github.com/tollfree/tollfree/go/internal/ring"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// An ending is the last thing that a side says.
type ending uint8

const (
	goesOn ending = iota
	halfClose
	trailers
)

// A Message is to be sent. What it holds is the session's from then on.
type Message struct {
	Data       mem.BufferSlice
	Compressed bool
	// Lent, if not nil, is the message instead of Data. The session does not keep it beyond the next KeepLent.
	Lent []byte
	// SegmentedMessage, if not nil, says that Data are what a segmented message carries, and holds the blocks that its refs name until the peer has taken it.
	SegmentedMessage mem.BufferSlice
}

func (m *Message) length() int {
	if m.Lent != nil {
		return len(m.Lent)
	}
	return m.Data.Len()
}

// Free lets go of a message that is not sent.
func (m *Message) Free() {
	m.Data.Free()
	m.SegmentedMessage.Free()
}

// outgoing is a message on its way out.
type outgoing struct {
	Message
	length int
	// sent bytes have gone; the next one is in segment Data[0], at off.
	sent, off int
}

// put copies the next n bytes.
func (m *outgoing) put(place *ring.Place, n int) {
	if m.Lent != nil {
		place.Put(m.Lent[m.sent : m.sent+n])
		m.sent += n
		return
	}
	m.sent += n
	for n > 0 {
		segment := m.Data[0].ReadOnlyData()[m.off:]
		part := min(n, len(segment))
		place.Put(segment[:part])
		n -= part
		if m.off += part; part == len(segment) {
			m.Data[0].Free()
			m.Data, m.off = m.Data[1:], 0
		}
	}
}

// outbox is what waits to be said on a stream, in the order of the fields.
type outbox struct {
	headers    []byte
	hasHeaders bool
	messages   []outgoing
	one        [1]outgoing
	// bytes are those of messages, and what each costs beside.
	bytes  int
	ending ending
	code   uint16
	block  []byte
}

func (o *outbox) empty() bool { return !o.hasHeaders && len(o.messages) == 0 && o.ending == goesOn }

func (o *outbox) add(message Message) {
	if o.messages == nil {
		// Most calls send one message.
		o.messages = o.one[:0]
	}
	n := message.length()
	o.messages = append(o.messages, outgoing{Message: message, length: n})
	o.bytes += n + wire.ChunkCharge
}

// pop drops the first message, of which all was sent.
func (o *outbox) pop() {
	o.bytes -= o.messages[0].length + wire.ChunkCharge
	o.messages[0].Data.Free()
	o.messages[0].SegmentedMessage.Free()
	o.messages[0] = outgoing{}
	o.messages = o.messages[1:]
	if len(o.messages) == 0 {
		o.messages = nil
	}
}

// keepLent copies what was lent and waits.
func (o *outbox) keepLent() {
	for i := range o.messages {
		m := &o.messages[i]
		m.Lent = bytes.Clone(m.Lent)
	}
}

// drop frees everything.
func (o *outbox) drop() {
	for len(o.messages) > 0 {
		o.pop()
	}
	*o = outbox{}
}

// batchLenMax is how long a batch in a frame gets: short enough to be read while the next is written.
const batchLenMax = 8192

// batch says how many of the messages that wait, and how many bytes with their prefixes, go into one chunk of at most room
// bytes.
func (o *outbox) batch(room int) (count, length int) {
	room = min(room, batchLenMax)
	for i := range o.messages {
		n := wire.BatchPrefixLen + o.messages[i].length
		if length+n > room || o.messages[i].SegmentedMessage != nil {
			break
		}
		count, length = count+1, length+n
	}
	return count, length
}

// putBatch copies the first count messages with their prefixes, and drops them.
func (o *outbox) putBatch(place *ring.Place, count int) {
	for ; count > 0; count-- {
		m := &o.messages[0]
		var prefix [wire.BatchPrefixLen]byte
		if m.Compressed {
			prefix[0] = 1
		}
		binary.BigEndian.PutUint32(prefix[1:], uint32(m.length))
		place.Put(prefix[:])
		m.put(place, m.length)
		o.pop()
	}
}
