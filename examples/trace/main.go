// Command trace makes one call through services in several languages, over shared memory, and prints the trace that OpenTelemetry made of
// it: one tree with the spans of all processes.
//
//	trace [-service NAME=PROGRAM]...      the first service is this program's own, in Go; those named follow, in order
//	trace -relay ADDRESS [NEXT]           be a service: the one in Go
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// patience is how long the services may take to start, to pass the call on, and to end.
const patience = time.Minute

// A service is a program that passes calls on. It is called with the address at which it serves, and that of the next service if there is one.
type service struct {
	// name is what its spans are filed under.
	name    string
	command []string
}

func main() {
	var others []service
	flag.Func("service", "`NAME=PROGRAM` of a further service; spaces separate the program's arguments", func(text string) error {
		name, command, ok := strings.Cut(text, "=")
		if !ok || name == "" || command == "" {
			return errors.New("a name and a program are needed")
		}
		others = append(others, service{name, strings.Fields(command)})
		return nil
	})
	isRelay := flag.Bool("relay", false, "be the service in Go")
	flag.Parse()
	if err := run(*isRelay, others, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "trace:", err)
		os.Exit(1)
	}
}

func run(isRelay bool, others []service, arguments []string) error {
	switch {
	case isRelay && len(arguments) == 1:
		return serve(arguments[0], "", os.Stdin, os.Stdout)
	case isRelay && len(arguments) == 2:
		return serve(arguments[0], arguments[1], os.Stdin, os.Stdout)
	case isRelay:
		return errors.New("-relay needs an address, and takes that of the next service")
	case len(arguments) != 0:
		return fmt.Errorf("what is %q? Services are named by -service", arguments[0])
	}
	itself, err := os.Executable()
	if err != nil {
		return err
	}
	return demo(os.Stdout, append([]service{{"go-service", []string{itself, "-relay"}}}, others...))
}

// demo makes the call, and prints its trace. A trace that lacks a span is an error, and so are spans of another trace.
func demo(out io.Writer, services []service) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	collector, err := newCollector()
	if err != nil {
		return fmt.Errorf("the collector: %w", err)
	}
	defer collector.stop()
	passed, err := passThrough(ctx, collector.endpoint(), services)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "A call in Go passed %d services over shared memory:\n", len(passed))
	for _, by := range passed {
		fmt.Fprintf(out, "  %s\n", by)
	}
	names := []string{clientName}
	for _, s := range services {
		names = append(names, s.name)
	}
	return show(out, collector.take(), names)
}
