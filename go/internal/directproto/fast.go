package directproto

import (
	"errors"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"
)

// FastCalls counts the calls of Fast's methods by which it is encoded and decoded.
var FastCalls struct{ Size, Marshal, Unmarshal atomic.Int64 }

// SizeVT is the length of the encoding, as vtprotobuf has it.
func (x *Fast) SizeVT() int {
	FastCalls.Size.Add(1)
	if len(x.Data) == 0 {
		return 0
	}
	return protowire.SizeTag(1) + protowire.SizeBytes(len(x.Data))
}

// MarshalToSizedBufferVT puts the encoding at the end of data, as vtprotobuf has it.
func (x *Fast) MarshalToSizedBufferVT(data []byte) (int, error) {
	FastCalls.Marshal.Add(1)
	if len(x.Data) == 0 {
		return 0, nil
	}
	encoded := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), x.Data)
	if len(encoded) > len(data) {
		return 0, errors.New("the message has grown")
	}
	return copy(data[len(data)-len(encoded):], encoded), nil
}

// UnmarshalVT adds what data says, as vtprotobuf has it.
func (x *Fast) UnmarshalVT(data []byte) error {
	FastCalls.Unmarshal.Add(1)
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		if number == 1 && kind == protowire.BytesType {
			value, n := protowire.ConsumeBytes(data)
			if n < 0 {
				return protowire.ParseError(n)
			}
			x.Data = append([]byte{}, value...)
			data = data[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(number, kind, data); n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
	}
	return nil
}
