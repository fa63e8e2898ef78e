package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/tollfree/tollfree/lab/bench/go/streams"
)

// burst is how many messages a burst has each way.
const burst = 100

// streamed is what a round of streams has measured.
type streamed struct {
	Messages    uint64     `json:"messages"`
	ElapsedNS   int64      `json:"elapsed_ns"`
	Latencies   [][2]int64 `json:"latencies"`
	ClientCPUNS int64      `json:"client_cpu_ns"`
	ServerCPUNS int64      `json:"server_cpu_ns"`
}

// A streamer carries one stream after the other, or one for the whole time, and counts.
type streamer struct {
	client      streams.StreamsClient
	size        int
	from, until time.Time

	messages uint64
	took     map[int64]int64
	err      error
}

// stream has streams carry messages at a time, and measures them.
func stream(o *order) (*streamed, error) {
	conn, closer, pid, err := connect(o)
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	client := streams.NewStreamsClient(conn)
	kinds := map[string]func(*streamer) error{
		"server": (*streamer).fromServer, "client": (*streamer).toServer, "ping-pong": (*streamer).pingPong, "burst": (*streamer).bursts,
	}
	carry := kinds[o.kind]
	if carry == nil {
		return nil, fmt.Errorf("there is no kind of stream %q", o.kind)
	}
	if err := prove(client, o.size); err != nil {
		return nil, err
	}
	from := time.Now().Add(o.warmUp)
	until := from.Add(o.measure)
	all := make([]streamer, o.streams)
	var under sync.WaitGroup
	for i := range all {
		s := &all[i]
		*s = streamer{client: client, size: o.size, from: from, until: until, took: map[int64]int64{}}
		under.Go(func() { s.err = carry(s) })
	}
	time.Sleep(time.Until(from))
	began := time.Now()
	before, err := usedBy(pid)
	if err != nil {
		return nil, err
	}
	under.Wait()
	elapsed := time.Since(began)
	after, err := usedBy(pid)
	if err != nil {
		return nil, err
	}
	sum := streamed{
		ElapsedNS: elapsed.Nanoseconds(), ClientCPUNS: (after.own - before.own).Nanoseconds(), ServerCPUNS: (after.other - before.other).Nanoseconds(),
	}
	took := map[int64]int64{}
	for i := range all {
		if all[i].err != nil {
			return nil, all[i].err
		}
		sum.Messages += all[i].messages
		for ns, count := range all[i].took {
			took[ns] += count
		}
	}
	sum.Latencies = pairs(took)
	return &sum, nil
}

// prove sends a few messages and compares every byte of what comes back; streams that are measured check lengths and numbers only.
func prove(client streams.StreamsClient, size int) error {
	both, err := client.Both(context.Background())
	if err != nil {
		return err
	}
	sent, expected := newMaker(size), newMaker(size)
	for range 3 {
		if err := both.Send(sent.next()); err != nil {
			return err
		}
		back, err := both.Recv()
		if err != nil {
			return err
		}
		if !bytes.Equal(back.Payload, expected.next().Payload) {
			return fmt.Errorf("a message is not what was sent")
		}
	}
	return finish(both)
}

// finish ends a stream whose messages have all come back.
func finish(both interface {
	CloseSend() error
	Recv() (*streams.StreamItem, error)
}) error {
	if err := both.CloseSend(); err != nil {
		return err
	}
	if _, err := both.Recv(); err != io.EOF {
		return fmt.Errorf("a stream ends with %v", err)
	}
	return nil
}

// take takes a message for t, and says whether it was the last that counts.
func (s *streamer) take(t *taker, item *streams.StreamItem) (last bool, err error) {
	if len(item.Payload) != s.size {
		return false, fmt.Errorf("a message has %d bytes instead of %d", len(item.Payload), s.size)
	}
	now, err := t.take(item)
	return !now.IsZero() && now.After(s.until), err
}

func (s *streamer) fromServer() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	down, err := s.client.Down(ctx, &streams.StreamAsk{Size: uint32(s.size)})
	if err != nil {
		return err
	}
	t := newTaker(s.from)
	for {
		item, err := down.Recv()
		if err != nil {
			return err
		}
		last, err := s.take(t, item)
		if err != nil || last {
			s.messages, s.took = t.counted(), t.gaps
			return err
		}
	}
}

func (s *streamer) toServer() error {
	up, err := s.client.Up(context.Background())
	if err != nil {
		return err
	}
	m := newMaker(s.size)
	cold := uint64(0)
	for {
		if m.number%sampled(s.size) == 0 {
			now := time.Now()
			if now.Before(s.from) {
				cold = m.number
			} else if now.After(s.until) {
				break
			}
		}
		if err := up.Send(m.next()); err != nil {
			return err
		}
	}
	sum, err := up.CloseAndRecv()
	if err != nil {
		return err
	}
	if sum.Messages != m.number || sum.Bytes != m.number*uint64(s.size) {
		return fmt.Errorf("of %d messages %d arrived", m.number, sum.Messages)
	}
	var gaps [][2]int64
	if err := json.Unmarshal([]byte(sum.Gaps), &gaps); err != nil {
		return fmt.Errorf("the server's gaps: %w", err)
	}
	for _, gap := range gaps {
		s.took[gap[0]] += gap[1]
	}
	s.messages = m.number - cold
	return nil
}

// trip counts a round trip of so many messages, and says whether it was the last that counts.
func (s *streamer) trip(began time.Time, messages uint64) (last bool) {
	now := time.Now()
	if now.After(s.from) {
		s.took[now.Sub(began).Nanoseconds()]++
		s.messages += messages
	}
	return now.After(s.until)
}

func (s *streamer) pingPong() error {
	both, err := s.client.Both(context.Background())
	if err != nil {
		return err
	}
	m, t := newMaker(s.size), newTaker(s.from)
	for {
		began := time.Now()
		if err := both.Send(m.next()); err != nil {
			return err
		}
		item, err := both.Recv()
		if err != nil {
			return err
		}
		if _, err := s.take(t, item); err != nil {
			return err
		}
		if s.trip(began, 2) {
			return finish(both)
		}
	}
}

func (s *streamer) bursts() error {
	for {
		m, t := newMaker(s.size), newTaker(s.from)
		began := time.Now()
		both, err := s.client.Both(context.Background())
		if err != nil {
			return err
		}
		sent := make(chan error, 1)
		go func() {
			for range burst {
				if err := both.Send(m.next()); err != nil {
					sent <- err
					return
				}
			}
			sent <- both.CloseSend()
		}()
		for range burst {
			item, err := both.Recv()
			if err != nil {
				return err
			}
			if _, err := s.take(t, item); err != nil {
				return err
			}
		}
		last := s.trip(began, 2*burst)
		if err := <-sent; err != nil {
			return err
		}
		if _, err := both.Recv(); err != io.EOF {
			return fmt.Errorf("a burst ends with %v", err)
		}
		if last {
			return nil
		}
	}
}
