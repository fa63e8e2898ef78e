package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/region"
	"github.com/tollfree/tollfree/go/internal/system"
	"github.com/tollfree/tollfree/go/internal/transport"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// door is a server that listens in this process, from the first question about one on.
var door = sync.OnceValues(func() (string, error) {
	listener, err := transport.Listen(fmt.Sprintf("shm-abstract:tollfree-go-vectors-%d", os.Getpid()), transport.Config{})
	if err != nil {
		return "", err
	}
	go func() { _ = listener.Serve(call.Service{Handler: func(call.ServerCall) {}}) }()
	return "@" + strings.TrimPrefix(listener.Address(), "shm-abstract:"), nil
})

func refusedByServer(q question) (fields, error) {
	message, err := q.bytes("message")
	if err != nil {
		return nil, err
	}
	var regionLen *int
	if err := json.Unmarshal(q["region_len"], &regionLen); err != nil {
		return nil, err
	}
	name, err := door()
	if err != nil {
		return nil, err
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(8 * time.Second))
	var oob []byte
	if regionLen != nil {
		own, err := region.Create("vector", *regionLen)
		if err != nil {
			return nil, err
		}
		defer own.Unmap()
		oob = system.Rights(own.FD())
	}
	if _, _, err := conn.WriteMsgUnix(message, oob, nil); err != nil {
		return nil, err
	}
	var answer [wire.HelloLen]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return nil, err
	}
	if kind := binary.LittleEndian.Uint32(answer[8:]); kind != wire.KindRefusal {
		return nil, fmt.Errorf("an answer of kind %d", kind)
	}
	said := wire.DecodeHello(&answer)
	return fields{"reason": said.Reason}, nil
}
