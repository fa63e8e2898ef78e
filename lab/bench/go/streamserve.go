package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/lab/bench/go/streams"
)

// sampled is how often a gap between messages is timed: once in so many. A prime goes round in pieces of any number of messages.
func sampled(size int) uint64 {
	if size < 16<<10 {
		return 31
	}
	return 2
}

// A maker makes the messages of a stream, whose first bytes are their numbers.
type maker struct {
	payload []byte
	number  uint64
}

func newMaker(size int) maker {
	m := maker{payload: make([]byte, size)}
	for i := range m.payload {
		m.payload[i] = byte(i)
	}
	return m
}

func (m *maker) next() *streams.StreamItem {
	m.payload[0] = byte(m.number)
	m.number++
	return &streams.StreamItem{Payload: bytes.Clone(m.payload)}
}

// A taker looks at each message that a stream brings, and counts those that come once both ends are warm.
type taker struct {
	from            time.Time
	messages, bytes uint64
	cold            uint64
	began           time.Time // the gap that is timed
	gaps            map[int64]int64
}

func newTaker(from time.Time) *taker {
	return &taker{from: from, gaps: map[int64]int64{}}
}

// take says what time it is where a gap has been timed, and otherwise nothing. It is an error if the message is not the next one.
func (t *taker) take(item *streams.StreamItem) (now time.Time, err error) {
	payload := item.Payload
	if len(payload) == 0 || payload[0] != byte(t.messages) {
		return now, fmt.Errorf("message %d of a stream is another", t.messages)
	}
	place := t.messages % sampled(len(payload))
	t.messages++
	t.bytes += uint64(len(payload))
	if place > 1 {
		return now, nil
	}
	now = time.Now()
	if place == 0 {
		t.began = now
	}
	if t.began.Before(t.from) {
		t.cold = t.messages
		return time.Time{}, nil
	}
	if place == 0 {
		return time.Time{}, nil
	}
	t.gaps[now.Sub(t.began).Nanoseconds()]++
	return now, nil
}

func (t *taker) counted() uint64 { return t.messages - t.cold }

// streamService is the bench's service whose messages stream.
type streamService struct {
	streams.UnimplementedStreamsServer
	warmUp time.Duration
}

func (streamService) Down(ask *streams.StreamAsk, stream grpc.ServerStreamingServer[streams.StreamItem]) error {
	m := newMaker(int(ask.Size))
	for {
		if err := stream.Send(m.next()); err != nil {
			return err
		}
	}
}

func (s streamService) Up(stream grpc.ClientStreamingServer[streams.StreamItem, streams.StreamSum]) error {
	t := newTaker(time.Now().Add(s.warmUp))
	for {
		item, err := stream.Recv()
		if err == io.EOF {
			gaps, err := json.Marshal(pairs(t.gaps))
			if err != nil {
				return err
			}
			return stream.SendAndClose(&streams.StreamSum{Messages: t.messages, Bytes: t.bytes, Gaps: string(gaps)})
		}
		if err != nil {
			return err
		}
		if _, err := t.take(item); err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
	}
}

func (streamService) Both(stream grpc.BidiStreamingServer[streams.StreamItem, streams.StreamItem]) error {
	for {
		item, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(item); err != nil {
			return err
		}
	}
}
