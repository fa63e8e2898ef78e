//go:build interop

package transport

import (
	"bytes"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/pool"
	"github.com/tollfree/tollfree/go/internal/reference"
	"github.com/tollfree/tollfree/go/internal/session"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// coordinated is where the reference coordinates a pool until stop is called.
func coordinated(t *testing.T) (coordinator string, stop func()) {
	t.Helper()
	coordinator = newName()
	return coordinator, reference.Serve(t, newName(), "--pool", coordinator)
}

// memberAt is a member of a pool, which has to get out of it at the test's end.
func memberAt(t *testing.T, coordinator string) *pool.Pool {
	t.Helper()
	for until := time.Now().Add(testTime); ; time.Sleep(5 * time.Millisecond) {
		member, err := pool.Join(within(t), coordinator)
		if err == nil {
			t.Cleanup(func() {
				select {
				case <-member.Leave():
				case <-time.After(testTime):
					t.Error("a member does not get out of the pool")
				}
			})
			return member
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
}

// members are two members of a pool that the reference coordinates until stop is called.
func members(t *testing.T) (one, two *pool.Pool, stop func()) {
	t.Helper()
	coordinator, stop := coordinated(t)
	return memberAt(t, coordinator), memberAt(t, coordinator), stop
}

// pairOf is a client that is one member, of a server that is the other, and echoes.
func pairOf(t *testing.T, one, two *pool.Pool) call.Client {
	t.Helper()
	listener, err := Listen(newName(), Config{Pool: two})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := listener.Serve(call.Service{Handler: echo}); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { _ = listener.Close() })
	return dialed(t, listener.Address(), Config{Pool: one})
}

// lent is memory of a member's, full of a pattern, and a ref to it.
func lent(t *testing.T, member *pool.Pool, n int) (data mem.Buffer, ref pool.Ref, kept mem.Buffer) {
	t.Helper()
	room, buffer, err := member.Buffer(n)
	if err != nil {
		t.Fatal(err)
	}
	copy(room, content(*message(n)))
	ref, kept, ok := member.Lend(room)
	if !ok {
		t.Fatal("it was not lent")
	}
	return buffer, ref, kept
}

// A client that lies about refs ends its own calls.
func TestLiesAboutRefsEndTheirCalls(t *testing.T) {
	counted(t)
	one, two, _ := members(t)
	client := pairOf(t, one, two)
	buffer, ref, kept := lent(t, one, 10_000)
	defer buffer.Free()
	defer kept.Free()
	// A reader that does not map the memory yet may have to ask for the bytes.
	for until := time.Now().Add(testTime); ; time.Sleep(time.Millisecond) {
		taken, err := two.Take([]pool.Ref{ref})
		if err == nil {
			taken[0].Free()
			break
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
	carried := func(n uint32, inline int, refs ...pool.Ref) []byte {
		entries := make([]wire.SegmentEntry, len(refs))
		for i := range refs {
			entries[i].Ref = refs[i].Encode()
		}
		return wire.AppendSegmented(nil, n, make([]byte, inline), entries)
	}
	changed := func(change func(*pool.Ref)) pool.Ref {
		other := ref
		change(&other)
		return other
	}
	for name, lie := range map[string]struct {
		carried []byte
		code    codes.Code
	}{
		"the truth":           {carried(10_005, 5, ref), codes.OK},
		"no head":             {make([]byte, 7), codes.Internal},
		"no refs":             {carried(5, 5), codes.Internal},
		"another length":      {carried(10_004, 5, ref), codes.Internal},
		"a tag":               {carried(10_000, 0, changed(func(r *pool.Ref) { r.Tag ^= 1 })), codes.PermissionDenied},
		"another pool":        {carried(10_000, 0, changed(func(r *pool.Ref) { r.Pool[0] ^= 1 })), codes.PermissionDenied},
		"a generation":        {carried(10_000, 0, changed(func(r *pool.Ref) { r.Generation++ })), codes.FailedPrecondition},
		"too long":            {carried(5<<20, 0, changed(func(r *pool.Ref) { r.Len = 5 << 20 })), codes.ResourceExhausted},
		"a member that isn't": {carried(10_000, 0, changed(func(r *pool.Ref) { r.Member++ })), codes.Unavailable},
	} {
		c, err := client.Start(within(t), &call.Start{Method: "/a.B/C"})
		if err != nil {
			t.Fatal(err)
		}
		own := c.(*clientCall)
		segmented := mem.BufferSlice{mem.SliceBuffer(make([]byte, 3))}
		own.link.mu.Lock()
		own.link.session.Send(&own.Stream, session.Message{Data: mem.BufferSlice{mem.SliceBuffer(lie.carried)}, SegmentedMessage: segmented}, true)
		own.link.unlock()
		for {
			got, err := c.Recv()
			if err == io.EOF {
				break
			}
			got.Data.Free()
		}
		if got := c.Outcome().Status; got.Code() != lie.code {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Without a coordinator nobody maps anything new: bytes are asked for, and calls go on.
func TestBytesAreAskedForWithoutACoordinator(t *testing.T) {
	counted(t)
	one, two, stop := members(t)
	client := pairOf(t, one, two)
	buffer, _, kept := lent(t, one, 300_000)
	kept.Free()
	want := content(*message(300_000))
	stop()
	time.Sleep(20 * time.Millisecond)
	for range 3 {
		buffer.Ref()
		c, err := client.Start(within(t), &call.Start{Method: "/a.B/C", Message: &call.Message{Data: mem.BufferSlice{buffer}}, Last: true})
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Recv()
		if err != nil {
			t.Fatal(c.Outcome().Status)
		}
		if !bytes.Equal(content(got), want) {
			t.Error("other bytes came")
		}
		c.Outcome()
	}
	buffer.Free()
	if lent, _ := one.Counts(); lent != 4 {
		t.Errorf("%d refs were passed on", lent)
	}
	if _, taken := two.Counts(); taken != 0 {
		t.Errorf("%d refs were taken hold of", taken)
	}
}

// That a segmented message was taken rings nobody, and its sender learns of it all the same, while nothing else is said.
func TestATakenSegmentedIsLetGoOf(t *testing.T) {
	counted(t)
	one, two, _ := members(t)
	client := pairOf(t, one, two)
	buffer, _, kept := lent(t, one, 10_000)
	kept.Free()
	c, err := client.Start(within(t), &call.Start{Method: "/a.B/C", Message: &call.Message{Data: mem.BufferSlice{buffer}}})
	if err != nil {
		t.Fatal(err)
	}
	link := c.(*clientCall).link
	keeps := func() bool {
		link.mu.Lock()
		defer link.mu.Unlock()
		return link.session.KeepsSegmentedMessages()
	}
	for until := time.Now().Add(testTime); keeps(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("it is kept")
		}
	}
	c.Cancel(codes.Canceled)
	c.Outcome()
}
