package session

import (
	"bytes"
	"errors"
	"testing"

	"google.golang.org/grpc/mem"

	"github.com/tollfree/tollfree/go/internal/ring"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// kept is memory that a segmented message names; it counts how often it was let go of.
type kept struct{ freed int }

func (k *kept) Get(n int) *[]byte { b := make([]byte, n); return &b }
func (k *kept) Put(*[]byte)       { k.freed++ }

func (k *kept) segmented(n int) Message {
	bytes := data(n).Materialize()
	return Message{Data: data(80), SegmentedMessage: mem.BufferSlice{mem.NewBuffer(&bytes, k)}}
}

// segmentedCall is a call whose request is a segmented message, as it has come.
func segmentedCall(t *testing.T, refs *kept, n int) (client, server *end, at *Stream, st *Stream) {
	t.Helper()
	client, server = pair(t)
	message := refs.segmented(n)
	st = new(Stream)
	if !client.Open(client, st, &Opening{Path: "/a.B/C"}, &message, true) {
		t.Fatal("not opened")
	}
	client.carry(t, server)
	return client, server, server.NextOpened(), st
}

func TestASegmentedIsKeptUntilItIsTaken(t *testing.T) {
	var refs kept
	client, server, at, _ := segmentedCall(t, &refs, 5000)
	chunk, ok := server.Take(at)
	if !ok || chunk.SegmentedMessage != 1 || chunk.Data.Len() != 80 {
		t.Fatalf("%+v, %v", chunk, ok)
	}
	server.carry(t, client)
	if refs.freed != 0 {
		t.Fatal("it was let go of before it was taken")
	}
	server.TookSegmented(chunk.SegmentedMessage)
	server.TookSegmented(chunk.SegmentedMessage)
	if n := server.carry(t, client); n != 1 || refs.freed != 1 {
		t.Fatalf("%d records, let go of %d times", n, refs.freed)
	}
}

func TestASegmentedThatNobodyReadsIsTaken(t *testing.T) {
	var refs kept
	client, server, at, st := segmentedCall(t, &refs, 5000)
	// One lies unread when its call is cancelled, and one comes after that.
	second, third := new(Stream), refs.segmented(5000)
	client.Open(client, second, &Opening{Path: "/a.B/C"}, nil, false)
	client.carry(t, server)
	server.Cancel(server.NextOpened(), 13)
	client.Send(second, third, false)
	client.Cancel(st, 1)
	client.carry(t, server)
	server.Forget(at)
	server.carry(t, client)
	if refs.freed != 2 {
		t.Fatalf("%d of two segmented messages were let go of", refs.freed)
	}
	if len(server.segmented.untaken)+len(client.segmented.kept) != 0 {
		t.Error("segmented messages are remembered")
	}
}

func TestSegmentedMessagesEndWithTheSession(t *testing.T) {
	var refs kept
	client, _, _, st := segmentedCall(t, &refs, 5000)
	client.Send(st, refs.segmented(10_000), false)
	client.End(errors.New("the end"))
	if refs.freed != 2 {
		t.Errorf("%d of two segmented messages were let go of", refs.freed)
	}
}

func TestBytesOfASegmentedAreGivenWhereTheyAreAskedFor(t *testing.T) {
	var refs kept
	client, server, at, _ := segmentedCall(t, &refs, 9000)
	chunk, _ := server.Take(at)
	server.WantSegmented(chunk.SegmentedMessage, 9000, nil)
	for i := 0; ; i++ {
		server.carry(t, client)
		client.carry(t, server)
		if got, done := server.SegmentedBytes(chunk.SegmentedMessage); done {
			if !bytes.Equal(got, data(9000).Materialize()) {
				t.Errorf("%d other bytes came", len(got))
			}
			break
		}
		if i > 100 {
			t.Fatal("they never come")
		}
	}
	server.TookSegmented(chunk.SegmentedMessage)
	server.carry(t, client)
	client.carry(t, server)
	if refs.freed != 1 || client.segmented.answering() || len(server.segmented.asked) != 0 {
		t.Error("something is left")
	}
}

func TestAnAnswerEndsWhereNobodyWantsItAnyMore(t *testing.T) {
	var refs kept
	client, server, at, _ := segmentedCall(t, &refs, 100_000)
	chunk, _ := server.Take(at)
	server.WantSegmented(chunk.SegmentedMessage, 100_000, nil)
	server.carry(t, client)
	// Not all of it has room.
	client.carry(t, server)
	if !client.segmented.answering() {
		t.Fatal("the ring takes all of it: the test shows nothing")
	}
	server.TookSegmented(chunk.SegmentedMessage)
	server.carry(t, client)
	client.carry(t, server)
	if refs.freed != 1 || client.segmented.answering() || len(server.segmented.asked) != 0 {
		t.Errorf("let go of %d times, answering %v, %d asked for", refs.freed, client.segmented.answering(), len(server.segmented.asked))
	}
}

func TestAnotherNumberOfBytesIsRefused(t *testing.T) {
	var refs kept
	client, server, at, _ := segmentedCall(t, &refs, 9000)
	chunk, _ := server.Take(at)
	server.WantSegmented(chunk.SegmentedMessage, 8999, nil)
	server.carry(t, client)
	client.carry(t, server)
	if got, done := server.SegmentedBytes(chunk.SegmentedMessage); got != nil || !done {
		t.Errorf("%d bytes, %v", len(got), done)
	}
}

// Without a pool a peer's segmented messages are violations, and messages are none.
func TestWithoutAPoolThereAreNoSegmentedMessages(t *testing.T) {
	server := New(wire.Server, limits(), limits(), false, noAreas{}, func() *Stream { return new(Stream) })
	if server.MaySendSegmented() {
		t.Error("it may send segmented messages")
	}
	for _, head := range []wire.Head{
		{Events: wire.Headers | wire.Message, Flags: wire.First | wire.Last | wire.Segmented | wire.NamesMethod, Stream: 1, HeadersLen: 8},
		{Events: wire.Control, Code: wire.SegmentedTaken, ChunkLen: 1},
		{Events: wire.Control, Code: wire.SegmentedBytes},
	} {
		encoded := head.Encode()
		record := append(encoded[:], []byte("\x06\x00/a.B/C")[:head.HeadersLen]...)
		var found *Violation
		if _, err := server.Receive(ring.RecordOf(record)); !errors.As(err, &found) {
			t.Errorf("%+v: %v", head, err)
		}
	}
}

func TestThatASegmentedIsTakenWakesNobody(t *testing.T) {
	var refs kept
	client, server, at, _ := segmentedCall(t, &refs, 5000)
	if !client.TookLoud() || client.TookLoud() {
		t.Error("an opening wakes the peer once")
	}
	chunk, _ := server.Take(at)
	server.carry(t, client)
	server.TookLoud()
	server.TookSegmented(chunk.SegmentedMessage)
	if n := server.carry(t, client); n != 1 || server.TookLoud() {
		t.Errorf("%d records, and the peer is woken", n)
	}
	server.Finish(at, 0, nil)
	if server.carry(t, client); !server.TookLoud() {
		t.Error("an answer wakes nobody")
	}
}
