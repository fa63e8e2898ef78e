package main

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"google.golang.org/grpc/mem"

	"github.com/tollfree/tollfree/go/internal/ring"
	"github.com/tollfree/tollfree/go/internal/session"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// areaLen is the length of area 0, which is mapped in every case.
const areaLen = 64 * 1024

// sink takes all records and keeps none.
type sink struct{ recordLenMax int }

func (s sink) RecordLenMax() int { return s.recordLenMax }

func (s sink) Begin(n int) (ring.Place, bool) { return ring.PlaceOf(make([]byte, n)), true }

func (s sink) BeginArea(int, int) (record, chunk ring.Place, at wire.AreaRange, ok bool) {
	return record, chunk, at, false
}

// area is area 0, full of zeros.
type area struct{}

func (area) Map(uint32, uint32) (bool, error) { return true, nil }
func (area) Unmap(uint32)                     {}
func (area) Answered(uint32, bool)            {}

func (area) Holds(n uint32, at wire.AreaRange) bool {
	return at.Area == 0 && at.Offset <= areaLen && uint64(n) <= areaLen-at.Offset
}

func (a area) Copy(dst []byte, at wire.AreaRange) bool {
	clear(dst)
	return a.Holds(uint32(len(dst)), at)
}

// A side is one end of a session that is told what it has said, and hears frames.
type side struct {
	role    wire.Role
	session *session.Session
	out     sink
	paths   []string
	calls   []*told
}

// told is a call as its application was told of it.
type told struct {
	stream *session.Stream
	kind   string
	begun  []byte
	over   bool
	reply  fields
}

func newSide(q question, role wire.Role) (*side, error) {
	var pool bool
	if err := q.get("pool", &pool); err != nil {
		return nil, err
	}
	var numbers [5]uint64
	for i, name := range []string{"stream_window", "session_window", "stream_count", "metadata_len_max", "record_len_max"} {
		var err error
		if numbers[i], err = q.number(name); err != nil {
			return nil, err
		}
	}
	limits := session.Limits{
		StreamWindow: numbers[0], SessionWindow: numbers[1], StreamCount: uint32(numbers[2]), MetadataLenMax: int(numbers[3]),
	}
	s := &side{role: role, out: sink{int(numbers[4])}}
	s.session = session.New(role, limits, limits, pool, area{}, func() *session.Stream { return new(session.Stream) })
	return s, nil
}

func violationToServer(q question) (fields, error) { return violationTo(q, wire.Server) }
func violationToClient(q question) (fields, error) { return violationTo(q, wire.Client) }

func violationTo(q question, role wire.Role) (fields, error) {
	s, err := newSide(q, role)
	if err != nil {
		return nil, err
	}
	said, err := q.list("said")
	if err != nil {
		return nil, err
	}
	for _, frame := range said {
		if err := s.says(frame); err != nil {
			return nil, err
		}
	}
	before, err := q.list("before")
	if err != nil {
		return nil, err
	}
	for _, frame := range before {
		if _, err := s.session.Receive(ring.RecordOf(frame)); err != nil {
			return nil, fmt.Errorf("in a frame before: %w", err)
		}
	}
	frame, err := q.bytes("frame")
	if err != nil {
		return nil, err
	}
	_, err = s.session.Receive(ring.RecordOf(frame))
	var violation *session.Violation
	if errors.As(err, &violation) {
		return fields{"violation": violation.Place}, nil
	}
	return fields{"violation": "none"}, err
}

func conversationToServer(q question) (fields, error) { return conversation(q, wire.Server) }
func conversationToClient(q question) (fields, error) { return conversation(q, wire.Client) }

func conversation(q question, role wire.Role) (fields, error) {
	s, err := newSide(q, role)
	if err != nil {
		return nil, err
	}
	var frames []struct{ Said, Heard *string }
	if err := q.get("frames", &frames); err != nil {
		return nil, err
	}
	for _, frame := range frames {
		text, does := frame.Said, s.says
		if text == nil {
			text, does = frame.Heard, s.hears
		}
		if text == nil {
			return nil, fmt.Errorf("a frame that is none")
		}
		bytes, err := hex.DecodeString(*text)
		if err != nil {
			return nil, err
		}
		if err := does(bytes); err != nil {
			return nil, err
		}
	}
	calls := []fields{}
	for _, call := range s.calls {
		calls = append(calls, call.reply)
	}
	reply := fields{"calls": calls, "closed": nil}
	var closed *session.Closed
	if errors.As(s.session.Closed(), &closed) {
		reply["closed"] = closed.Said
	}
	return reply, nil
}

func (s *side) call(id uint64) *told {
	for _, call := range s.calls {
		if call.stream.ID() == id {
			return call
		}
	}
	return nil
}

// says has the session say of a frame what decides about later ones.
func (s *side) says(frame []byte) error {
	head := wire.DecodeHead((*[wire.FrameHeadLen]byte)(frame))
	call := s.call(head.Stream)
	switch {
	case head.Events == wire.Control:
		switch head.Code {
		case wire.SegmentedTaken:
			for i := range uint64(head.ChunkLen) {
				s.session.TookSegmented(head.Stream + i + 1)
			}
		case wire.SegmentedWanted:
			s.session.WantSegmented(head.Stream+1, head.ChunkLen, nil)
		case wire.AreaOffer:
			s.session.OfferArea(uint32(head.Stream), head.ChunkLen)
		case wire.AreaDrop:
			s.session.DropArea(uint32(head.Stream))
		}
	case head.Events == wire.Drain:
		s.session.Drain()
	case head.Events == wire.Cancel:
		if call != nil {
			call.over = true
			s.session.Cancel(call.stream, head.Code)
		}
	case head.Events == wire.Credit:
	case s.role == wire.Client && head.Has(wire.Headers):
		return s.opens(&head, frame)
	case call != nil:
		if message := segmentedOf(&head); message != nil {
			s.session.Send(call.stream, *message, false)
		}
		if head.Has(wire.Trailers) {
			call.over = true
			s.session.Finish(call.stream, head.Code, nil)
		}
	}
	s.session.Flush(s.out)
	return nil
}

// segmentedOf is a segmented message that stands for the one whose first chunk the frame has, if it has one: segmented messages are counted.
func segmentedOf(head *wire.Head) *session.Message {
	if !head.Has(wire.Message) || !head.Flag(wire.Segmented) {
		return nil
	}
	bytes := mem.BufferSlice{mem.SliceBuffer{0}}
	return &session.Message{Data: bytes, SegmentedMessage: bytes}
}

func (s *side) opens(head *wire.Head, frame []byte) error {
	if block := frame[head.HeadersAt():]; head.Flag(wire.NamesMethod) {
		n := binary.LittleEndian.Uint16(block)
		s.paths = append(s.paths, string(block[2:2+n]))
	}
	if int(head.Code) >= len(s.paths) {
		return fmt.Errorf("an opening of a method that was not named")
	}
	call := &told{stream: new(session.Stream), reply: fields{"headers": nil, "messages": []fields{}, "trailers": []string{}, "end": "none"}}
	opening := &session.Opening{Path: s.paths[head.Code]}
	if !s.session.Open(s.out, call.stream, opening, segmentedOf(head), false) || call.stream.ID() != head.Stream {
		return fmt.Errorf("stream %d was not opened", head.Stream)
	}
	call.reply["stream"] = head.Stream
	s.calls = append(s.calls, call)
	return nil
}

func (s *side) hears(frame []byte) error {
	if _, err := s.session.Receive(ring.RecordOf(frame)); err != nil {
		return err
	}
	for st := s.session.NextOpened(); st != nil; st = s.session.NextOpened() {
		block, _ := st.Headers()
		s.calls = append(s.calls, &told{stream: st, reply: fields{
			"stream": st.ID(), "path": st.Path(), "deadline_ns": fmt.Sprintf("%016x", st.DeadlineNS()),
			"headers": pairs(block), "messages": []fields{}, "end": "none",
		}})
	}
	for _, call := range s.calls {
		if !call.over {
			s.tell(call)
		}
	}
	s.session.Flush(s.out)
	return nil
}

func pairs(block []byte) []string {
	lines := []string{}
	_ = wire.EachPair(block, func(name string, value []byte) { lines = append(lines, fmt.Sprintf("%s: %s", name, value)) })
	return lines
}

func (s *side) tell(call *told) {
	st := call.stream
	if block, ok := st.Headers(); ok {
		call.reply["headers"] = pairs(block)
	}
	for chunk, ok := s.session.Take(st); ok; chunk, ok = s.session.Take(st) {
		call.take(&chunk)
	}
	end := st.End()
	call.over = end.Kind != session.NotEnded
	switch {
	case end.Kind == session.EndTrailers:
		call.reply["end"] = fmt.Sprintf("status %d", end.Code)
		call.reply["trailers"] = pairs(end.Block)
	case end.Kind == session.EndCancelled && end.Refused:
		call.reply["end"] = "refused"
	case end.Kind == session.EndCancelled:
		call.reply["end"] = fmt.Sprintf("cancelled %d", end.Code)
	case end.Kind == session.NotEnded && st.HalfClosed():
		call.reply["end"] = "half-close"
	}
}

func (t *told) take(chunk *session.Chunk) {
	data := mem.BufferSlice{chunk.Data}.Materialize()
	kind := func(object, compressed bool) string {
		switch {
		case object && chunk.SegmentedMessage != 0:
			return "object segmented"
		case chunk.SegmentedMessage != 0:
			return "segmented"
		case object:
			return "object"
		case compressed:
			return "compressed"
		}
		return "encoded"
	}
	add := func(kind string, message []byte) {
		t.reply["messages"] = append(t.reply["messages"].([]fields), fields{"kind": kind, "bytes": hex.EncodeToString(message)})
	}
	if chunk.Batch > 0 {
		for len(data) > 0 {
			n := binary.BigEndian.Uint32(data[1:])
			add(kind(data[0] == 2, data[0] == 1), data[wire.BatchPrefixLen:wire.BatchPrefixLen+n])
			data = data[wire.BatchPrefixLen+n:]
		}
		return
	}
	if chunk.First {
		t.kind = kind(chunk.Object, chunk.Compressed)
	}
	t.begun = append(t.begun, data...)
	if chunk.Last {
		add(t.kind, t.begun)
		t.begun = nil
	}
}
