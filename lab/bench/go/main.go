// Command peer is an end of the bench's sides in Go: `tollfree-lab bench echo` starts it, pinned as its other ends are. `peer notnets` makes
// NotNets' table 1 by itself.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) == 0 {
		return fmt.Errorf("say serve, call, paced-call, stream-serve, stream-call or notnets")
	}
	flags := flag.NewFlagSet(arguments[0], flag.ContinueOnError)
	var o order
	flags.StringVar(&o.side, "side", "", "go, go-inline, go-direct, go-to-rust, rust-to-go, grpc-go or grpc-go-tcp")
	flags.IntVar(&o.size, "size", 64, "bytes of a body")
	directory := flags.String("dir", "", "where to make a socket")
	flags.StringVar(&o.address, "address", "", "what the server has said")
	flags.IntVar(&o.inflight, "inflight", 1, "calls at once")
	flags.Int64Var(&o.calls, "calls", 0, "calls to count, instead of a time")
	flags.IntVar(&o.rate, "rate", 1000, "calls a second that are due")
	flags.StringVar(&o.kind, "kind", "", "server, client, ping-pong or burst")
	flags.IntVar(&o.streams, "streams", 1, "streams at once")
	rounds := flags.Int("rounds", 1, "rounds of notnets")
	flags.DurationVar(&o.warmUp, "warm-up", 0, "time before samples count")
	flags.DurationVar(&o.measure, "measure", time.Second, "time in which they count")
	if err := flags.Parse(arguments[1:]); err != nil {
		return err
	}
	switch arguments[0] {
	case "serve", "stream-serve":
		return serve(&o, *directory, func(address string) { fmt.Println(withProcess(address, os.Getpid())) }, os.Stdin)
	case "call":
		return say(call(&o))
	case "paced-call":
		return say(pace(&o))
	case "stream-call":
		return say(stream(&o))
	case "notnets":
		if o.calls == 0 {
			o.calls = notnetsCalls
		}
		return notnets(o.calls, *rounds, os.Stdout)
	}
	return fmt.Errorf("there is no part %q", arguments[0])
}

// say gives the bench what was measured.
func say[M any](measured *M, err error) error {
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(measured)
}

// An order is what an end is to do.
type order struct {
	side, address   string
	size, inflight  int
	rate, streams   int
	kind            string
	calls           int64
	warmUp, measure time.Duration
}

// untilOver waits until the starter has ended, or has closed the input.
func untilOver(input io.Reader) { _, _ = io.Copy(io.Discard, input) }
