package tollfree

import (
	"context"
	"runtime"
	"testing"
	"time"

	"google.golang.org/grpc"

	pb "github.com/tollfree/tollfree/go/internal/testproto"
)

// Calls that end in every way leave nothing in a session that goes on: no goroutine, no descriptor, and no memory to speak of.
func TestEndedCallsLeaveNothing(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		h.newServer(0, &testService{unary: func(ctx context.Context, in *pb.Request) (*pb.Reply, error) {
			switch in.Text {
			case "wait":
				<-ctx.Done()
				return nil, ctx.Err()
			case "fail":
				return nil, errPlain
			}
			return &pb.Reply{Data: in.Data}, nil
		}})
		client := pb.NewTestClient(h.newConn())
		round := func() {
			for range 50 {
				endInEveryWay(t, client)
			}
		}
		round()
		goroutines, descriptors, heap := runtime.NumGoroutine(), countDescriptors(t), heapInUse()
		for range 4 {
			round()
		}
		noMore(t, "goroutines", goroutines+4, runtime.NumGoroutine) // Some are kept for the next calls.
		noMore(t, "descriptors", descriptors, func() int { return countDescriptors(t) })
		noMore(t, "KiB of heap", heap+2048, heapInUse)
	})
}

// heapInUse is in KiB, after a collection.
func heapInUse() int {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc >> 10)
}

func endInEveryWay(t *testing.T, client pb.TestClient) {
	t.Helper()
	data := make([]byte, 20_000)
	_, err := client.Unary(testContext(t), &pb.Request{Data: data})
	wantNoError(t, err)
	for _, text := range []string{"wait", "fail"} {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		if _, err := client.Unary(ctx, &pb.Request{Text: text, Data: data}); err == nil {
			t.Fatal("no error")
		}
		cancel()
	}
	// A stream that is cancelled with answers unread.
	ctx, cancel := context.WithCancel(context.Background())
	replies, err := client.ServerStream(ctx, &pb.Request{Data: data, Count: 10})
	wantNoError(t, err)
	_, err = replies.Recv()
	wantNoError(t, err)
	cancel()
	// A stream that is cancelled with requests unread, and nobody ever receives.
	ctx, cancel = context.WithCancel(context.Background())
	both, err := client.Bidi(ctx)
	wantNoError(t, err)
	for range 3 {
		wantNoError(t, both.Send(&pb.Request{Data: data}))
	}
	cancel()
	// A stream that its client gives up with an error of its own.
	requests, err := client.ClientStream(context.Background(), grpc.MaxCallSendMsgSize(10))
	wantNoError(t, err)
	if err := requests.Send(&pb.Request{Data: data}); err == nil {
		t.Fatal("no error")
	}
}
