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

// isGRPC says of a side that it is grpc-go's own: over a Unix socket, or TCP.
func isGRPC(side string) bool { return side == "grpc-go" || side == "grpc-go-tcp" }

// connect connects to the process that the order names by its address and its number.
func connect(o *order) (conn grpc.ClientConnInterface, closer io.Closer, pid int, err error) {
	// A server in Rust does not say which process it is.
	if o.side != goToRust {
		if o.address, pid, err = ofProcess(o.address); err != nil {
			return nil, nil, 0, err
		}
	}
	if isGRPC(o.side) {
		conn, err := grpc.NewClient(o.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(limit(o.size))))
		return conn, conn, pid, err
	}
	own, err := tollfree.NewClient(o.address, tollfree.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(limit(o.size))))
	return own, own, pid, err
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
	if o.side == goToRust {
		stub := tollfree.Direct(conn)
		return func(ctx context.Context, body []byte) ([]byte, error) {
			reply := new(direct.EchoReply)
			err := stub.Invoke(ctx, echo.Echo_Call_FullMethodName, &direct.EchoRequest{Body: body}, reply)
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
	conn, closer, _, err := connect(o)
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
		c.from, c.until = from, from.Add(o.measure)
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
	took        []time.Duration
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
			c.took = append(c.took, after.Sub(before))
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
		for _, d := range c.took {
			took[d.Nanoseconds()]++
		}
		if c.last.After(last) {
			last = c.last
		}
	}
	return &measured{ElapsedNS: last.Sub(from).Nanoseconds(), Latencies: pairs(took)}, nil
}

// pairs are times and how many there were of each, as the bench takes them.
func pairs(took map[int64]int64) [][2]int64 {
	all := make([][2]int64, 0, len(took))
	for ns, count := range took {
		all = append(all, [2]int64{ns, count})
	}
	return all
}
