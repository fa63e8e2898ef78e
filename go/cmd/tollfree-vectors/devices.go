package main

import (
	"encoding/hex"
	"errors"

	"github.com/tollfree/tollfree/go/internal/device"
	"github.com/tollfree/tollfree/go/internal/ring"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// devices answers what comes of bytes on a stream.
func devices(q question) (fields, error) {
	var ringLen, sent, told uint64
	for name, value := range map[string]*uint64{"ring_len": &ringLen, "sent": &sent, "told": &told} {
		if err := q.get(name, value); err != nil {
			return nil, err
		}
	}
	pieces, err := q.list("pieces")
	if err != nil {
		return nil, err
	}
	own, mirror := make([]byte, wire.RingOff+ringLen), make([]byte, wire.RingOff+ringLen)
	window := device.NewWindow(own, int(ringLen), mirror, int(ringLen))
	window.After(sent, told)
	for _, piece := range pieces {
		if err = window.Take(piece); err != nil {
			break
		}
	}
	var violation *device.Violation
	lines := []fields{}
	for at := 0; at < int(ringLen); at += wire.LineLen {
		line := mirror[wire.RingOff+at:][:wire.LineLen]
		if string(line) != string(make([]byte, wire.LineLen)) {
			lines = append(lines, fields{"line": at / wire.LineLen, "hex": hex.EncodeToString(line)})
		}
	}
	return fields{
		"violation": errors.As(err, &violation), "consumed": ring.Consumed(mirror), "load": ring.LoadWord(mirror),
		"written": window.Written(), "lines": lines,
	}, nil
}
