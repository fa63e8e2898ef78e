package tollfree

import (
	"io"
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	gproto "google.golang.org/protobuf/proto"

	"github.com/tollfree/tollfree/go/internal/buffers"
	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/payload"
	"github.com/tollfree/tollfree/go/internal/pool"
)

const (
	// defaultReceiveMax and defaultSendMax are grpc's limits on messages, in bytes.
	defaultReceiveMax = 4 << 20
	defaultSendMax    = math.MaxInt32
	// prefixLen is the length of gRPC's message prefix, which stats handlers count.
	prefixLen = 5
)

// codec turns messages into bytes and back.
type codec interface {
	Marshal(v any) (mem.BufferSlice, error)
	Unmarshal(data mem.BufferSlice, v any) error
}

// bytesCodec is what grpc's older codecs have in common.
type bytesCodec interface {
	Marshal(v any) ([]byte, error)
	Unmarshal(data []byte, v any) error
}

type bridgedCodec struct{ bytesCodec }

func (c bridgedCodec) Marshal(v any) (mem.BufferSlice, error) {
	data, err := c.bytesCodec.Marshal(v)
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(data)}, nil
}

func (c bridgedCodec) Unmarshal(data mem.BufferSlice, v any) error {
	return c.bytesCodec.Unmarshal(data.Materialize(), v)
}

// registeredCodec is nil where nobody has registered a codec for subtype, which is lower case; "" is protobuf.
func registeredCodec(subtype string) codec {
	if subtype == "" {
		subtype = proto.Name
	}
	if c := encoding.GetCodecV2(subtype); c != nil {
		return c
	}
	if c := encoding.GetCodec(subtype); c != nil {
		return bridgedCodec{c}
	}
	return nil
}

// An outgoingMessage is encoded, and compressed where that was asked for.
type outgoingMessage struct {
	call.Message
	length int // of the encoding, before compression
}

// protobufCodec is grpc's own, unless a program has registered another one before this package.
var protobufCodec = registeredCodec("")

// encodeShort encodes a protobuf message that is short into a buffer which is used again and again; ok is false of others.
func encodeShort(m any, room *[1]mem.Buffer) (data mem.BufferSlice, ok bool, err error) {
	message, is := m.(gproto.Message)
	if !is {
		return nil, false, nil
	}
	size := gproto.Size(message)
	if size > buffers.SmallMax {
		return nil, false, nil
	}
	bytes := buffers.Small(0)
	encoded, err := gproto.MarshalOptions{UseCachedSize: true}.MarshalAppend(*bytes, message)
	if err != nil || len(encoded) > cap(*bytes) {
		buffers.GiveBack(bytes)
		return nil, err != nil, err
	}
	*bytes = encoded
	room[0] = buffers.Wrap(bytes)
	return room[:1:1], true, nil
}

// encode encodes m. What is short has its buffer in room; what of it lies in pool, which may be nil, is not copied.
func encode(c codec, m any, room *[1]mem.Buffer, pool *pool.Pool) (mem.BufferSlice, error) {
	_, vt := c.(directCodec)
	if c == protobufCodec {
		if data, ok, err := encodeShort(m, room); ok {
			return data, err
		}
	}
	if message, is := m.(gproto.Message); is && pool != nil && protobufIsOurs && (vt || c == protobufCodec) {
		if data, lent, err := payload.Encode(pool, message); lent || err != nil {
			return data, err
		}
	}
	return c.Marshal(m)
}

// encodeMessage encodes m, compresses it unless compressor is nil, and checks it against limit. room is the message's for as long as it
// is in use. pool, which may be nil, is where parts of it may lie. An error is a status.
func encodeMessage(c codec, compressor encoding.Compressor, limit int, m any, room *[1]mem.Buffer, pool *pool.Pool) (outgoingMessage, error) {
	if _, prepared := m.(*grpc.PreparedMsg); prepared {
		return outgoingMessage{}, status.Error(codes.Internal, "tollfree: grpc.PreparedMsg can't be sent over shared memory: its bytes are private to package grpc; send the message itself")
	}
	var data mem.BufferSlice
	if m != nil {
		var err error
		if data, err = encode(c, m, room, pool); err != nil {
			return outgoingMessage{}, status.Errorf(codes.Internal, "tollfree: the message %T can't be encoded: %v", m, err)
		}
	}
	out := outgoingMessage{Message: call.Message{Data: data}, length: data.Len()}
	if compressor != nil && out.length > 0 {
		compressed, err := compress(compressor, data)
		data.Free()
		if err != nil {
			return outgoingMessage{}, err
		}
		out.Message = call.Message{Data: compressed, Compressed: true}
	}
	if size := out.Data.Len(); size > limit {
		out.Data.Free()
		return outgoingMessage{}, tooLongToSend(size, limit)
	}
	return out, nil
}

func compress(compressor encoding.Compressor, data mem.BufferSlice) (mem.BufferSlice, error) {
	var out mem.BufferSlice
	fail := func(err error) (mem.BufferSlice, error) {
		out.Free()
		return nil, status.Errorf(codes.Internal, "tollfree: the message can't be compressed by %s: %v", compressor.Name(), err)
	}
	w, err := compressor.Compress(mem.NewWriter(&out, mem.DefaultBufferPool()))
	if err != nil {
		return fail(err)
	}
	for _, buffer := range data {
		if _, err := w.Write(buffer.ReadOnlyData()); err != nil {
			return fail(err)
		}
	}
	if err := w.Close(); err != nil {
		return fail(err)
	}
	return out, nil
}

// A decoder turns what comes of a call into messages.
type decoder struct {
	codec    codec
	limit    int
	encoding string     // the peer's grpc-encoding
	pool     *pool.Pool // nil: none
	inPlace  *Payloads  // keeps what of messages is read in the pool; nil: all is copied
	missing  codes.Code // of a call whose encoding is not registered here
}

// decode fills m from message, and frees its data. An error is a status.
func (d *decoder) decode(message call.Message, m any) (incomingLengths, error) {
	data := message.Data
	lengths := incomingLengths{received: data.Len()}
	into, isObject := m.(*incomingObject)
	if message.Object && isObject && d.inPlace.mayKeep(&message) {
		lengths.decoded = lengths.received
		var err error
		into.object, err = d.inPlace.object(into.kind, data[0], d.limit)
		return lengths, err
	}
	if message.Object {
		defer data.Free()
		if !isObject {
			return lengths, status.Errorf(codes.Internal, "tollfree: a message came as a flat message, where %T is to be decoded", m)
		}
		lengths.decoded = lengths.received
		return lengths, into.verify(data.Materialize(), d.limit)
	}
	if lengths.received > d.limit {
		data.Free()
		return lengths, status.Errorf(codes.ResourceExhausted, "tollfree: the peer's message has %d bytes, and at most %d are taken", lengths.received, d.limit)
	}
	if message.Compressed {
		plain, err := d.decompress(data)
		data.Free()
		if err != nil {
			return lengths, err
		}
		data = plain
	}
	lengths.decoded = data.Len()
	if isObject {
		defer data.Free()
		return lengths, into.decode(data.Materialize())
	}
	err := d.unmarshal(data, m)
	data.Free()
	if err != nil {
		return lengths, status.Errorf(codes.Internal, "tollfree: the peer's message can't be decoded as %T: %v", m, err)
	}
	return lengths, nil
}

// unmarshal fills m, from where its bytes lie in the pool if that is asked for.
func (d *decoder) unmarshal(data mem.BufferSlice, m any) error {
	message, is := m.(gproto.Message)
	_, vt := d.codec.(directCodec)
	if d.inPlace == nil || d.pool == nil || !is || !protobufIsOurs || !vt && d.codec != protobufCodec || !payload.LiesIn(d.pool, data) {
		return d.codec.Unmarshal(data, m)
	}
	gproto.Reset(message)
	held, err := payload.Decode(d.pool, data, message)
	d.inPlace.keep(held)
	return err
}

// incomingLengths are of a message as it came, and as it was decoded.
type incomingLengths struct{ received, decoded int }

func (d *decoder) decompress(data mem.BufferSlice) (mem.BufferSlice, error) {
	if d.encoding == "" || d.encoding == encoding.Identity {
		return nil, status.Error(codes.Internal, "tollfree: the peer's message is compressed, but no grpc-encoding says how")
	}
	compressor := encoding.GetCompressor(d.encoding)
	if compressor == nil {
		return nil, status.Errorf(d.missing, "tollfree: the peer compresses by %q, for which nobody has registered a compressor here", d.encoding)
	}
	fail := func(err error) (mem.BufferSlice, error) {
		return nil, status.Errorf(codes.Internal, "tollfree: the peer's message can't be decompressed by %s: %v", d.encoding, err)
	}
	source := data.Reader()
	defer source.Close()
	r, err := compressor.Decompress(source)
	if err != nil {
		return fail(err)
	}
	if closer, ok := r.(io.Closer); ok {
		defer closer.Close()
	}
	if d.limit < math.MaxInt {
		r = io.LimitReader(r, int64(d.limit)+1)
	}
	out, err := mem.ReadAll(r, mem.DefaultBufferPool())
	if err != nil {
		out.Free()
		return fail(err)
	}
	if out.Len() > d.limit {
		out.Free()
		return nil, status.Errorf(codes.ResourceExhausted, "tollfree: the peer's message has more than %d bytes after decompression", d.limit)
	}
	return out, nil
}
