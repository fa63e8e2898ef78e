package wire

import (
	"encoding/binary"
	"fmt"
)

// Lengths of a frame's fixed parts, spec/wire.md, section 8.
const (
	BatchPrefixLen = 5
)

// MethodNotInterned is the code of an opening whose method has no index.
const MethodNotInterned = 65535

// A Role is an end of a session.
type Role uint8

// The two ends.
const (
	Client Role = iota
	Server
)

// Peer is the other end.
func (r Role) Peer() Role { return 1 - r }

// Head is a frame's head.
type Head struct {
	Events, Flags           uint8
	Code                    uint16
	HeadersLen, TrailersLen uint16
	Stream                  uint64
	ChunkLen, MessageLen    uint32
}

// Encode gives the head's bytes.
func (h *Head) Encode() (b [FrameHeadLen]byte) {
	b[0], b[1] = h.Events, h.Flags
	binary.LittleEndian.PutUint16(b[2:], h.Code)
	binary.LittleEndian.PutUint16(b[4:], h.HeadersLen)
	binary.LittleEndian.PutUint16(b[6:], h.TrailersLen)
	binary.LittleEndian.PutUint64(b[8:], h.Stream)
	binary.LittleEndian.PutUint32(b[16:], h.ChunkLen)
	binary.LittleEndian.PutUint32(b[20:], h.MessageLen)
	return b
}

// DecodeHead takes the fields out of a private copy of a head.
func DecodeHead(b *[FrameHeadLen]byte) Head {
	return Head{
		Events:      b[0],
		Flags:       b[1],
		Code:        binary.LittleEndian.Uint16(b[2:]),
		HeadersLen:  binary.LittleEndian.Uint16(b[4:]),
		TrailersLen: binary.LittleEndian.Uint16(b[6:]),
		Stream:      binary.LittleEndian.Uint64(b[8:]),
		ChunkLen:    binary.LittleEndian.Uint32(b[16:]),
		MessageLen:  binary.LittleEndian.Uint32(b[20:]),
	}
}

// Has says whether one of these events is in the frame.
func (h *Head) Has(event uint8) bool { return h.Events&event != 0 }

// Flag says whether one of these flags is set.
func (h *Head) Flag(flag uint8) bool { return h.Flags&flag != 0 }

// IsBatch says whether the frame holds a batch, if sender has written it.
func (h *Head) IsBatch(sender Role) bool {
	return h.Flag(Batch) && !(sender == Client && h.Has(Headers))
}

// HeadersAt is where the headers block begins.
func (h *Head) HeadersAt() int {
	if h.Flag(HasDeadline) {
		return FrameHeadLen + DeadlineLen
	}
	return FrameHeadLen
}

// TrailersAt is where the trailers block begins.
func (h *Head) TrailersAt() int { return h.HeadersAt() + int(h.HeadersLen) }

// ChunkAt is where the chunk begins, or its area range.
func (h *Head) ChunkAt() int { return h.TrailersAt() + int(h.TrailersLen) }

// Check says what is wrong with a head that sender has written into a record of recordLen bytes: a violation of section 8. segmented messages
// says whether the feature POOL is in force.
func (h *Head) Check(sender Role, recordLen int, segmented bool) error {
	known := uint8(KnownFlags)
	if segmented {
		known |= Segmented
	}
	if h.Flags&^known != 0 || !h.makesSense(sender) || !segmented && h.aboutSegmentedMessages() {
		return fmt.Errorf("events %#02x, flags %#02x, code %d and lengths of a frame that do not go together", h.Events, h.Flags, h.Code)
	}
	inline := uint64(0)
	switch {
	case h.Flag(InArea):
		inline = AreaRangeLen
	case h.Has(Message), h.Events == Control && h.Code == SegmentedBytes:
		inline = uint64(h.ChunkLen)
	}
	if announced := uint64(h.ChunkAt()) + inline; announced != uint64(recordLen) {
		return fmt.Errorf("a frame whose parts have %d bytes in a record of %d", announced, recordLen)
	}
	return nil
}

// aboutSegmentedMessages says whether it is a CONTROL that needs the feature POOL.
func (h *Head) aboutSegmentedMessages() bool {
	return h.Events == Control && h.Code >= SegmentedTaken && h.Code <= SegmentedBytes
}

func (h *Head) makesSense(sender Role) bool {
	const alone = Cancel | Credit | Drain | Control
	if h.Events == 0 {
		return false
	}
	if h.Events&alone != 0 {
		return h.TrailersLen == 0 && h.MessageLen == 0 && h.makesSenseAlone(sender)
	}
	opens := sender == Client && h.Has(Headers)
	switch {
	case sender == Client && h.Has(Trailers), sender == Server && h.Has(HalfClose):
		return false
	case !h.Has(Headers) && h.HeadersLen != 0, !h.Has(Trailers) && h.TrailersLen != 0:
		return false
	case !opens && !h.Has(Trailers) && h.Code != 0:
		return false
	case !opens && h.Flag(HasDeadline):
		return false
	case h.IsBatch(sender):
		return h.Has(Message) && h.Flags&^(InArea|Object) == First|Last|Batch && h.MessageLen != 0 && h.ChunkLen != 0
	case !h.Has(Message):
		return h.Flags&(First|Last|Compressed|InArea|Object|Segmented) == 0 && h.ChunkLen == 0 && h.MessageLen == 0
	case !h.Flag(First):
		return h.MessageLen == 0 && h.Flags&(Compressed|Object|Segmented) == 0
	}
	return !(h.Flag(Compressed) && h.Flag(Object))
}

func (h *Head) makesSenseAlone(sender Role) bool {
	if h.Events != Cancel && h.Flags != 0 || h.Events != Control && h.HeadersLen != 0 {
		return false
	}
	switch h.Events {
	case Cancel:
		return h.Flags&^Refused == 0 && h.ChunkLen == 0
	case Credit:
		return h.Code == 0 && h.ChunkLen != 0
	case Drain:
		return sender == Server && h.Code == 0 && h.ChunkLen == 0
	case Control:
		switch h.Code {
		case AreaOffer:
			return h.HeadersLen == 0
		case AreaAccept, AreaRefuse, AreaDrop:
			return h.HeadersLen == 0 && h.ChunkLen == 0
		case Close:
			return h.ChunkLen == 0
		case SegmentedTaken, SegmentedWanted:
			return h.HeadersLen == 0 && h.ChunkLen != 0
		case SegmentedBytes:
			return h.HeadersLen == 0
		case Objects:
			return sender == Server && h.HeadersLen == 0
		}
		// A code of none of these values is a violation, too, but of another place: the session finds it.
		return h.HeadersLen == 0
	}
	return false
}

// AreaRange says where in a payload area a chunk lies.
type AreaRange struct {
	Area   uint32
	Offset uint64
}

// Encode gives the range's bytes.
func (r AreaRange) Encode() (b [AreaRangeLen]byte) {
	binary.LittleEndian.PutUint32(b[:], r.Area)
	binary.LittleEndian.PutUint64(b[8:], r.Offset)
	return b
}

// DecodeAreaRange takes the fields out of a private copy; ok is false where reserved bits are set.
func DecodeAreaRange(b *[AreaRangeLen]byte) (r AreaRange, ok bool) {
	r = AreaRange{Area: binary.LittleEndian.Uint32(b[:]), Offset: binary.LittleEndian.Uint64(b[8:])}
	return r, binary.LittleEndian.Uint32(b[4:]) == 0
}

// BatchFits says whether a batch holds exactly so many messages with gRPC's prefixes: objects, or encoded ones.
func BatchFits(batch []byte, count uint32, objects bool) bool {
	for ; count > 0; count-- {
		if len(batch) < BatchPrefixLen {
			return false
		}
		if objects != (batch[0] == 2) || batch[0] > 2 {
			return false
		}
		n := uint64(binary.BigEndian.Uint32(batch[1:]))
		if n > uint64(len(batch)-BatchPrefixLen) {
			return false
		}
		batch = batch[BatchPrefixLen+n:]
	}
	return len(batch) == 0
}
