package main

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/tollfree/tollfree/go/internal/pool"
	"github.com/tollfree/tollfree/go/internal/wire"
)

func wide(n uint64) string { return fmt.Sprintf("%016x", n) }

// exactly takes bytes of one length.
func exactly(q question, name string, length int) ([]byte, error) {
	bytes, err := q.bytes(name)
	if err == nil && len(bytes) != length {
		err = fmt.Errorf("the field %q has %d bytes instead of %d", name, len(bytes), length)
	}
	return bytes, err
}

func (q question) shape() (pool.Shape, error) {
	n, err := q.number("data_len")
	if err != nil {
		return pool.Shape{}, err
	}
	shape, ok := pool.ShapeOf(n)
	if !ok {
		return shape, fmt.Errorf("no extent has %d bytes of data", n)
	}
	return shape, nil
}

func extent(q question) (fields, error) {
	shape, err := q.shape()
	if err != nil {
		return nil, err
	}
	page, err := q.number("page")
	if err != nil {
		return nil, err
	}
	if page >= uint64(shape.Pages()) {
		return nil, fmt.Errorf("page %d of %d", page, shape.Pages())
	}
	return fields{
		"pages": shape.Pages(), "data_off": shape.DataOff(), "file_len": shape.FileLen(), "row_len": shape.RowLen(),
		"state_off": shape.StateOff(int(page)), "key_off": shape.KeyOff(int(page)), "hold_off": shape.HoldOff(int(page)),
	}, nil
}

func (q question) ref() (ref pool.Ref, err error) {
	bytes, err := exactly(q, "ref", wire.RefLen)
	if err != nil {
		return ref, err
	}
	return pool.DecodeRef((*[wire.RefLen]byte)(bytes)), nil
}

func ref(q question) (fields, error) {
	r, err := q.ref()
	if err != nil {
		return nil, err
	}
	return fields{
		"pool": hex.EncodeToString(r.Pool[:]), "member": r.Member, "extent": r.Extent, "page": r.Page,
		"generation": wide(r.Generation), "tag": wide(r.Tag), "offset": wide(r.Offset), "len": wide(r.Len),
	}, nil
}

func refTag(q question) (fields, error) {
	r, err := q.ref()
	if err != nil {
		return nil, err
	}
	key, err := exactly(q, "key", 8)
	if err != nil {
		return nil, err
	}
	return fields{"tag": wide(r.TagOf(binary.LittleEndian.Uint64(key)))}, nil
}

func take(q question) (fields, error) {
	shape, err := q.shape()
	if err != nil {
		return nil, err
	}
	r, err := q.ref()
	if err != nil {
		return nil, err
	}
	memory, row := make([]byte, shape.FileLen()), make([]byte, shape.RowLen())
	within := r.Page < shape.Pages()
	for name, offset := range map[string]func(int) int{"state": shape.StateOff, "key": shape.KeyOff} {
		bytes, err := exactly(q, name, 8)
		if err != nil {
			return nil, err
		}
		if within {
			copy(memory[offset(int(r.Page)):], bytes)
		}
	}
	_, fault := pool.Take(memory, row, shape, &r)
	outcome, known := map[pool.Fault]string{pool.None: "taken", pool.Stale: "stale", pool.Forged: "forged", pool.Malformed: "malformed"}[fault]
	if !known {
		return nil, fault
	}
	reply := fields{"outcome": outcome, "taken": 0, "held": 0}
	if within {
		reply["taken"], reply["held"] = pool.HoldOf(binary.LittleEndian.Uint64(row[shape.HoldOff(int(r.Page)):]))
	}
	return reply, nil
}

func poolMember(q question) (fields, error) {
	name, err := exactly(q, "pool", 16)
	if err != nil {
		return nil, err
	}
	secret, err := exactly(q, "secret", 16)
	if err != nil {
		return nil, err
	}
	return fields{"member": pool.MemberOf([16]byte(secret), [16]byte(name))}, nil
}

func poolWords(q question) (fields, error) {
	state, err := exactly(q, "state", 8)
	if err != nil {
		return nil, err
	}
	hold, err := exactly(q, "hold", 8)
	if err != nil {
		return nil, err
	}
	pages, generation := pool.StateOf(binary.LittleEndian.Uint64(state))
	taken, held := pool.HoldOf(binary.LittleEndian.Uint64(hold))
	return fields{"page_count": pages, "generation": wide(generation), "taken": taken, "held": held}, nil
}

func poolMessage(q question) (fields, error) {
	bytes, err := exactly(q, "message", pool.MessageLen)
	if err != nil {
		return nil, err
	}
	m := pool.DecodeMessage((*[pool.MessageLen]byte)(bytes))
	return fields{
		"magic": hex.EncodeToString(m.Magic[:]), "kind": m.Kind, "member": m.Member, "extent": m.Extent, "reason": m.Reason,
		"amount": wide(m.Amount), "len": wide(m.Len), "pool": hex.EncodeToString(m.Pool[:]), "version": m.Version,
		"secret": hex.EncodeToString(m.Secret[:]),
	}, nil
}
