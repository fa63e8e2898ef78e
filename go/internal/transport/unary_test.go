package transport

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
)

// echoUnary answers as what serves unary calls of direct stubs does. Its method says what else to do.
func echoUnary(t testing.TB) call.Handler {
	return func(c call.ServerCall) {
		var request call.Reply
		defer request.Clear()
		lent := new(call.Context)
		unary := c.(call.UnaryCall)
		ctx := context.Context(lent)
		lends, err := unary.RecvUnary(&request, lent, unary.SessionContext())
		if !lends {
			ctx = unary.Context()
		}
		if err != nil {
			unary.FinishUnary(nil, nil, nil, status.Convert(err), nil)
			return
		}
		switch c.Method() {
		case "/a.B/Wait":
			<-ctx.Done()
			unary.FinishUnary(nil, nil, nil, status.FromContextError(ctx.Err()), nil)
		case "/a.B/None":
			unary.FinishUnary(nil, nil, nil, okStatus, nil)
		case "/a.B/Two":
			_ = unary.Send(*message(3))
			unary.FinishUnary(nil, message(3), nil, okStatus, nil)
		case "/a.B/Fail":
			unary.FinishUnary(nil, nil, nil, status.New(codes.NotFound, "nothing there"), metadata.MD{"why": {"not"}})
		default:
			if request.IsShort {
				unary.FinishUnary(nil, nil, request.Short, okStatus, nil)
				return
			}
			// The slice is the request's, and is cleared with it.
			answer := call.Message{Data: slices.Clone(request.Message.Data)}
			answer.Data.Ref()
			unary.FinishUnary(nil, &answer, nil, okStatus, nil)
		}
	}
}

// callUnary makes a call with a message of n bytes, and gives what comes back.
func callUnary(ctx context.Context, client call.Client, method string, n int) (call.Outcome, []byte, error) {
	var reply call.Reply
	defer reply.Clear()
	start := call.Start{Method: method}
	start.Deadline, _ = ctx.Deadline()
	request, short := message(n), []byte(nil)
	if n <= 1024 {
		short, request = append([]byte{}, content(*request)...), nil
	}
	outcome, err := client.(call.UnaryClient).Unary(ctx, &start, request, short, &reply)
	switch {
	case err != nil || !reply.Came:
		return outcome, nil, err
	case reply.IsShort:
		return outcome, bytes.Clone(reply.Short), nil
	}
	return outcome, reply.Message.Data.Materialize(), nil
}

func TestWholeCallsOfAllLengths(t *testing.T) {
	client, _ := served(t, call.Service{Handler: echoUnary(t)}, Config{})
	for _, n := range []int{0, 1, 64, 127, 128, 129, 1023, 1024, 1025, 8192, 8193, 100_000, 4 << 20} {
		outcome, back, err := callUnary(within(t), client, "/a.B/C", n)
		if err != nil || outcome.Status.Code() != codes.OK || !bytes.Equal(back, content(*message(n))) {
			t.Fatalf("%d bytes: %v, %v, %d bytes back", n, err, outcome.Status, len(back))
		}
	}
}

// Calls are kept for others while some are under way: none may get another's bytes.
func TestWholeCallsOfManyCallers(t *testing.T) {
	client, _ := served(t, call.Service{Handler: echoUnary(t), Inline: func(method string) bool { return method == "/a.B/Inline" }}, Config{})
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for j := range 200 {
				n := (i*37 + j*11) % 2000
				method := []string{"/a.B/C", "/a.B/Inline"}[j%2]
				outcome, back, err := callUnary(within(t), client, method, n)
				if err != nil || outcome.Status.Code() != codes.OK || !bytes.Equal(back, content(*message(n))) {
					t.Errorf("%d bytes: %v, %v, %d bytes back", n, err, outcome.Status, len(back))
					return
				}
			}
		})
	}
	all.Wait()
}

func TestWholeCallsEndInAllWays(t *testing.T) {
	client, listener := served(t, call.Service{Handler: echoUnary(t)}, Config{MessageLenMax: 5000})
	soon := func() context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	cancelled := func() context.Context {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(20*time.Millisecond, cancel)
		return ctx
	}
	for range 3 {
		for _, end := range []struct {
			method string
			ctx    context.Context
			n      int
			want   codes.Code
		}{
			{"/a.B/Fail", within(t), 10, codes.NotFound},
			{"/a.B/Wait", soon(), 10, codes.DeadlineExceeded},
			{"/a.B/Wait", cancelled(), 10, codes.Canceled},
			{"/a.B/Two", within(t), 10, codes.Internal},
			{"/a.B/None", within(t), 10, codes.OK},
			{"/a.B/C", within(t), 6000, codes.ResourceExhausted},
		} {
			outcome, back, err := callUnary(end.ctx, client, end.method, end.n)
			if err != nil || outcome.Status.Code() != end.want || end.method != "/a.B/Two" && back != nil {
				t.Errorf("%s: %v, %v, %d bytes", end.method, err, outcome.Status, len(back))
			}
			if end.method == "/a.B/Fail" && fmt.Sprint(outcome.Trailer.Get("why")) != "[not]" {
				t.Errorf("the trailer is %v", outcome.Trailer)
			}
		}
	}
	if outcome, back, err := callUnary(within(t), client, "/a.B/C", 10); err != nil || outcome.Status.Code() != codes.OK || len(back) != 10 {
		t.Errorf("%v, %v, %d bytes", err, outcome.Status, len(back))
	}
	_ = listener.Close()
	// The client may not have noticed yet.
	if outcome, _, err := callUnary(within(t), client, "/a.B/C", 10); status.Code(err) != codes.Unavailable && outcome.Status.Code() != codes.Unavailable {
		t.Errorf("after the server's end: %v, %v", err, outcome.Status)
	}
}

// A client may send no message, or several, where the method has one.
func TestARequestIsOneMessage(t *testing.T) {
	client, _ := served(t, call.Service{Handler: echoUnary(t)}, Config{})
	for sent := range 4 {
		c, err := client.Start(within(t), &call.Start{Method: "/a.B/C"})
		if err != nil {
			t.Fatal(err)
		}
		for range sent {
			// The call may have ended meanwhile.
			_ = c.Send(*message(5), false)
		}
		_ = c.CloseSend()
		want := codes.Internal
		if sent == 1 {
			want = codes.OK
		}
		for m, err := c.Recv(); err == nil; m, err = c.Recv() {
			m.Data.Free()
		}
		if got := c.Outcome().Status; got.Code() != want {
			t.Errorf("%d messages: %v", sent, got)
		}
	}
}
