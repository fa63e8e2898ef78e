package session

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/grpc/mem"

	"github.com/tollfree/tollfree/go/internal/ring"
	"github.com/tollfree/tollfree/go/internal/wire"
)

const ringLen = 4096

type noAreas struct{}

func (noAreas) Map(uint32, uint32) (bool, error)  { return false, nil }
func (noAreas) Unmap(uint32)                      {}
func (noAreas) Copy([]byte, wire.AreaRange) bool  { return false }
func (noAreas) Holds(uint32, wire.AreaRange) bool { return false }
func (noAreas) Answered(uint32, bool)             {}

// an end is a session, and its ends of two rings in private memory.
type end struct {
	*Session
	*ring.Sender
	receiver *ring.Receiver
}

func (e *end) BeginArea(int, int) (record, chunk ring.Place, at wire.AreaRange, ok bool) {
	return record, chunk, at, false
}

func limits() Limits {
	return Limits{StreamWindow: 2048, SessionWindow: 8192, StreamCount: 4, MetadataLenMax: 300}
}

func pair(t testing.TB) (client, server *end) {
	one, two := make([]byte, wire.RingOff+ringLen), make([]byte, wire.RingOff+ringLen)
	stream := func() *Stream { return new(Stream) }
	client = &end{New(wire.Client, limits(), limits(), true, noAreas{}, stream), ring.NewSender(one, two, ringLen), ring.NewReceiver(one, two, ringLen)}
	server = &end{New(wire.Server, limits(), limits(), true, noAreas{}, stream), ring.NewSender(two, one, ringLen), ring.NewReceiver(two, one, ringLen)}
	return client, server
}

// carry flushes, publishes, and has the other end receive.
func (e *end) carry(t testing.TB, to *end) (records int) {
	e.Session.Flush(e)
	e.Publish()
	for {
		record, ok, err := to.receiver.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		if _, err := to.Receive(record); err != nil {
			t.Fatal(err)
		}
		to.receiver.Advance()
		records++
	}
	to.receiver.Release()
	return records
}

func data(n int) mem.BufferSlice {
	bytes := make([]byte, n)
	for i := range bytes {
		bytes[i] = byte(i)
	}
	// In two segments, and one of no bytes.
	return mem.BufferSlice{mem.SliceBuffer(bytes[:n/3]), mem.SliceBuffer(nil), mem.SliceBuffer(bytes[n/3:])}
}

// messages takes what has come, as whole messages.
func (e *end) messages(t testing.TB, st *Stream, begun *[]byte) (lengths []int) {
	check := func(message []byte) {
		if want := data(len(message)).Materialize(); !bytes.Equal(message, want) {
			t.Fatalf("a message of %d bytes came damaged", len(message))
		}
		lengths = append(lengths, len(message))
	}
	for chunk, ok := e.Take(st); ok; chunk, ok = e.Take(st) {
		bytes := chunk.Data.ReadOnlyData()
		if chunk.Batch > 0 {
			for ; chunk.Batch > 0; chunk.Batch-- {
				n := int(bytes[3])<<8 | int(bytes[4])
				check(bytes[5 : 5+n])
				bytes = bytes[5+n:]
			}
			continue
		}
		*begun = append(*begun, bytes...)
		if chunk.Last {
			check(*begun)
			*begun = nil
		}
	}
	return lengths
}

func TestAUnaryCallIsAFrameEachWay(t *testing.T) {
	client, server := pair(t)
	st := new(Stream)
	for call := range 3 {
		*st = Stream{}
		if !client.Open(client, st, &Opening{Path: "/a.B/C", DeadlineNS: 7, Headers: []byte{20, 1, 0, 'x'}}, &Message{Data: data(100)}, true) {
			t.Fatal("not opened")
		}
		if n := client.carry(t, server); n != 1 {
			t.Fatalf("%d records for a request", n)
		}
		got := server.NextOpened()
		if got.Path() != "/a.B/C" || got.DeadlineNS() != 7 || !got.HalfClosed() || len(got.headers) != 4 {
			t.Fatalf("call %d came as %+v", call, got)
		}
		var begun []byte
		if lengths := server.messages(t, got, &begun); fmt.Sprint(lengths) != "[100]" {
			t.Fatalf("messages of %v bytes", lengths)
		}
		server.SendHeaders(got, nil)
		server.Send(got, Message{Data: data(50)}, false)
		server.Finish(got, 0, nil)
		if n := server.carry(t, client); n != 1 {
			t.Fatalf("%d records for an answer", n)
		}
		if end := st.End(); end.Kind != EndTrailers || end.Code != 0 || got.End().Kind != EndSaid {
			t.Fatalf("%+v, %+v", end, got.End())
		}
		if lengths := client.messages(t, st, &begun); fmt.Sprint(lengths) != "[50]" {
			t.Fatalf("messages of %v bytes", lengths)
		}
		client.Forget(st)
		server.Forget(got)
	}
	if client.Live()+server.Live()+client.Remembered()+server.Remembered() != 0 {
		t.Error("calls are left")
	}
}

// TestEverythingArrives sends messages of all lengths through windows and rings that are too small for them, on several
// streams, both ways at once.
// sendEither sends a message: as a short one, whose bytes change afterwards, or as others.
func sendEither(random *rand.Rand, e *end, st *Stream, n int) {
	if n > 1024 || random.IntN(3) == 0 {
		e.Send(st, Message{Data: data(n)}, false)
		return
	}
	short := data(n).Materialize()
	e.SendShort(st, short, false)
	clear(short)
}

func TestEverythingArrives(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 1))
		client, server := pair(t)
		type flow struct {
			client, server         *Stream
			toServer, toClient     []int
			gotServer, gotClient   []int
			begunServer, begunBack []byte
			sent, answered         int
		}
		lengths := func() (list []int) {
			for range random.IntN(40) {
				list = append(list, []int{0, 1, 63, 200, 900, 1900, 3000, 20000}[random.IntN(8)])
			}
			return list
		}
		var flows []*flow
		for range 4 {
			f := &flow{client: new(Stream), toServer: lengths(), toClient: lengths()}
			for !client.Open(client, f.client, &Opening{Path: "/a.B/" + strings.Repeat("C", random.IntN(3)+1)}, nil, false) {
				client.carry(t, server)
			}
			client.carry(t, server)
			f.server = server.NextOpened()
			server.SendHeaders(f.server, nil)
			flows = append(flows, f)
		}
		for turn := 0; ; turn++ {
			if turn > 20000 {
				t.Fatalf("seed %d: it does not come to an end", seed)
			}
			done := true
			for _, f := range flows {
				for f.sent < len(f.toServer) && f.client.MayAdd() {
					sendEither(random, client, f.client, f.toServer[f.sent])
					if f.sent++; f.sent == len(f.toServer) {
						client.HalfClose(f.client)
					}
				}
				for f.answered < len(f.toClient) && f.server.MayAdd() {
					sendEither(random, server, f.server, f.toClient[f.answered])
					f.answered++
				}
				if random.IntN(3) == 0 {
					f.gotServer = append(f.gotServer, server.messages(t, f.server, &f.begunServer)...)
					f.gotClient = append(f.gotClient, client.messages(t, f.client, &f.begunBack)...)
				}
				done = done && len(f.gotServer) == len(f.toServer) && len(f.gotClient) == len(f.toClient)
			}
			client.carry(t, server)
			server.carry(t, client)
			if done {
				break
			}
		}
		for _, f := range flows {
			if fmt.Sprint(f.gotServer) != fmt.Sprint(f.toServer) || fmt.Sprint(f.gotClient) != fmt.Sprint(f.toClient) {
				t.Fatalf("seed %d: %v became %v, %v became %v", seed, f.toServer, f.gotServer, f.toClient, f.gotClient)
			}
			if f.client.Unsent() != 0 || f.server.Unsent() != 0 {
				t.Fatalf("seed %d: %d and %d bytes wait that have been sent", seed, f.client.Unsent(), f.server.Unsent())
			}
		}
	}
}

func open(t *testing.T, client, server *end) (st, got *Stream) {
	t.Helper()
	st = new(Stream)
	if !client.Open(client, st, &Opening{Path: "/a.B/C"}, nil, false) {
		t.Fatal("not opened")
	}
	client.carry(t, server)
	if got = server.NextOpened(); got == nil {
		t.Fatal("nothing came")
	}
	return st, got
}

func TestShortMessagesAtHandGoTogether(t *testing.T) {
	client, server := pair(t)
	st, got := open(t, client, server)
	for range 20 {
		client.Send(st, Message{Data: data(30)}, false)
	}
	if n := client.carry(t, server); n != 1 {
		t.Errorf("%d records for 20 short messages", n)
	}
	var begun []byte
	if n := len(server.messages(t, got, &begun)); n != 20 {
		t.Errorf("%d messages came", n)
	}
}

func TestACancelEndsBothSides(t *testing.T) {
	client, server := pair(t)
	st, got := open(t, client, server)
	client.Send(st, Message{Data: data(5000)}, true)
	client.carry(t, server)
	client.Cancel(st, 4)
	client.carry(t, server)
	if end := got.End(); end.Kind != EndCancelled || end.Code != 4 || got.HasChunk() {
		t.Errorf("the server has %+v", end)
	}
	if st.End().Kind != EndDropped || !st.Sent() {
		t.Errorf("the client has %+v", st.End())
	}
	// What the server has sent meanwhile is dropped, and costs nothing in the end.
	before := client.recvCredit + client.owed
	server.SendHeaders(got, nil)
	server.carry(t, client)
	if client.recvCredit+client.owed != before {
		t.Error("credit was lost")
	}
}

// What a client has not read when it cancels stays readable where it wants that; the session's credit comes back at once either
// way.
func TestAClientReadsWhatCameBeforeItsCancel(t *testing.T) {
	for name, keep := range map[string]bool{"readable": true, "dropped": false} {
		t.Run(name, func(t *testing.T) {
			client, server := pair(t)
			st, got := open(t, client, server)
			server.SendHeaders(got, nil)
			for range 3 {
				server.Send(got, Message{Data: data(500)}, false)
				server.carry(t, client)
			}
			want := 0
			if keep {
				want = 3
				client.CancelReadable(st, 4)
			} else {
				client.Cancel(st, 4)
			}
			if credit := client.recvCredit + client.owed; credit != limits().SessionWindow {
				t.Errorf("the session's credit is %d", credit)
			}
			var begun []byte
			if n := len(client.messages(t, st, &begun)); n != want {
				t.Errorf("%d messages can be read, want %d", n, want)
			}
			if credit := client.recvCredit + client.owed; credit != limits().SessionWindow {
				t.Errorf("after reading, the session's credit is %d", credit)
			}
			client.carry(t, server)
			if end := got.End(); end.Kind != EndCancelled || end.Code != 4 {
				t.Errorf("the server has %+v", end)
			}
		})
	}
}

func TestAServerEndsWithinAMessage(t *testing.T) {
	client, server := pair(t)
	st, got := open(t, client, server)
	server.SendHeaders(got, nil)
	server.Send(got, Message{Data: data(9000)}, false)
	server.carry(t, client)
	server.Abort(got, 13, nil)
	server.carry(t, client)
	if end := st.End(); end.Kind != EndTrailers || end.Code != 13 {
		t.Errorf("the client has %+v", end)
	}
}

func TestDrainRefusesWhatCrossesIt(t *testing.T) {
	client, server := pair(t)
	first, taken := open(t, client, server)
	server.Drain()
	second := new(Stream)
	client.Open(client, second, &Opening{Path: "/a.B/D"}, &Message{Data: data(10)}, true)
	client.carry(t, server)
	if server.NextOpened() != nil {
		t.Error("a call behind DRAIN was taken")
	}
	server.carry(t, client)
	if end := second.End(); !end.Refused || end.Code != 14 || first.End().Kind != NotEnded || !client.Draining() {
		t.Errorf("%+v", end)
	}
	server.Finish(taken, 0, nil)
	server.carry(t, client)
	if first.End().Kind != EndTrailers || server.Live() != 0 || client.Live() != 0 {
		t.Errorf("%+v", first.End())
	}
}

func TestCallsAtOnceAreBounded(t *testing.T) {
	client, server := pair(t)
	var calls []*Stream
	for range 4 {
		st, _ := open(t, client, server)
		calls = append(calls, st)
	}
	if client.Open(client, new(Stream), &Opening{Path: "/a.B/C"}, nil, false) {
		t.Fatal("a fifth call was opened")
	}
	// Calls that a client cancels are remembered until their handlers let go.
	for range 4 {
		for _, st := range calls {
			client.Cancel(st, 1)
			client.Forget(st)
		}
		calls = nil
		for range 4 {
			st := new(Stream)
			if client.Open(client, st, &Opening{Path: "/a.B/C"}, nil, false) {
				calls = append(calls, st)
			}
			client.carry(t, server)
			server.carry(t, client)
		}
	}
	if n := server.Remembered(); n > 8 {
		t.Errorf("the server remembers %d streams", n)
	}
	for _, st := range calls {
		if !st.End().Refused {
			t.Errorf("a call beyond what a server remembers ended as %+v", st.End())
		}
	}
}

func TestACloseTellsWhy(t *testing.T) {
	client, server := pair(t)
	st, _ := open(t, client, server)
	server.Session.Close(server, errors.New("gone\nfishing"))
	server.carry(t, client)
	var closed *Closed
	if !errors.As(client.Closed(), &closed) || closed.Said != "gone?fishing" || st.End().Kind != EndSession {
		t.Errorf("%v, %+v", client.Closed(), st.End())
	}
}

// TestAFrameThatBothEndsACallAndLiesEndsIt has a server's last frame carry a block that is none.
func TestAFrameThatBothEndsACallAndLiesEndsIt(t *testing.T) {
	client, server := pair(t)
	st, _ := open(t, client, server)
	bad := append([]byte{wire.Trailers, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 1)
	_, err := client.Receive(ring.RecordOf(bad))
	if err == nil {
		t.Fatal("no violation")
	}
	client.Session.Close(client, err)
	if st.End().Kind != EndSession || client.Live() != 0 {
		t.Errorf("the call ended as %+v, and %d are live", st.End(), client.Live())
	}
}
