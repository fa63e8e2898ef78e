package session

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/tollfree/tollfree/go/internal/ring"
	"github.com/tollfree/tollfree/go/internal/spec"
)

// recordsOf gives the records of a fuzzer's input: each behind its length in two bytes.
func recordsOf(input []byte) (records [][]byte) {
	for len(input) >= 2 {
		n := min(int(binary.LittleEndian.Uint16(input)), len(input)-2)
		records = append(records, input[2:2+n])
		input = input[2+n:]
	}
	return records
}

func joined(records ...[]byte) (input []byte) {
	for _, record := range records {
		input = append(binary.LittleEndian.AppendUint16(input, uint16(len(record))), record...)
	}
	return input
}

// FuzzReceive gives a server, and a client, any records behind a correct opening. What is found ends all calls; what is not leaves a
// session that keeps its limits.
func FuzzReceive(f *testing.F) {
	frames, err := spec.Vectors("frames.json", "hex", "before", "heard", "said")
	if err != nil {
		f.Fatal(err)
	}
	for i, frame := range frames {
		f.Add(joined(frame), i%2 == 0)
		// As the vectors tell them, one behind the other.
		f.Add(joined(frames[i:min(i+3, len(frames))]...), i%2 == 1)
	}
	f.Fuzz(func(t *testing.T, input []byte, toServer bool) {
		client, server := pair(t)
		st := new(Stream)
		client.Open(client, st, &Opening{Path: "/a.B/C"}, &Message{Data: data(10)}, false)
		client.carry(t, server)
		receiver := server
		if !toServer {
			receiver = client
		}
		for _, record := range recordsOf(input) {
			_, err := receiver.Receive(ring.RecordOf(record))
			var violation *Violation
			if err != nil && !errors.As(err, &violation) {
				t.Fatalf("%v", err)
			}
			if err == nil && receiver.Closed() == nil {
				if receiver.Live() > int(limits().StreamCount) {
					t.Fatalf("%d calls, where %d may be", receiver.Live(), limits().StreamCount)
				}
				continue
			}
			if err != nil {
				receiver.Session.Close(receiver, err)
			}
			if receiver.Live() != 0 || !toServer && st.End().Kind == NotEnded {
				t.Fatalf("calls go on in a session that is over: %v", err)
			}
			return
		}
		receiver.Session.Flush(receiver)
		receiver.Publish()
	})
}
