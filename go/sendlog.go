package tollfree

import (
	"bytes"

	"google.golang.org/grpc/mem"

	"github.com/tollfree/tollfree/go/internal/call"
)

// A sendOp is a message, or the end of them.
type sendOp struct {
	message *call.Message // nil: what follows, or the end alone
	object  *outgoingObject
	short   []byte // a message of buffers.SmallMax bytes at most, which nobody frees; nil: none
	last    bool
}

// to is the message as the server of an attempt takes it; nil: the end alone. The message has op's reference to the data then. An error is a status.
func (op sendOp) to(a *attempt) (*call.Message, error) {
	switch {
	case op.object != nil:
		message, err := op.object.to(a.session)
		if err == nil {
			op.free()
		}
		return message, err
	case op.short != nil:
		return &call.Message{Data: mem.BufferSlice{mem.SliceBuffer(op.short)}}, nil
	}
	return op.message, nil
}

// send has the call of an attempt send the message, or say that none follows. An error that is no status says that the call has ended.
func (op sendOp) send(a *attempt) error {
	if op.short != nil {
		if sender, is := a.call.(call.ShortClientSender); is {
			return sender.SendShort(op.short, op.last)
		}
	}
	message, err := op.to(a)
	switch {
	case err != nil:
		op.free()
		return err
	case message == nil:
		return a.call.CloseSend()
	}
	return a.call.Send(*message, op.last)
}

// ref is the same op with a reference of its own to the data.
func (op sendOp) ref() sendOp {
	if op.object != nil && op.object.held != nil {
		op.object.held.Ref()
	}
	if op.message == nil {
		return op
	}
	// All else is the garbage collector's.
	op.message.Data.Ref()
	return sendOp{message: &call.Message{Data: op.message.Data, Compressed: op.message.Compressed}, last: op.last}
}

func (op sendOp) free() {
	if op.object != nil && op.object.held != nil {
		op.object.held.Free()
	}
	if op.message != nil {
		op.message.Data.Free()
	}
}

// A sendLog keeps what a call has sent, to be sent again in another attempt, until the call is committed: then no attempt
// follows.
//
// Invariants: each op has a reference to its data, which commit frees; a committed log keeps nothing, but for an op that
// keepOnce was given. The call's lock guards all.
type sendLog struct {
	ops       []sendOp
	bytes     int
	committed bool
	// room is for short messages. What lies in it stays as it is.
	room []byte
}

// copied is a short message that is the log's own, and never nil.
func (l *sendLog) copied(short []byte) []byte {
	const roomLen = 4096
	if l.room == nil || cap(l.room)-len(l.room) < len(short) {
		l.room = make([]byte, 0, roomLen)
	}
	at := len(l.room)
	l.room = append(l.room, short...)
	return l.room[at:len(l.room):len(l.room)]
}

// keep keeps op with a reference of its own, and is true then. A log that gets longer than most bytes is committed instead.
func (l *sendLog) keep(op sendOp, size, most int) bool {
	if l.committed {
		return false
	}
	if l.bytes += size; l.bytes > most {
		l.commit()
		return false
	}
	if op.short != nil {
		op.short = l.copied(op.short)
	}
	l.ops = append(l.ops, op.ref())
	return true
}

// keepOnce takes an op that is too long to be kept, for the first attempt; commit frees it.
func (l *sendLog) keepOnce(op sendOp) {
	op.short = bytes.Clone(op.short)
	l.ops = []sendOp{op}
}

// first is what an attempt begins with, and rest what follows: with references of their own.
func (l *sendLog) first() (op sendOp) {
	if len(l.ops) > 0 {
		op = l.ops[0].ref()
	}
	return op
}

func (l *sendLog) rest() (ops []sendOp) {
	if len(l.ops) < 2 {
		return nil
	}
	ops = make([]sendOp, 0, len(l.ops)-1)
	for _, op := range l.ops[1:] {
		ops = append(ops, op.ref())
	}
	return ops
}

func (l *sendLog) commit() {
	l.committed = true
	for _, op := range l.ops {
		op.free()
	}
	l.ops, l.room = nil, nil
}
