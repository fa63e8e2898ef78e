package main

import (
	"encoding/hex"
	"fmt"

	"github.com/tollfree/tollfree/go/internal/wire"
)

func handshake(q question) (fields, error) {
	bytes, err := q.bytes("message")
	if err != nil {
		return nil, err
	}
	if len(bytes) < wire.HelloLen || !wire.MagicFits(bytes) {
		return nil, fmt.Errorf("no handshake message: %d bytes", len(bytes))
	}
	h := wire.DecodeHello((*[wire.HelloLen]byte)(bytes))
	reply := fields{
		"kind": h.Kind, "version_min": h.VersionMin, "version_max": h.VersionMax, "features": h.Features,
		"required": h.Required, "region_len": h.RegionLen, "ring_len": h.RingLen, "stream_window": h.StreamWindow,
		"session_window": h.SessionWindow, "clock_ns": h.ClockNS, "stream_count": h.StreamCount,
		"area_len_max": h.AreaLenMax, "metadata_len_max": h.MetadataLenMax, "reason": h.Reason, "text": h.Text,
		"token": hex.EncodeToString(h.Token[:]), "tcp_client": hex.EncodeToString(h.TCPClient[:]),
		"tcp_server": hex.EncodeToString(h.TCPServer[:]), "tcp_client_port": h.TCPClientPort, "tcp_server_port": h.TCPServerPort,
	}
	if h.BodyLen > 0 {
		body := bytes[wire.HelloLen:]
		reply["body_len"], reply["body"] = h.BodyLen, hex.EncodeToString(body)
	}
	return reply, nil
}
