package flat

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	descriptionHeadLen = 16
	encodingsKnown     = 3
)

// A Description is what a process says of a method's types when its gateway asks: spec/wire.md, section 24.
type Description struct {
	Request, Reply Type
	// Accepts and Sends are the encodings in which the server takes and sends messages that are compressed: 1 gzip, 2 deflate.
	Accepts, Sends byte
}

// ReadDescription reads a description.
//
// Errors: bytes that are none.
func ReadDescription(b []byte) (*Description, error) {
	le := binary.LittleEndian
	if len(b) < descriptionHeadLen {
		return nil, fmt.Errorf("a description that breaks off after %d bytes", len(b))
	}
	d := &Description{Accepts: b[12], Sends: b[13]}
	if (d.Accepts|d.Sends)&^encodingsKnown != 0 || le.Uint16(b[14:]) != 0 {
		return nil, errors.New("a description that names encodings that do not exist")
	}
	tables := b[descriptionHeadLen:]
	n := le.Uint32(b[8:])
	if uint64(n) > uint64(len(tables)) {
		return nil, fmt.Errorf("a description that is shorter than its table of %d bytes", n)
	}
	request, err := LoadTable(tables[:n])
	if err != nil {
		return nil, err
	}
	reply := request
	if rest := tables[n:]; len(rest) > 0 {
		if reply, err = LoadTable(rest); err != nil {
			return nil, err
		}
	}
	var is, too bool
	d.Request, is = request.TypeAt(le.Uint32(b))
	if d.Reply, too = reply.TypeAt(le.Uint32(b[4:])); !is || !too {
		return nil, errors.New("a description of types that its tables lack")
	}
	return d, nil
}

// Bytes are the description's.
func (d *Description) Bytes() []byte {
	request, reply := d.Request.Table(), d.Reply.Table()
	b := binary.LittleEndian.AppendUint32(nil, d.Request.Index())
	b = binary.LittleEndian.AppendUint32(b, d.Reply.Index())
	b = binary.LittleEndian.AppendUint32(b, uint32(len(request.Bytes())))
	b = append(b, d.Accepts, d.Sends, 0, 0)
	b = append(b, request.Bytes()...)
	if reply != request {
		b = append(b, reply.Bytes()...)
	}
	return b
}
