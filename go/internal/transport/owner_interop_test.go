//go:build interop

package transport

import (
	"bytes"
	"context"
	"io"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/pool"
)

// ownedLen is the length of what an owner answers with.
const ownedLen = 300_000

func init() {
	roles["owner of a pool's memory"] = answerFromThePool
}

// answerFromThePool serves memory of a pool, which the detail names, until its input ends.
func answerFromThePool(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), testTime)
	defer cancel()
	member, err := pool.Join(ctx, os.Getenv(detailVariable))
	if err != nil {
		return err
	}
	room, buffer, err := member.Buffer(ownedLen)
	if err != nil {
		return err
	}
	copy(room, content(*message(ownedLen)))
	listener, err := Listen(address, Config{Pool: member})
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = listener.Close()
	}()
	ready()
	return listener.Serve(call.Service{Handler: func(c call.ServerCall) {
		if _, err := c.Recv(); err != nil {
			_ = c.Finish(nil, nil, status.Convert(err), nil)
			return
		}
		buffer.Ref()
		_ = c.Finish(nil, &call.Message{Data: mem.BufferSlice{buffer}}, status.New(codes.OK, ""), nil)
	}})
}

// heldOf makes calls until the answer lies in the owner's memory.
func heldOf(t *testing.T, client call.Client, member *pool.Pool) call.Message {
	t.Helper()
	for until := time.Now().Add(testTime); ; time.Sleep(time.Millisecond) {
		c, err := client.Start(within(t), &call.Start{Method: "/a.B/C", Message: message(10), Last: true})
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Recv()
		if err != nil {
			t.Fatal(c.Outcome().Status)
		}
		c.Outcome()
		if held, ok := member.Hold(got.Data[0].ReadOnlyData()); ok {
			held.Free()
			return got
		}
		got.Data.Free()
		if time.Now().After(until) {
			t.Fatal("no answer comes by ref")
		}
	}
}

// What a member reads stays there when its owner is killed, and can be lent on; when it is let go of, nothing is left.
func TestWhatIsReadStaysWhenItsOwnerIsKilled(t *testing.T) {
	counted(t)
	coordinator, _ := coordinated(t)
	one := memberAt(t, coordinator)
	address := newName()
	owner := play(t, "owner of a pool's memory", address, coordinator).awaitReady()
	client := dialed(t, address, Config{Pool: one})
	got := heldOf(t, client, one)
	want := content(*message(ownedLen))
	owner.kill()
	<-client.Done()
	// The kernel tells of the end; the coordinator tells others.
	data := got.Data[0].ReadOnlyData()
	for range 20 {
		if !bytes.Equal(data, want) {
			t.Fatal("the bytes have changed with their owner's end")
		}
		time.Sleep(5 * time.Millisecond)
	}
	// A call that passes it on gets no ref that others could not take, and the same bytes.
	echoing := pairOf(t, one, memberAt(t, coordinator))
	for range 3 {
		got.Data.Ref()
		c, err := echoing.Start(within(t), &call.Start{Method: "/a.B/C", Message: &call.Message{Data: got.Data}, Last: true})
		if err != nil {
			t.Fatal(err)
		}
		back, err := c.Recv()
		if err != nil {
			t.Fatal(c.Outcome().Status)
		}
		if !bytes.Equal(content(back), want) {
			t.Error("other bytes came back")
		}
		c.Outcome()
	}
	got.Data.Free()
}
