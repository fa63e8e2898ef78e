package tollfree_test

import (
	"context"
	"testing"

	tollfree "github.com/tollfree/tollfree/go"
	pb "github.com/tollfree/tollfree/go/internal/objectproto"
)

// objectOwn is what a call with objects takes at both ends: of each message the copy that is read, of the reply the slice and the buffer by which
// it is sent, the call at the server, and what carries copies of more than a few bytes.
const objectOwn = 7

func TestACallWithObjectsAllocatesItsMessages(t *testing.T) {
	h := tollfree.NewSharedMemory(t)
	server := h.Prepare(tollfree.Inline(pb.Freight_Unary_FullMethodName))
	registerFreight(server)
	h.Start(server)
	client, in := pb.NewFreightObjectsClient(h.Connect()), cargo(t, 64, "text")
	best := tollfree.Allocations(func() {
		if _, err := client.Unary(context.Background(), in); err != nil {
			t.Fatal(err)
		}
	})
	if best > objectOwn {
		t.Errorf("%.1f allocations a call, where %d are the messages' own", best, objectOwn)
	}
}
