package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	tollfree "github.com/tollfree/tollfree/go"
	"github.com/tollfree/tollfree/lab/bench/go/direct"
	"github.com/tollfree/tollfree/lab/bench/go/echo"
)

// measured is how long calls took that ended within the time: pairs of nanoseconds and how many calls took so long.
type measured struct {
	ElapsedNS int64      `json:"elapsed_ns"`
	Latencies [][2]int64 `json:"latencies"`
}

func connect(o *order) (grpc.ClientConnInterface, io.Closer, error) {
	if o.side == "grpc-go" {
		conn, err := grpc.NewClient(o.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(limit(o.size))))
		return conn, conn, err
	}
	conn, err := tollfree.NewClient(o.address, tollfree.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(limit(o.size))))
	return conn, conn, err
}

// An exchange makes a call with a body, and gives the one that came back.
type exchange func(ctx context.Context, body []byte) ([]byte, error)

// exchanger makes calls by the side's stubs.
func exchanger(o *order, conn grpc.ClientConnInterface) exchange {
	if o.side == "go-direct" {
		client := direct.NewEchoClient(conn)
		return func(ctx context.Context, body []byte) ([]byte, error) {
			reply, err := client.Call(ctx, &direct.EchoRequest{Body: body})
			return reply.GetBody(), err
		}
	}
	client := echo.NewEchoClient(conn)
	return func(ctx context.Context, body []byte) ([]byte, error) {
		reply, err := client.Call(ctx, &echo.EchoRequest{Body: body})
		return reply.GetBody(), err
	}
}

// call keeps calls in flight, each of which begins when the one before has ended, and measures them.
func call(o *order) (*measured, error) {
	conn, closer, err := connect(o)
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	exchange := exchanger(o, conn)
	body := make([]byte, o.size)
	for i := range body {
		body[i] = byte(i)
	}
	back, err := exchange(context.Background(), body)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(back, body) {
		return nil, fmt.Errorf("%d other bytes came back", len(back))
	}
	from := time.Now().Add(o.warmUp)
	callers := make([]caller, o.inflight)
	var all sync.WaitGroup
	for i := range callers {
		c := &callers[i]
		c.took, c.from, c.until = map[int64]int64{}, from, from.Add(o.measure)
		if o.calls > 0 {
			c.calls = (o.calls + int64(o.inflight) - 1) / int64(o.inflight)
		}
		all.Go(func() { c.run(exchange, body) })
	}
	all.Wait()
	return sum(callers, from)
}

// A caller makes one call after the other.
type caller struct {
	from, until time.Time
	calls       int64
	took        map[int64]int64
	last        time.Time
	err         error
}

func (c *caller) run(exchange exchange, body []byte) {
	ctx := context.Background()
	counted := int64(0)
	for before := time.Now(); ; {
		if _, c.err = exchange(ctx, body); c.err != nil {
			return
		}
		after := time.Now()
		if c.calls == 0 && after.After(c.until) {
			c.last = c.until
			return
		}
		if before.After(c.from) {
			c.took[after.Sub(before).Nanoseconds()]++
			c.last = after
			if counted++; counted == c.calls {
				return
			}
		}
		before = after
	}
}

// sum adds up what callers have counted.
func sum(callers []caller, from time.Time) (*measured, error) {
	took := map[int64]int64{}
	last := from
	for i := range callers {
		c := &callers[i]
		if c.err != nil {
			return nil, c.err
		}
		for ns, count := range c.took {
			took[ns] += count
		}
		if c.last.After(last) {
			last = c.last
		}
	}
	m := &measured{ElapsedNS: last.Sub(from).Nanoseconds()}
	for ns, count := range took {
		m.Latencies = append(m.Latencies, [2]int64{ns, count})
	}
	return m, nil
}
