// Command peer is an end of the bench's sides in Go: `tollfree-lab bench echo` starts it, pinned as its other ends are.
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
		return fmt.Errorf("say serve or call")
	}
	flags := flag.NewFlagSet(arguments[0], flag.ContinueOnError)
	var o order
	flags.StringVar(&o.side, "side", "", "go, go-inline, go-direct or grpc-go")
	flags.IntVar(&o.size, "size", 64, "bytes of a body")
	directory := flags.String("dir", "", "where to make a socket")
	flags.StringVar(&o.address, "address", "", "what the server has said")
	flags.IntVar(&o.inflight, "inflight", 1, "calls at once")
	flags.Int64Var(&o.calls, "calls", 0, "calls to count, instead of a time")
	flags.DurationVar(&o.warmUp, "warm-up", 0, "time before samples count")
	flags.DurationVar(&o.measure, "measure", time.Second, "time in which they count")
	if err := flags.Parse(arguments[1:]); err != nil {
		return err
	}
	switch arguments[0] {
	case "serve":
		return serve(&o, *directory, func(address string) { fmt.Println(address) }, os.Stdin)
	case "call":
		measured, err := call(&o)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(measured)
	}
	return fmt.Errorf("%q is neither serve nor call", arguments[0])
}

// An order is what an end is to do.
type order struct {
	side, address   string
	size, inflight  int
	calls           int64
	warmUp, measure time.Duration
}

// untilOver waits until the starter has ended, or has closed the input.
func untilOver(input io.Reader) { _, _ = io.Copy(io.Discard, input) }
