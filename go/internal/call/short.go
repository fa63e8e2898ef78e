package call

// A ShortSender is a ServerCall that takes messages of buffers.SmallMax bytes at most as they are. SendShort is Send otherwise; the message
// remains the caller's.
type ShortSender interface {
	SendShort(message []byte) error
}

// A ShortClientSender is the same of a ClientCall.
type ShortClientSender interface {
	SendShort(message []byte, last bool) error
}

// A ReplyReceiver is a call that gives messages by less than a Message. ReceiveNext is Recv otherwise: the message is reply's until the next
// call of it.
type ReplyReceiver interface {
	ReceiveNext(reply *Reply) error
}
