package call

import (
	"context"

	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// A UnaryClient is a Client that makes whole calls of one message each way. It is for callers that need nothing of a call but its
// message and its outcome, and costs less than Start.
type UnaryClient interface {
	// Unary makes a call and waits for its end, at the latest until ctx is done. Request takes the place of start's Message and
	// Last. start's deadline is ctx's.
	//
	// Errors: a status, where the call has not begun.
	Unary(ctx context.Context, start *Start, request *Message, short []byte, reply *Reply) (Outcome, error)
	// TakesObjects says whether the server takes flat messages of a method, and the fingerprint of the method's types there.
	TakesObjects(method string) (fingerprint uint64, ok bool)
}

// A Reply is room for the one message of a call that comes.
type Reply struct {
	// Came says that a message has come, TooMany that another one followed, and that the call was ended for it.
	Came, TooMany bool
	// Short is the message where it is short and not compressed, else Message is. What it had before is overwritten.
	Short   []byte
	IsShort bool
	// Message is the message otherwise, also where it is a flat message.
	Message Message
	// Header is the answer's, where Message is compressed.
	Header   metadata.MD
	room     [1]mem.Buffer
	borrowed []byte
}

// Keep has the reply be message, whose data may lie in room that somebody else uses again.
func (r *Reply) Keep(message Message) {
	r.Came, r.Message = true, message
	if len(message.Data) == 1 {
		r.room[0] = message.Data[0]
		r.Message.Data = r.room[:1:1]
	}
}

// KeepShort has the reply be a copy of a short message.
func (r *Reply) KeepShort(message []byte) {
	r.Came, r.IsShort, r.Short = true, true, append(r.Short[:0], message...)
}

// Borrow has the reply be a short message that stays where it is until the next one is received.
func (r *Reply) Borrow(message []byte) {
	r.Came, r.IsShort, r.borrowed = true, true, message
}

// Bytes is a short message.
func (r *Reply) Bytes() []byte {
	if r.borrowed != nil {
		return r.borrowed
	}
	return r.Short
}

// Clear makes r room for another message, and frees one that nobody has taken.
func (r *Reply) Clear() {
	r.Message.Data.Free()
	*r = Reply{Short: r.Short[:0]}
}

// A UnaryCall is a ServerCall that takes one message and gives one, at less cost than by Recv and Finish.
type UnaryCall interface {
	ServerCall
	// SessionContext is what the call's context descends from.
	SessionContext() context.Context
	// RecvUnary waits for the call's one message, and for the client to have said that it is the only one. lent becomes the call's context,
	// and descends from parent; of a call with a deadline, which has a context of its own, lends is false.
	//
	// Errors: a status, also where another message came or none.
	RecvUnary(reply *Reply, lent *Context, parent context.Context) (lends bool, err error)
	// FinishUnary is Finish, with a message that is nil or short's. The call may not be used any more.
	FinishUnary(header metadata.MD, message *Message, short []byte, outcome *status.Status, trailer metadata.MD) error
}
