package transport

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/pool"
	"github.com/tollfree/tollfree/go/internal/session"
	"github.com/tollfree/tollfree/go/internal/wire"
)

const (
	// refMin is from which length on bytes that lie in the pool go by ref.
	refMin = 4096
	// copyMin is from which length on other bytes are copied to the pool, and go by ref.
	copyMin = 64 * 1024
)

// compose makes a segmented message of a message that is long or lies in the pool, where the two ends have one in common. It does not wait:
// what the pool has no memory for goes inline. The caller does not hold the lock.
func (l *link) compose(message call.Message) session.Message {
	whole := session.Message{Data: message.Data, Compressed: message.Compressed, Object: message.Object}
	if l.pool == nil || message.Data.Len() < refMin {
		return whole
	}
	l.mu.Lock()
	if l.session.KeepsSegmentedMessages() {
		l.glance()
	}
	may := l.session.MaySendSegmented()
	l.unlock()
	if !may {
		return whole
	}
	c := composer{pool: l.pool}
	run := 0
	for i, buffer := range message.Data {
		if buffer.Len() < refMin || len(c.entries) > wire.SegmentedRefCountMax-2 {
			continue
		}
		ref, kept, ok := l.pool.Lend(buffer.ReadOnlyData())
		if ok {
			c.copy(message.Data[run:i])
			c.add(&ref, kept)
			run = i + 1
		}
	}
	c.copy(message.Data[run:])
	if len(c.entries) == 0 {
		return whole
	}
	n := uint32(message.Data.Len())
	message.Data.Free()
	whole.Data = mem.BufferSlice{mem.SliceBuffer(wire.AppendSegmented(nil, n, c.inline, c.entries))}
	whole.SegmentedMessage = c.kept
	return whole
}

// glance reads what has come where nobody reads: SEGMENTED_TAKEN rings nobody. The caller holds the lock, which is given up meanwhile where
// calls have come.
func (l *link) glance() {
	if !l.life.over() && l.rings.mapped() && l.there() && l.tryRead() {
		l.bell.unpark()
		l.pass()
		l.deliver(0)
		l.leave()
	}
}

const (
	// watchFirst and watchMax are the pauses between glances for segmented messages that a peer has not taken.
	watchFirst = 20 * time.Millisecond
	watchMax   = time.Second
)

// A segmentedWatch glances at the ring now and then while segmented messages that the peer has not taken keep memory of the pool, and nobody reads. The
// link's lock guards it.
type segmentedWatch struct {
	armed bool
	pause time.Duration
}

func (w *segmentedWatch) arm(l *link) {
	if w.armed {
		return
	}
	w.armed, w.pause = true, watchFirst
	time.AfterFunc(w.pause, func() { w.look(l) })
}

func (w *segmentedWatch) look(l *link) {
	l.mu.Lock()
	defer l.unlock()
	w.armed = false
	l.glance()
	if l.session.KeepsSegmentedMessages() && !w.armed {
		w.armed, w.pause = true, min(2*w.pause, watchMax)
		time.AfterFunc(w.pause, func() { w.look(l) })
	}
}

// A composer puts a segmented message together.
type composer struct {
	pool    *pool.Pool
	inline  []byte
	settled int
	entries []wire.SegmentEntry
	kept    mem.BufferSlice
}

func (c *composer) add(ref *pool.Ref, kept mem.Buffer) {
	c.entries = append(c.entries, wire.SegmentEntry{Before: uint32(len(c.inline) - c.settled), Ref: ref.Encode()})
	c.settled = len(c.inline)
	c.kept = append(c.kept, kept)
}

// copy copies a run of bytes, to the pool if they are many and it has memory for them.
func (c *composer) copy(run mem.BufferSlice) {
	if n := run.Len(); n >= copyMin {
		if data, buffer, err := c.pool.Try(n); err == nil {
			run.CopyTo(data)
			ref, kept, ok := c.pool.Lend(data)
			buffer.Free()
			if ok {
				c.add(&ref, kept)
				return
			}
		}
	}
	for _, buffer := range run {
		c.inline = append(c.inline, buffer.ReadOnlyData()...)
	}
}

// take takes the segmented message that has come, and gives the message that it is. s sleeps, and owner is told, while its bytes are on
// their way; over says that nobody wants the message any more. The caller holds the lock, which is given up meanwhile.
func (l *link) take(a *assembler, carried call.Message, lenMax uint32, owner session.Owner, s *sleeper, over func() bool) (message call.Message, wrong *fault) {
	number := a.segmented
	defer func() {
		a.segmented = 0
		l.session.TookSegmented(number)
	}()
	bytes := carried.Data.Materialize()
	carried.Data.Free()
	segmented, err := wire.ParseSegmented(bytes)
	switch {
	case err != nil:
		return message, &fault{codes.Internal, err.Error()}
	case segmented.Len > lenMax && !(carried.Object && segmented.Len <= wire.ObjectLenMax):
		return message, tooLong(segmented.Len, lenMax)
	}
	message.Compressed, message.Object = carried.Compressed, carried.Object
	refs := make([]pool.Ref, len(segmented.Entries))
	for i := range segmented.Entries {
		refs[i] = pool.DecodeRef(&segmented.Entries[i].Ref)
	}
	from := l.readsIn()
	if from == nil {
		return message, &fault{codes.PermissionDenied, "a message came by " + pool.Malformed.Error() + ": this process has joined none"}
	}
	l.unlock()
	parts, err := from.Take(refs)
	l.mu.Lock()
	message.InPool = err == nil && len(parts) == 1 && len(segmented.Inline) == 0
	if err != nil {
		if parts, wrong = l.ask(number, &segmented, refs, err, owner, s, over); wrong != nil {
			return message, wrong
		}
	}
	inline := segmented.Inline
	for i, part := range parts {
		if before := segmented.Entries[i].Before; before > 0 {
			message.Data = append(message.Data, mem.SliceBuffer(inline[:before:before]))
			inline = inline[before:]
		}
		message.Data = append(message.Data, part)
	}
	if len(inline) > 0 {
		message.Data = append(message.Data, mem.SliceBuffer(inline))
	}
	return message, nil
}

// ask gets from the peer what this process could not take hold of. The caller holds the lock.
func (l *link) ask(number uint64, segmented *wire.SegmentedMessage, refs []pool.Ref, why error, owner session.Owner, s *sleeper, over func() bool) (parts []mem.Buffer, wrong *fault) {
	var refused pool.Fault
	if !errors.As(why, &refused) {
		refused = pool.Gone
	}
	code := codes.Unavailable
	switch refused {
	case pool.Stale:
		return nil, &fault{codes.FailedPrecondition, "a message came by " + refused.Error()}
	case pool.Forged, pool.Malformed:
		return nil, &fault{codes.PermissionDenied, "a message came by " + refused.Error()}
	case pool.Short:
		code = codes.ResourceExhausted
	}
	l.session.WantSegmented(number, segmented.RefBytes, owner)
	var bytes []byte
	done := false
	l.await(context.Background(), s, func() bool {
		bytes, done = l.session.SegmentedBytes(number)
		return done || over() || l.life.over()
	})
	if bytes == nil {
		return nil, &fault{code, "a message came by " + refused.Error() + ", and its sender does not give the bytes"}
	}
	for i := range refs {
		n := refs[i].Len
		parts = append(parts, mem.SliceBuffer(bytes[:n:n]))
		bytes = bytes[n:]
	}
	return parts, nil
}
