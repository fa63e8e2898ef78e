package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// The test's binary is the program, too, where it is told a part.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestEverySideIsInNotNetsTable(t *testing.T) {
	var out strings.Builder
	if err := notnets(200, 1, &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2+len(notnetsSides) || !strings.Contains(lines[2], "1.0x") {
		t.Errorf("got\n%s", out.String())
	}
}

// part has a server and a client of a side do their parts, and decodes what the client says.
func part(t *testing.T, serve, call, side string, answer any, arguments ...string) {
	t.Helper()
	server, said, input, err := startOn(0, serve, "-side", side, "-dir", t.TempDir(), "-warm-up", "10ms")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		input.Close()
		if err := server.Wait(); err != nil {
			t.Errorf("the server: %v", err)
		}
	})
	address, err := said.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	arguments = append([]string{call, "-side", side, "-address", strings.TrimSpace(address), "-warm-up", "10ms", "-measure", "150ms"}, arguments...)
	client, output, _, err := startOn(0, arguments...)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(output).Decode(answer); err != nil {
		t.Fatal(err)
	}
	if err := client.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestAllKindsOfStreams(t *testing.T) {
	for _, side := range []string{"go", "grpc-go"} {
		for _, kind := range []string{"server", "client", "ping-pong", "burst"} {
			var s streamed
			part(t, "stream-serve", "stream-call", side, &s, "-kind", kind, "-size", "100", "-streams", "2")
			if s.Messages == 0 || len(s.Latencies) == 0 || s.ClientCPUNS <= 0 || s.ServerCPUNS <= 0 {
				t.Errorf("%s, %s: %+v", side, kind, s)
			}
		}
	}
}

func TestCallsAtARate(t *testing.T) {
	for _, side := range []string{"go", "grpc-go"} {
		var p paced
		part(t, "serve", "paced-call", side, &p, "-rate", "100")
		// Of 15, more or less.
		if n := len(p.Latencies); n < 2 || n > 40 || p.ClientCPUNS <= 0 || p.ServerCPUNS <= 0 {
			t.Errorf("%s: %d times, %+v", side, n, p)
		}
	}
}

func TestFiguresOfLatencies(t *testing.T) {
	f := figuresOf([][2]int64{{1000, 1}, {10, 998}, {500, 1}})
	if want := (figures{(998*10 + 500 + 1000) / 1000.0, 10, 500}); f != want {
		t.Errorf("got %v, want %v", f, want)
	}
	if m := medians([]figures{{3, 1, 9}, {1, 2, 8}, {2, 3, 7}}); m != (figures{2, 2, 8}) {
		t.Errorf("the medians are %v", m)
	}
}

func TestTheServerThatRustCalls(t *testing.T) {
	var m measured
	part(t, "serve", "call", rustToGo, &m, "-calls", "20")
	if m.ElapsedNS == 0 || len(m.Latencies) == 0 {
		t.Errorf("%+v", m)
	}
}
