package tollfree

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	pb "github.com/tollfree/tollfree/go/internal/testproto"
)

func TestStreamsOfMoreThanAWindow(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		client := h.pair()
		const streams, count = 4, 200
		data := make([]byte, 20_000)
		done := make(chan error, streams)
		for range streams {
			go func() {
				stream, err := client.Bidi(testContext(t))
				if err != nil {
					done <- err
					return
				}
				go func() {
					for i := range int32(count) {
						if err := stream.Send(&pb.Request{Count: i, Data: data}); err != nil {
							return // The receiver has the error.
						}
					}
					stream.CloseSend()
				}()
				for i := range int32(count) {
					reply, err := stream.Recv()
					if err == nil && (reply.Count != i || len(reply.Data) != len(data)) {
						err = fmt.Errorf("message %d came for %d", reply.Count, i)
					}
					if err != nil {
						done <- err
						return
					}
				}
				if _, err := stream.Recv(); err != io.EOF {
					done <- fmt.Errorf("the end is %v", err)
					return
				}
				done <- nil
			}()
		}
		for range streams {
			wantNoError(t, <-done)
		}
	})
}

// A stream that nobody reads holds what is its own, and other calls go on.
func TestStreamThatNobodyReads(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		client := h.pair()
		ctx, cancel := context.WithCancel(testContext(t))
		unread, err := client.ServerStream(ctx, &pb.Request{Data: make([]byte, 10_000), Count: 1_000_000})
		wantNoError(t, err)
		// A sender whose server does not read waits, and others go on.
		for range 200 {
			_, err := client.Unary(testContext(t), &pb.Request{Data: make([]byte, 10_000)})
			wantNoError(t, err)
		}
		_, err = unread.Recv()
		wantNoError(t, err)
		cancel()
		for err == nil {
			_, err = unread.Recv()
		}
		wantCode(t, err, codes.Canceled)
	})
}

// A sender that waits for its server ends with its call.
func TestSenderThatWaits(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		h.newServer(0, &testService{client: func(stream grpc.ClientStreamingServer[pb.Request, pb.Reply]) error {
			<-stream.Context().Done()
			return nil
		}})
		ctx, cancel := context.WithCancel(testContext(t))
		stream, err := pb.NewTestClient(h.newConn()).ClientStream(ctx)
		wantNoError(t, err)
		sent := make(chan error, 1)
		go func() {
			for {
				if err := stream.Send(&pb.Request{Data: make([]byte, 50_000)}); err != nil {
					sent <- err
					return
				}
			}
		}()
		select {
		case err := <-sent:
			t.Fatalf("Send returned %v before the call was cancelled", err)
		case <-waitAWhile():
		}
		cancel()
		if err := <-sent; err != io.EOF {
			t.Fatalf("Send returned %v", err)
		}
		_, err = stream.CloseAndRecv()
		wantCode(t, err, codes.Canceled)
	})
}

// The header may be asked for by several goroutines while another receives.
func TestHeaderWhileReceiving(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		client := h.pair()
		for range 50 {
			stream, err := client.Bidi(testContext(t))
			wantNoError(t, err)
			var all sync.WaitGroup
			errs := make(chan error, 4)
			for range 3 {
				all.Go(func() {
					header, err := stream.Header()
					if err != nil || len(header.Get("content-type")) != 1 {
						errs <- fmt.Errorf("%v, %v", header, err)
					}
				})
			}
			all.Go(func() {
				if _, err := stream.Recv(); err != nil {
					errs <- err
				}
			})
			wantNoError(t, stream.Send(&pb.Request{}))
			all.Wait()
			wantNoError(t, stream.CloseSend())
			if _, err := stream.Recv(); err != io.EOF {
				t.Fatal(err)
			}
			if len(errs) > 0 {
				t.Fatal(<-errs)
			}
		}
	})
}

// What was sent before a server has looked at the call goes again, of each length.
func TestShortMessagesAreSentAgain(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		client := h.pair()
		for range 3 {
			if f := h.fake(0); f != nil {
				f.RefuseCalls(2)
			}
			stream, err := client.ClientStream(testContext(t))
			wantNoError(t, err)
			var want []string
			for i := range 60 {
				text := strings.Repeat(string(rune('a'+i%26)), []int{0, 1, 60, 900, 1200}[i%5])
				want = append(want, text)
				wantNoError(t, stream.Send(&pb.Request{Text: text}))
			}
			reply, err := stream.CloseAndRecv()
			wantNoError(t, err)
			if reply.Count != 60 || reply.Text != strings.Join(want, " ") {
				t.Fatalf("%d messages came, of %d bytes", reply.Count, len(reply.Text))
			}
		}
	})
}
