package transport

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/session"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// An assembler makes messages of chunks.
type assembler struct {
	// batch is what is left of several messages that have come together.
	batch []byte
	part  call.Message
	begun bool
	// segmented message, if not 0, is the number of the segmented message that part is, until it is taken.
	segmented uint64
	// one is the room for the first message, which in most calls is one chunk; used says that it is in use.
	one  [1]mem.Buffer
	used bool
	// takesObjects says that messages may come as flat messages.
	takesObjects bool
}

// fault is why a message ends its call, not the session.
type fault struct {
	code codes.Code
	text string
}

// next takes chunks until they make a message; ok is false where more have to come. The caller holds the lock.
func (a *assembler) next(s *session.Session, st *session.Stream, lenMax uint32) (message call.Message, ok bool, wrong *fault) {
	for {
		if len(a.batch) > 0 {
			return a.cut(lenMax)
		}
		chunk, came := s.Take(st)
		if !came {
			return message, false, nil
		}
		if chunk.Object && !a.takesObjects {
			chunk.Data.Free()
			s.TookSegmented(chunk.SegmentedMessage)
			return message, false, &fault{codes.Internal, "a message came as a flat message, which nobody has asked for"}
		}
		if chunk.Batch > 0 {
			a.batch = chunk.Data.ReadOnlyData()
			continue
		}
		if chunk.First {
			a.part, a.begun, a.segmented = call.Message{Compressed: chunk.Compressed, Object: chunk.Object}, true, chunk.SegmentedMessage
			most := uint64(lenMax)
			if chunk.Object {
				// A limit is the encoding's, which is known later.
				most = max(most, wire.ObjectLenMax)
			}
			if a.segmented != 0 {
				// What the segmented message carries is bounded here, and the message where it is taken.
				most += wire.SegmentedHeadLen + wire.SegmentedRefCountMax*wire.SegmentEntryLen
			}
			if uint64(chunk.MessageLen) > most {
				chunk.Data.Free()
				a.begun = false
				s.TookSegmented(a.segmented)
				a.segmented = 0
				return message, false, tooLong(chunk.MessageLen, lenMax)
			}
		}
		if !a.used && a.part.Data == nil {
			a.used = true
			a.part.Data = a.one[:0:1]
		}
		a.part.Data = append(a.part.Data, chunk.Data)
		if chunk.Last {
			message = a.part
			a.part, a.begun = call.Message{}, false
			return message, true, nil
		}
	}
}

// cut takes the next message out of a batch, whose prefixes add up.
func (a *assembler) cut(lenMax uint32) (message call.Message, ok bool, wrong *fault) {
	n := binary.BigEndian.Uint32(a.batch[1:])
	message.Object = a.batch[0] == 2
	if n > lenMax && !message.Object {
		return message, false, tooLong(n, lenMax)
	}
	end := wire.BatchPrefixLen + int(n)
	message.Compressed = a.batch[0] == 1
	message.Data = mem.BufferSlice{mem.SliceBuffer(a.batch[wire.BatchPrefixLen:end:end])}
	a.batch = a.batch[end:]
	return message, true, nil
}

// nextReply is next for a caller that takes a message of a batch, or a short one, as it is.
func (a *assembler) nextReply(s *session.Session, st *session.Stream, lenMax uint32, reply *call.Reply) (ok bool, wrong *fault) {
	if len(a.batch) == 0 && !a.begun {
		if short, is := s.TakeShort(st); is {
			if uint64(len(short)) > uint64(lenMax) {
				return false, tooLong(uint32(len(short)), lenMax)
			}
			reply.KeepShort(short)
			return true, nil
		}
		if !st.HasChunk() {
			return false, nil
		}
	}
	if len(a.batch) == 0 {
		s.TakeBatch(st, &a.batch)
	}
	if len(a.batch) > 0 && a.batch[0] == 0 {
		n := binary.BigEndian.Uint32(a.batch[1:])
		if n > lenMax {
			return false, tooLong(n, lenMax)
		}
		end := wire.BatchPrefixLen + int(n)
		reply.Borrow(a.batch[wire.BatchPrefixLen:end:end])
		a.batch = a.batch[end:]
		return true, nil
	}
	message, ok, wrong := a.next(s, st, lenMax)
	if ok {
		reply.Keep(message)
	}
	return ok, wrong
}

func tooLong(n, lenMax uint32) *fault {
	return &fault{codes.ResourceExhausted, fmt.Sprintf("a message of %d bytes came, where %d is the most", n, lenMax)}
}

// holds says whether something has come of another message.
func (a *assembler) holds() bool { return len(a.batch) > 0 || a.begun }

// drop frees what has come of a message that won't be completed. The caller holds the lock.
func (a *assembler) drop(s *session.Session) {
	s.TookSegmented(a.segmented)
	a.segmented = 0
	a.part.Data.Free()
	a.part, a.begun, a.batch = call.Message{}, false, nil
}
