package tollfree_test

import (
	"context"
	"testing"

	tollfree "github.com/tollfree/tollfree/go"
	direct "github.com/tollfree/tollfree/go/internal/directproto"
)

// directOwn is what the messages of a call with a field of bytes take at both ends: request and reply where they come, the reply where
// it is made, and the bytes of both.
const directOwn = 5

func TestADirectCallAllocatesItsMessages(t *testing.T) {
	client := directPair(tollfree.NewSharedMemory(t), &directService{}, tollfree.Inline(direct.Test_Unary_FullMethodName))
	request := &direct.Request{Data: make([]byte, 60)}
	best := tollfree.Allocations(func() {
		if _, err := client.Unary(context.Background(), request); err != nil {
			t.Fatal(err)
		}
	})
	if best > directOwn {
		t.Errorf("%.1f allocations a call, where %d are the messages' own", best, directOwn)
	}
}
