package tollfree

import (
	"context"
	"testing"

	pb "github.com/tollfree/tollfree/go/internal/testproto"
)

const (
	// messagesOwn is what the messages and stubs of a call with a field of bytes take at both ends, whatever carries it: request and reply
	// where they come, the reply where it is made, the bytes of both, and the stub's call options.
	messagesOwn = 6
	// oursMax is what both ends may take besides: the call with its context, and what decodes its request.
	oursMax = 2
)

func TestAUnaryCallAllocatesLittle(t *testing.T) {
	h := newHarness(t, shmCarrier)
	h.newServer(0, &testService{}, Inline(pb.Test_Unary_FullMethodName))
	client := pb.NewTestClient(h.newConn())
	request := &pb.Request{Data: make([]byte, 60)}
	best := allocations(func() {
		if _, err := client.Unary(context.Background(), request); err != nil {
			t.Fatal(err)
		}
	})
	if best > messagesOwn+oursMax {
		t.Errorf("%.1f allocations a call, where %d are the messages' own and %d ours", best, messagesOwn, oursMax)
	}
}
