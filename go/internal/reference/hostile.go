package reference

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// hostileTime bounds what a hostile peer takes to be ended.
const hostileTime = time.Minute

// A Lie is what a hostile peer can do.
type Lie struct {
	Name string
	// Wants is what the victim makes of it: see the program.
	Wants string
}

func hostile(ctx context.Context, t testing.TB, arguments ...string) *exec.Cmd {
	t.Helper()
	path := os.Getenv("TOLLFREE_HOSTILE")
	if path == "" {
		t.Fatal("TOLLFREE_HOSTILE does not say where tollfree-hostile is: run `make go`")
	}
	return exec.CommandContext(ctx, path, arguments...)
}

// Lies are what the Rust implementation's hostile peer can do of a kind; there are so many at least.
func Lies(t testing.TB, kind string, least int) (lies []Lie) {
	t.Helper()
	out, err := hostile(context.Background(), t, "list", kind).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		name, wants, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		lies = append(lies, Lie{name, wants})
	}
	if len(lies) < least {
		t.Fatalf("%d acts of kind %s, where there have to be %d", len(lies), kind, least)
	}
	return lies
}

// Harm has the hostile peer do something at a socket, waits until it is done, and gives what it prints. The test fails where the
// victim does not do what it must.
func Harm(t testing.TB, kind, name, socket string) (printed string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hostileTime)
	defer cancel()
	command := hostile(ctx, t, kind, name, socket)
	var out, complaint bytes.Buffer
	command.Stdout, command.Stderr = &out, &complaint
	if err := command.Run(); err != nil {
		t.Errorf("%s, %s: %v: %s%s", kind, name, err, complaint.String(), out.String())
	}
	return strings.TrimSpace(out.String())
}

// Beside runs the hostile peer until stop is called, which gives what it has printed. Where it serves, it listens by the time that
// Beside returns.
func Beside(t testing.TB, serves bool, kind, name, socket string) (stop func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hostileTime)
	command := hostile(ctx, t, kind, name, socket)
	var complaint bytes.Buffer
	command.Stderr = &complaint
	input, err := command.StdinPipe()
	output, err2 := command.StdoutPipe()
	if err := errors.Join(err, err2, command.Start()); err != nil {
		t.Fatal(err)
	}
	if serves {
		if _, err := io.ReadFull(output, make([]byte, len("ready\n"))); err != nil {
			t.Errorf("%s, %s does not listen: %v", kind, name, err)
		}
	}
	return func() string {
		defer cancel()
		_ = input.Close()
		printed, _ := io.ReadAll(output)
		if err := command.Wait(); err != nil {
			t.Errorf("%s, %s: %v: %s", kind, name, err, complaint.String())
		}
		return strings.TrimSpace(string(printed))
	}
}
