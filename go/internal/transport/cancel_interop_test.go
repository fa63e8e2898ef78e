//go:build interop

package transport

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/steps"
)

// TestContextsCancelledAtAnyStep cancels calls and handshakes when either end passes a step, for the first and for later times.
func TestContextsCancelledAtAnyStep(t *testing.T) {
	client, listener := served(t, call.Service{Handler: echo}, Config{})
	defer steps.Watch(nil)
	kinds := map[string]func(ctx context.Context) error{
		"short": func(ctx context.Context) error { return echoed(ctx, client, 100) },
		"long":  func(ctx context.Context) error { return echoed(ctx, client, 100_000) },
		"stream": func(ctx context.Context) error {
			c, err := client.Start(ctx, &call.Start{Method: "/a.B/S"})
			if err != nil {
				return err
			}
			for i := range 4 {
				// What the call ended with is read below.
				if err := c.Send(*message(20_000), i == 3); err != nil {
					break
				}
			}
			for {
				got, err := c.Recv()
				if err != nil {
					return c.Outcome().Status.Err()
				}
				got.Data.Free()
			}
		},
		"session": func(ctx context.Context) error {
			other, err := Dial(ctx, listener.Address(), Config{})
			if err == nil {
				err = echoed(ctx, other, 10)
				_ = other.Close()
				<-other.Done()
			}
			return err
		},
	}
	cancelled := 0
	for name, run := range kinds {
		for step := steps.None + 1; step < steps.End; step++ {
			for times := int64(1); times < 6; times++ {
				ctx, cancel := context.WithCancel(within(t))
				var left atomic.Int64
				left.Store(times)
				steps.Watch(func(passed steps.Step) {
					if passed == step && left.Add(-1) == 0 {
						cancel()
					}
				})
				err := run(ctx)
				steps.Watch(nil)
				cancel()
				switch status.Code(err) {
				case codes.Canceled:
					cancelled++
				case codes.OK:
				default:
					t.Errorf("%s, step %d, for the time %d: %v", name, step, times, err)
				}
				if err := echoed(within(t), client, 1000); err != nil {
					t.Fatalf("after %s, step %d, for the time %d: %v", name, step, times, err)
				}
			}
		}
	}
	if cancelled < 50 {
		t.Errorf("%d were cancelled: the test misses what it is about", cancelled)
	}
	if live := liveCalls(client); live != 0 {
		t.Errorf("%d calls are left in the session", live)
	}
}

// echoed makes a call whose answer is its request.
func echoed(ctx context.Context, client call.Client, n int) error {
	outcome, got, err := unary(ctx, client, "/a.B/C", n)
	switch {
	case err != nil:
		return err
	case outcome.Status.Code() != codes.OK:
		return outcome.Status.Err()
	case len(got) != n:
		return fmt.Errorf("%d bytes instead of %d: %w", len(got), n, io.ErrUnexpectedEOF)
	}
	return nil
}

func liveCalls(client call.Client) int {
	link := linkOf(client)
	link.mu.Lock()
	defer link.mu.Unlock()
	return link.session.Live()
}
