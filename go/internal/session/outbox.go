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
	// Object says that the message is a flat message.
	Object bool
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
	// several, if not 0, says that Lent is so many short messages, each behind gRPC's prefix, and the outbox's own.
	several int
}

// fitting says how many of several messages are in room bytes, and how long they are with their prefixes.
func (m *outgoing) fitting(room int) (count, length int) {
	if m.length <= room {
		return m.several, m.length
	}
	for count < m.several {
		next := length + wire.BatchPrefixLen + int(binary.BigEndian.Uint32(m.Lent[length+1:]))
		if next > room {
			break
		}
		count, length = count+1, next
	}
	return count, length
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
	// spare is room for short messages, while none are there.
	spare []byte
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

// addShort adds a copy of a short message, behind others like it where they are last.
func (o *outbox) addShort(message []byte) {
	last := len(o.messages) - 1
	if last < 0 || o.messages[last].several == 0 || o.messages[last].length+wire.BatchPrefixLen+len(message) > batchLenMax {
		if o.messages == nil {
			o.messages = o.one[:0]
		}
		o.messages = append(o.messages, outgoing{Message: Message{Lent: o.spare[:0]}})
		o.spare = nil
		last++
	}
	m := &o.messages[last]
	m.Lent = append(m.Lent, 0)
	m.Lent = binary.BigEndian.AppendUint32(m.Lent, uint32(len(message)))
	m.Lent = append(m.Lent, message...)
	m.several++
	m.length = len(m.Lent)
	o.bytes += len(message) + wire.ChunkCharge
}

// single makes the first of several messages one of its own.
func (o *outbox) single() {
	m := &o.messages[0]
	n := wire.BatchPrefixLen + int(binary.BigEndian.Uint32(m.Lent[1:]))
	front := outgoing{Message: Message{Lent: m.Lent[wire.BatchPrefixLen:n:n]}, length: n - wire.BatchPrefixLen}
	if m.several == 1 {
		*m = front
		return
	}
	m.Lent, m.several, m.length = m.Lent[n:], m.several-1, m.length-n
	o.messages = append([]outgoing{front}, o.messages...)
}

// putSeveral copies the first count of several messages, which are length bytes with their prefixes, and drops them.
func (o *outbox) putSeveral(place *ring.Place, count, length int) {
	m := &o.messages[0]
	place.Put(m.Lent[:length])
	o.bytes -= length - count*wire.BatchPrefixLen + count*wire.ChunkCharge
	if m.several -= count; m.several > 0 {
		m.Lent, m.length = m.Lent[length:], m.length-length
		return
	}
	// It has been cut at its front, unless all went at once.
	if cap(m.Lent) > cap(o.spare) {
		o.spare = m.Lent[:0]
	}
	o.messages[0] = outgoing{}
	if o.messages = o.messages[1:]; len(o.messages) == 0 {
		o.messages = nil
	}
}

// pop drops the first message, of which all was sent.
func (o *outbox) pop() {
	if m := &o.messages[0]; m.several > 0 {
		o.bytes -= m.length - m.several*wire.BatchPrefixLen + m.several*wire.ChunkCharge
	} else {
		o.bytes -= m.length + wire.ChunkCharge
	}
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
// bytes: either flat messages, or others.
func (o *outbox) batch(room int) (count, length int) {
	room = min(room, batchLenMax)
	for i := range o.messages {
		n := wire.BatchPrefixLen + o.messages[i].length
		if length+n > room || o.messages[i].SegmentedMessage != nil || o.messages[i].several > 0 || o.messages[i].Object != o.messages[0].Object {
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
		switch {
		case m.Object:
			prefix[0] = 2
		case m.Compressed:
			prefix[0] = 1
		}
		binary.BigEndian.PutUint32(prefix[1:], uint32(m.length))
		place.Put(prefix[:])
		m.put(place, m.length)
		o.pop()
	}
}
