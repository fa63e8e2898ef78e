package session

import (
	"testing"

	"google.golang.org/grpc/mem"

	"github.com/tollfree/tollfree/go/internal/wire"
)

// Short objects that wait go in one record, by turns with messages that are none.
func TestObjectsShareARecord(t *testing.T) {
	client, server := pair(t)
	st := new(Stream)
	if !client.Open(client, st, &Opening{Path: "/a.B/C"}, nil, false) {
		t.Fatal("not opened")
	}
	client.carry(t, server)
	got := server.NextOpened()
	kinds := []bool{true, true, true, false, false, true, true, false}
	for i, object := range kinds {
		client.Send(st, Message{Data: mem.BufferSlice{mem.SliceBuffer([]byte{byte(i), 7})}, Object: object}, false)
	}
	if records := client.carry(t, server); records != 4 {
		t.Errorf("%d records", records)
	}
	at := 0
	for chunk, ok := server.Take(got); ok; chunk, ok = server.Take(got) {
		count, prefix := max(chunk.Batch, 1), wire.BatchPrefixLen
		if chunk.Batch == 0 {
			prefix = 0
		}
		bytes := chunk.Data.ReadOnlyData()
		for range count {
			if chunk.Object != kinds[at] {
				t.Errorf("message %d is an object: %v", at, chunk.Object)
			}
			if prefix > 0 && (bytes[0] == 2) != kinds[at] {
				t.Errorf("message %d has a first byte of %d", at, bytes[0])
			}
			if bytes[prefix] != byte(at) {
				t.Errorf("message %d came as %d", at, bytes[prefix])
			}
			bytes, at = bytes[prefix+2:], at+1
		}
	}
	if at != len(kinds) {
		t.Errorf("%d messages came", at)
	}
}
