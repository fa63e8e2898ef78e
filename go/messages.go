package tollfree

import (
	"reflect"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tollfree/tollfree/go/internal/buffers"
	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/payload"
	"github.com/tollfree/tollfree/go/internal/pool"
)

// protobufIsOurs says whether the codec of protobuf messages is grpc's own, so that encoding as it does without asking it is the same.
var protobufIsOurs = func() bool {
	t := reflect.TypeOf(protobufCodec)
	if t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t != nil && t.PkgPath() == "google.golang.org/grpc/encoding/proto"
}()

// A vtMarshaler has the methods that vtprotobuf generates beside a message, and so has a vtUnmarshaler.
type vtMarshaler interface {
	SizeVT() int
	MarshalToSizedBufferVT(data []byte) (int, error)
}

type vtUnmarshaler interface{ UnmarshalVT(data []byte) error }

// An encoded message is short, or else whole.
type encoded struct {
	short []byte // nil: whole
	whole call.Message
}

func (e *encoded) message() *call.Message {
	if e.short != nil {
		return nil
	}
	return &e.whole
}

// encodeProto encodes m: into room, which has buffers.SmallMax bytes, where it fits. vt says that vtprotobuf's methods are used where m
// has them. What of it lies in pool, which may be nil, is not copied. An error is a status.
func encodeProto(m proto.Message, vt bool, limit int, room []byte, pool *pool.Pool) (e encoded, err error) {
	if vt {
		if fast, is := m.(vtMarshaler); is {
			return encodeVT(fast, limit, room, pool)
		}
	}
	options := proto.MarshalOptions{}
	size := options.Size(m)
	if size > limit {
		return e, tooLongToSend(size, limit)
	}
	if data, lent, err := lend(pool, m, size); lent || err != nil {
		e.whole.Data = data
		return e, err
	}
	options.UseCachedSize = true
	if size <= buffers.SmallMax {
		if e.short, err = options.MarshalAppend(room[:0], m); err == nil {
			return e, nil
		}
	} else {
		bytes := mem.DefaultBufferPool().Get(size)
		var all []byte
		if all, err = options.MarshalAppend((*bytes)[:0], m); err == nil && len(all) <= cap(*bytes) {
			*bytes = all
			e.whole.Data = mem.BufferSlice{mem.NewBuffer(bytes, mem.DefaultBufferPool())}
			return e, nil
		}
		mem.DefaultBufferPool().Put(bytes)
		if err == nil {
			e.whole.Data = mem.BufferSlice{mem.SliceBuffer(all)}
			return e, nil
		}
	}
	return encoded{}, cannotEncode(m, err)
}

func encodeVT(m vtMarshaler, limit int, room []byte, pool *pool.Pool) (e encoded, err error) {
	size := m.SizeVT()
	if size > limit {
		return e, tooLongToSend(size, limit)
	}
	if data, lent, err := lend(pool, m, size); lent || err != nil {
		e.whole.Data = data
		return e, err
	}
	if size <= buffers.SmallMax {
		if n, err := m.MarshalToSizedBufferVT(room[:size]); err != nil || n != size {
			return e, cannotEncodeVT(m, n, size, err)
		}
		e.short = room[:size]
		return e, nil
	}
	bytes := mem.DefaultBufferPool().Get(size)
	if n, err := m.MarshalToSizedBufferVT(*bytes); err != nil || n != size {
		mem.DefaultBufferPool().Put(bytes)
		return e, cannotEncodeVT(m, n, size, err)
	}
	e.whole.Data = mem.BufferSlice{mem.NewBuffer(bytes, mem.DefaultBufferPool())}
	return e, nil
}

// lend encodes a message of size bytes of which something lies in pool, without a copy of that; lent is false of others. pool may be nil. An error is a
// status.
func lend(pool *pool.Pool, m any, size int) (data mem.BufferSlice, lent bool, err error) {
	message, is := m.(proto.Message)
	if pool == nil || size < payload.LenMin || !is {
		return nil, false, nil
	}
	if data, lent, err = payload.Encode(pool, message); err != nil {
		err = cannotEncode(m, err)
	}
	return data, lent, err
}

func cannotEncode(m any, err error) error {
	return status.Errorf(codes.Internal, "tollfree: the message %T can't be encoded: %v", m, err)
}

func cannotEncodeVT(m any, n, size int, err error) error {
	if err == nil {
		return status.Errorf(codes.Internal, "tollfree: the message %T says that it has %d bytes, and wrote %d: it was changed meanwhile", m, size, n)
	}
	return cannotEncode(m, err)
}

func tooLongToSend(size, limit int) error {
	return status.Errorf(codes.ResourceExhausted, "tollfree: the message has %d bytes, and at most %d may be sent", size, limit)
}

// decodeProto fills m, which is new where fresh says so, and leaves reply as it is. An error is a status.
func decodeProto(reply *call.Reply, m proto.Message, vt, fresh bool, limit int) error {
	data := reply.Bytes()
	if !reply.IsShort {
		if len(reply.Message.Data) == 1 {
			data = reply.Message.Data[0].ReadOnlyData()
		} else {
			data = reply.Message.Data.Materialize()
		}
	}
	if len(data) > limit {
		return status.Errorf(codes.ResourceExhausted, "tollfree: the peer's message has %d bytes, and at most %d are taken", len(data), limit)
	}
	var err error
	fast, is := m.(vtUnmarshaler)
	if vt && is {
		if !fresh {
			proto.Reset(m)
		}
		err = fast.UnmarshalVT(data)
	} else {
		err = proto.UnmarshalOptions{Merge: fresh}.Unmarshal(data, m)
	}
	if err != nil {
		return status.Errorf(codes.Internal, "tollfree: the peer's message can't be decoded as %T: %v", m, err)
	}
	return nil
}

// A directCodec is protobuf's for messages of direct stubs.
type directCodec struct{}

func (directCodec) Marshal(v any) (mem.BufferSlice, error) {
	if fast, is := v.(vtMarshaler); is {
		size := fast.SizeVT()
		bytes := mem.DefaultBufferPool().Get(size)
		if n, err := fast.MarshalToSizedBufferVT(*bytes); err != nil || n != size {
			mem.DefaultBufferPool().Put(bytes)
			return nil, cannotEncodeVT(v, n, size, err)
		}
		return mem.BufferSlice{mem.NewBuffer(bytes, mem.DefaultBufferPool())}, nil
	}
	return protobufCodec.Marshal(v)
}

func (directCodec) Unmarshal(data mem.BufferSlice, v any) error {
	fast, is := v.(vtUnmarshaler)
	if !is {
		return protobufCodec.Unmarshal(data, v)
	}
	if m, is := v.(proto.Message); is {
		proto.Reset(m)
	}
	return fast.UnmarshalVT(data.Materialize())
}
